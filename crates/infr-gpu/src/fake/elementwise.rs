//! Kernels over elements and whole rows.

use super::Launch;
use super::memory::Memory;

pub(super) fn patch(l: &Launch<'_>, m: &mut Memory) {
    let n = m.word(l.address(0) + 12) as usize;
    for pair in m.words(l.address(1), 2 * n).as_chunks::<2>().0 {
        m.put_words(l.address(2) + 4 * u64::from(pair[0]), &[pair[1]]);
    }
}

pub(super) fn norm(l: &Launch<'_>, m: &mut Memory) {
    let (width, groups, eps) = (l.usize(0), l.usize(1), l.f32(2));
    assert_eq!(l.grid[0] as usize, groups);
    let adds = l.spec("add") == 1;
    for part in 0..l.rows(m, l.u32(3)) * groups {
        let at = (4 * part * width) as u64;
        let mut x = m.floats(l.address(1) + at, width);
        if adds {
            let b = m.floats(l.address(2) + at, width);
            x.iter_mut().zip(b).for_each(|(x, b)| *x += b);
            if l.address(4) != 0 {
                m.put_floats(l.address(4) + at, &x);
            }
        }
        let weight = weight_or_ones(m, l.address(3), width);
        let y = normed(&x, &weight, eps);
        m.put_floats(l.address(5) + at, &y);
    }
}

pub(super) fn weight_or_ones(m: &mut Memory, address: u64, width: usize) -> Vec<f32> {
    if address == 0 { vec![1.0; width] } else { m.floats(address, width) }
}

pub(super) fn normed(x: &[f32], weight: &[f32], eps: f32) -> Vec<f32> {
    let mean = x.iter().map(|x| x * x).sum::<f32>() / x.len() as f32;
    let inverse = 1.0 / (mean + eps).sqrt();
    x.iter().zip(weight).map(|(x, w)| x * inverse * w).collect()
}

/// `act(gate)·up` by the contract's numbers.
pub(super) fn gate(act: u32, gate: f32, up: f32) -> f32 {
    match act {
        0 => gate * sigmoid(gate) * up,
        1 => gelu(gate) * up,
        2 => gate.max(0.0).powi(2) * up,
        3 => sigmoid(gate) * up,
        4 => {
            let gate = gate.min(7.0);
            gate * sigmoid(1.702 * gate) * (up.clamp(-7.0, 7.0) + 1.0)
        }
        other => panic!("activation {other}"),
    }
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

fn gelu(x: f32) -> f32 {
    0.5 * x * (1.0 + (0.797_884_6 * x * (1.0 + 0.044_715 * x * x)).tanh())
}

pub(super) fn gated_act(l: &Launch<'_>, m: &mut Memory) {
    let width = l.usize(0);
    l.check_parts(width);
    for row in 0..l.rows(m, l.u32(1)) {
        let at = (4 * row * width) as u64;
        let (g, up) = (m.floats(l.address(1) + at, width), m.floats(l.address(2) + at, width));
        let y: Vec<f32> = g.iter().zip(up).map(|(g, up)| gate(l.spec("act"), *g, up)).collect();
        m.put_floats(l.address(3) + at, &y);
    }
}

pub(super) fn unary(l: &Launch<'_>, m: &mut Memory) {
    let (width, param) = (l.usize(0), l.f32(1));
    l.check_parts(width);
    let f = |x: f32| match l.spec("func") {
        0 => x * sigmoid(x),
        1 => gelu(x),
        2 => sigmoid(x),
        3 => x.tanh(),
        4 if x > 20.0 => x,
        4 => x.exp().ln_1p(),
        5 => x.exp(),
        6 => x * param,
        7 => param * (x / param).tanh(),
        8 => x,
        other => panic!("function {other}"),
    };
    for row in 0..l.rows(m, l.u32(2)) {
        let at = (4 * row * width) as u64;
        let y: Vec<f32> = m.floats(l.address(1) + at, width).into_iter().map(f).collect();
        m.put_floats(l.address(2) + at, &y);
    }
}

pub(super) fn binary(l: &Launch<'_>, m: &mut Memory) {
    let (width, part, stride) = (l.usize(0), l.usize(1), l.usize(2));
    l.check_parts(width);
    for row in 0..l.rows(m, l.u32(3)) {
        let at = (4 * row * width) as u64;
        let a = m.floats(l.address(1) + at, width);
        let b = match stride {
            0 => m.floats(l.address(2), part),
            _ => m.floats(l.address(2) + (4 * row * stride) as u64, stride),
        };
        let index = |i: usize| if stride == 0 { i % part } else { i / part };
        let f = |(i, a): (usize, &f32)| match l.spec("func") {
            0 => a + b[index(i)],
            1 => a * b[index(i)],
            other => panic!("function {other}"),
        };
        let y: Vec<f32> = a.iter().enumerate().map(f).collect();
        m.put_floats(l.address(3) + at, &y);
    }
}

pub(super) fn gather_rows(l: &Launch<'_>, m: &mut Memory) {
    let width = l.usize(0);
    l.check_parts(width);
    for out in 0..l.rows(m, 2) {
        let row = m.word(l.address(1) + 4 * out as u64);
        let x = m.floats(l.address(2) + 4 * u64::from(row) * width as u64, width);
        m.put_floats(l.address(3) + (4 * out * width) as u64, &x);
    }
}

pub(super) fn slice(l: &Launch<'_>, m: &mut Memory) {
    let (part, start, len, groups) = (l.usize(0), l.usize(1), l.usize(2), l.usize(3));
    l.check_parts(groups * len);
    for i in 0..l.rows(m, l.u32(4)) * groups {
        let x = m.floats(l.address(1) + (4 * (i * part + start)) as u64, len);
        m.put_floats(l.address(2) + (4 * i * len) as u64, &x);
    }
}

pub(super) fn concat(l: &Launch<'_>, m: &mut Memory) {
    let (a_len, b_len, groups) = (l.usize(0), l.usize(1), l.usize(2));
    l.check_parts(groups * (a_len + b_len));
    for i in 0..l.rows(m, l.u32(3)) * groups {
        let mut y = m.floats(l.address(1) + (4 * i * a_len) as u64, a_len);
        y.extend(m.floats(l.address(2) + (4 * i * b_len) as u64, b_len));
        m.put_floats(l.address(3) + (4 * i * (a_len + b_len)) as u64, &y);
    }
}
