//! Attention over pages, tile by tile with a running maximum (Milakov and Gimelshein, "Online normalizer
//! calculation for softmax", 2018).

use super::Launch;
use super::memory::Memory;
use super::rope::cache;

/// The facts that all forms share.
struct Heads {
    heads: usize,
    kv_heads: usize,
    key_dim: usize,
    value_dim: usize,
    stride: usize,
    page_shift: usize,
    scale: f32,
    softcap: f32,
    tile: usize,
    kv: u32,
}

/// Sums over the rows seen so far.
struct Sums {
    values: Vec<f32>,
    max: f32,
    total: f32,
}

impl Sums {
    fn new(value_dim: usize) -> Sums {
        Sums { values: vec![0.0; value_dim], max: f32::NEG_INFINITY, total: 0.0 }
    }

    /// Joins other sums: exact when one side is empty.
    fn join(&mut self, other: &Sums) {
        let max = self.max.max(other.max);
        if max == f32::NEG_INFINITY {
            return;
        }
        let (a, b) = ((self.max - max).exp(), (other.max - max).exp());
        for (x, y) in self.values.iter_mut().zip(&other.values) {
            *x = *x * a + y * b;
        }
        self.total = self.total * a + other.total * b;
        self.max = max;
    }

    /// The weighted mean; zeros when nothing was seen.
    fn finish(mut self, sink: Option<f32>) -> Vec<f32> {
        if self.total == 0.0 {
            return self.values;
        }
        if let Some(sink) = sink {
            let nothing = Sums { values: vec![0.0; self.values.len()], max: sink, total: 1.0 };
            self.join(&nothing);
        }
        self.values.iter().map(|v| v / self.total).collect()
    }
}

impl Heads {
    fn new(l: &Launch<'_>) -> Heads {
        Heads {
            heads: l.usize(0),
            kv_heads: l.usize(1),
            key_dim: l.spec("key_dim") as usize,
            value_dim: l.spec("value_dim") as usize,
            stride: l.usize(2),
            page_shift: l.pair(3).0,
            scale: l.f32(4),
            softcap: l.f32(5),
            tile: l.spec("tile") as usize,
            kv: l.spec("kv"),
        }
    }

    /// Tiles `first`, `first + step`, … of one row and head.
    fn attend(
        &self,
        l: &Launch<'_>,
        m: &mut Memory,
        (row, head): (usize, usize),
        (first, step): (usize, usize),
    ) -> Sums {
        let q_at = (4 * (row * self.heads + head) * self.key_dim) as u64;
        let q = m.floats(l.address(1) + q_at, self.key_dim);
        let slot = m.word(l.address(5) + 4 * row as u64) as usize;
        let visible = m.words(l.address(6) + 8 * row as u64, 2);
        let (lo, hi) = (visible[0] as usize, visible[1] as usize);
        let kv_head = head / (self.heads / self.kv_heads);
        let mut sums = Sums::new(self.value_dim);
        for tile in (first..hi.div_ceil(self.tile)).step_by(step) {
            let mut part = Sums::new(self.value_dim);
            for at in (tile * self.tile).max(lo)..((tile + 1) * self.tile).min(hi) {
                let page = (at >> self.page_shift) & (self.stride - 1);
                let entry = l.address(4) + 4 * (slot * self.stride + page) as u64;
                let offset = at & ((1 << self.page_shift) - 1);
                let physical = ((m.word(entry) as usize) << self.page_shift) + offset;
                let index = physical * self.kv_heads + kv_head;
                let key = cache(m, l.address(2), self.kv, index * self.key_dim, self.key_dim);
                let value = cache(m, l.address(3), self.kv, index * self.value_dim, self.value_dim);
                let mut score: f32 = q.iter().zip(&key).map(|(q, k)| q * k).sum::<f32>();
                score *= self.scale;
                if self.softcap > 0.0 {
                    score = self.softcap * (score / self.softcap).tanh();
                }
                part.join(&Sums { values: value, max: score, total: 1.0 });
            }
            sums.join(&part);
        }
        sums
    }
}

fn sink(m: &mut Memory, sinks: u64, head: usize) -> Option<f32> {
    (sinks != 0).then(|| m.floats(sinks + 4 * head as u64, 1)[0])
}

pub(super) fn decode(l: &Launch<'_>, m: &mut Memory) {
    let heads = Heads::new(l);
    let splits = l.pair(3).1;
    assert_eq!((l.grid[0] as usize, l.grid[2] as usize), (heads.kv_heads, splits));
    for row in 0..l.rows(m, 0) {
        for head in 0..heads.heads {
            for split in 0..splits {
                let sums = heads.attend(l, m, (row, head), (split, splits));
                let index = row * heads.heads + head;
                if splits == 1 {
                    let sink = sink(m, l.address(8), head);
                    let y = sums.finish(sink);
                    m.put_floats(l.address(7) + (4 * index * heads.value_dim) as u64, &y);
                    continue;
                }
                let at = 4 * (index * splits + split) * (heads.value_dim + 2);
                let mut part = sums.values;
                part.extend([sums.max, sums.total]);
                m.put_floats(l.address(7) + at as u64, &part);
            }
        }
    }
}

pub(super) fn combine(l: &Launch<'_>, m: &mut Memory) {
    let (heads, value_dim, splits) = (l.usize(0), l.usize(1), l.usize(2));
    assert_eq!(l.grid[0] as usize, heads);
    for row in 0..l.rows(m, 0) {
        for head in 0..heads {
            let index = row * heads + head;
            let mut sums = Sums::new(value_dim);
            for split in 0..splits {
                let at = 4 * (index * splits + split) * (value_dim + 2);
                let mut part = m.floats(l.address(1) + at as u64, value_dim + 2);
                let (total, max) = (part[value_dim + 1], part[value_dim]);
                part.truncate(value_dim);
                sums.join(&Sums { values: part, max, total });
            }
            let sink = sink(m, l.address(3), head);
            m.put_floats(l.address(2) + (4 * index * value_dim) as u64, &sums.finish(sink));
        }
    }
}

pub(super) fn prefill(l: &Launch<'_>, m: &mut Memory) {
    let heads = Heads::new(l);
    assert_eq!(l.grid[0] as usize, heads.heads);
    for tile in 0..l.rows(m, 4) {
        let tile = m.words(l.address(7) + 8 * tile as u64, 2);
        assert!(tile[1] > 0 && tile[1] <= l.spec("q_tile"));
        for row in tile[0]..tile[0] + tile[1] {
            for head in 0..heads.heads {
                let sums = heads.attend(l, m, (row as usize, head), (0, 1));
                let index = row as usize * heads.heads + head;
                let sink = sink(m, l.address(9), head);
                let y = sums.finish(sink);
                m.put_floats(l.address(8) + (4 * index * heads.value_dim) as u64, &y);
            }
        }
    }
}
