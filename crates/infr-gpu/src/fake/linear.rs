//! Kernels over weights: products and the embedding.

use infr_tensor::{DType, quant};

use super::Launch;
use super::elementwise::gate;
use super::memory::Memory;

fn weight_row(
    m: &mut Memory,
    (address, dtype): (u64, DType),
    row: usize,
    width: usize,
) -> Vec<f32> {
    let bytes = width / dtype.block_len() * dtype.block_bytes();
    let data = m.read(address + (row * bytes) as u64, bytes);
    let mut values = vec![0.0; width];
    assert!(quant::decode_row(dtype, &data, &mut values), "no decoder of {dtype}");
    values
}

pub(super) fn embed(l: &Launch<'_>, m: &mut Memory) {
    let width = l.usize(0);
    l.check_parts(width);
    for row in 0..l.rows(m, 0) {
        let token = m.word(l.address(1) + 4 * row as u64);
        let id = match token >> 31 {
            1 => m.word(l.address(2) + 4 * u64::from(token & 0x7fff_ffff)),
            _ => token,
        };
        let y = weight_row(m, (l.address(3), l.quant()), id as usize, width);
        m.put_floats(l.address(4) + (4 * row * width) as u64, &y);
    }
}

/// `f32` sums in a fixed order: eight partial sums.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0f32; 8];
    for (i, (a, b)) in a.iter().zip(b).enumerate() {
        sums[i % 8] += a * b;
    }
    sums.iter().sum()
}

pub(super) fn linear(l: &Launch<'_>, m: &mut Memory) {
    let (inner, outer, act) = (l.usize(0), l.usize(1), l.spec("act"));
    let rows = m.word(l.address(0) + 4 * u64::from(l.u32(2))) as usize;
    let (outs, at_once) = match l.spec.iter().any(|(n, _)| *n == "outs") {
        true => (l.spec("outs"), l.spec("cols")),
        false => (l.spec("tile_outs"), l.spec("tile_rows")),
    };
    assert!(rows <= (l.grid[1] * at_once) as usize);
    assert!(outer <= (l.grid[0] * l.grid[2] * outs) as usize);
    let x: Vec<Vec<f32>> =
        (0..rows).map(|r| m.floats(l.address(1) + (4 * r * inner) as u64, inner)).collect();
    let scale = if l.address(5) == 0 { 1.0 } else { m.floats(l.address(5), 1)[0] };
    let mut bias = |address: u64| match address {
        0 => vec![0.0; outer],
        _ => m.floats(address, outer),
    };
    let (biases, up_biases) = (bias(l.address(4)), bias(l.address(7)));
    let mut y = vec![0.0; rows * outer];
    for o in 0..outer {
        let w = weight_row(m, (l.address(2), l.quant()), o, inner);
        let up = (act > 0).then(|| weight_row(m, (l.address(6), l.quant()), o, inner));
        for (r, x) in x.iter().enumerate() {
            let product = scale * dot(&w, x) + biases[o];
            y[r * outer + o] = match &up {
                Some(up) => gate(act - 1, product, dot(up, x) + up_biases[o]),
                None => product,
            };
        }
    }
    m.put_floats(l.address(3), &y);
}
