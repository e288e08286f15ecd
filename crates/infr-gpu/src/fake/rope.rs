//! Rotary embeddings and cache writes.

use std::f32::consts::TAU;

use half::f16;

use super::Launch;
use super::elementwise::normed;
use super::memory::Memory;

/// Rows that write nothing to the cache.
const NO_WRITE: u32 = u32::MAX;

/// What turns a head.
struct Turn {
    freqs: Vec<f32>,
    start: usize,
    n_rot: usize,
    magnitude: f32,
    style: u32,
}

impl Turn {
    fn apply(&self, head: &mut [f32], position: u32) {
        let p = position as f32;
        let rotated = &mut head[self.start..self.start + self.n_rot];
        for (i, freq) in self.freqs.as_chunks::<2>().0.iter().enumerate() {
            let t = p * freq[0];
            let rest = p.mul_add(freq[0], -t);
            let turns = t - t.floor() + p.mul_add(freq[1], rest);
            let (s, c) = (TAU * turns).sin_cos();
            let (s, c) = (s * self.magnitude, c * self.magnitude);
            let (first, second) = match self.style {
                0 => (2 * i, 2 * i + 1),
                1 => (i, i + self.n_rot / 2),
                other => panic!("style {other}"),
            };
            let (a, b) = (rotated[first], rotated[second]);
            rotated[first] = a * c - b * s;
            rotated[second] = a * s + b * c;
        }
    }
}

pub(super) fn rope(l: &Launch<'_>, m: &mut Memory) {
    let (heads, head_dim) = (l.usize(0), l.usize(1));
    assert_eq!(l.grid[0] as usize, heads);
    let (start, n_rot) = l.pair(2);
    let freqs = m.floats(l.address(2), n_rot);
    let turn = Turn { freqs, start, n_rot, magnitude: l.f32(3), style: l.spec("style") };
    for row in 0..l.rows(m, 0) {
        let position = m.word(l.address(1) + 4 * row as u64);
        for head in 0..heads {
            let at = (4 * (row * heads + head) * head_dim) as u64;
            let mut x = m.floats(l.address(3) + at, head_dim);
            turn.apply(&mut x, position);
            m.put_floats(l.address(4) + at, &x);
        }
    }
}

/// Writes elements of a cache pool from the given element on.
fn put_cache(m: &mut Memory, pool: u64, kv: u32, at: usize, values: &[f32]) {
    match kv {
        0 => m.put_floats(pool + 4 * at as u64, values),
        1 => {
            let halves: Vec<u16> = values.iter().map(|v| f16::from_f32(*v).to_bits()).collect();
            m.write(pool + 2 * at as u64, bytemuck::cast_slice(&halves));
        }
        other => panic!("cache type {other}"),
    }
}

/// Reads elements of a cache pool.
pub(super) fn cache(m: &mut Memory, pool: u64, kv: u32, at: usize, n: usize) -> Vec<f32> {
    match kv {
        0 => m.floats(pool + 4 * at as u64, n),
        _ => {
            let bytes = m.read(pool + 2 * at as u64, 2 * n);
            let halves = bytes.as_chunks::<2>().0.iter();
            halves.map(|b| f16::from_bits(u16::from_le_bytes(*b)).to_f32()).collect()
        }
    }
}

pub(super) fn rope_kv(l: &Launch<'_>, m: &mut Memory) {
    let (heads, kv_heads) = l.pair(0);
    let (head_dim, value_dim) = l.pair(1);
    let (start, n_rot) = l.pair(2);
    let (eps, kv) = (l.f32(4), l.spec("kv"));
    assert_eq!(l.grid[0] as usize, heads + 2 * kv_heads);
    let freqs = m.floats(l.address(2), n_rot);
    let turn = Turn { freqs, start, n_rot, magnitude: l.f32(3), style: l.spec("style") };
    for row in 0..l.rows(m, 0) {
        let position = m.word(l.address(1) + 4 * row as u64);
        let write = m.word(l.address(9) + 4 * row as u64);
        let turned = |m: &mut Memory, x: u64, norm: u64, index: usize| {
            let mut x = m.floats(x + (4 * index * head_dim) as u64, head_dim);
            if norm != 0 {
                x = normed(&x, &m.floats(norm, head_dim), eps);
            }
            turn.apply(&mut x, position);
            x
        };
        for head in 0..heads {
            let index = row * heads + head;
            let q = turned(m, l.address(3), l.address(7), index);
            m.put_floats(l.address(6) + (4 * index * head_dim) as u64, &q);
        }
        if write == NO_WRITE {
            continue;
        }
        for head in 0..kv_heads {
            let index = row * kv_heads + head;
            let k = turned(m, l.address(4), l.address(8), index);
            let v = m.floats(l.address(5) + (4 * index * value_dim) as u64, value_dim);
            let at = write as usize * kv_heads + head;
            put_cache(m, l.address(10), kv, at * head_dim, &k);
            put_cache(m, l.address(11), kv, at * value_dim, &v);
        }
    }
}

pub(super) fn kv_write(l: &Launch<'_>, m: &mut Memory) {
    let (key_width, value_width) = (l.usize(0), l.usize(1));
    l.check_parts(key_width + value_width);
    for row in 0..l.rows(m, 0) {
        let write = m.word(l.address(1) + 4 * row as u64);
        if write == NO_WRITE {
            continue;
        }
        for (x, pool, width) in
            [(l.address(2), l.address(4), key_width), (l.address(3), l.address(5), value_width)]
        {
            let values = m.floats(x + (4 * row * width) as u64, width);
            put_cache(m, pool, l.spec("kv"), write as usize * width, &values);
        }
    }
}
