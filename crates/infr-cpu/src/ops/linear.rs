//! Matrix products. Each weight row is decoded once per step and met with every row of the batch.

use std::ops::Range;

use infr_graph::{LinearSpec, Node};

use super::Context;
use crate::par::for_parts;
use crate::threads::ThreadPool;
use crate::weights::Weight;

/// `y[o] = scale·Σ_i W[o, i]·x[i] + bias[o]`.
pub(crate) fn linear(cx: &Context<'_>, node: &Node, spec: LinearSpec, out: &mut [f32]) {
    let w = cx.weight(node, 0);
    let bias = spec.bias.then(|| cx.vector(node, 1)).flatten();
    let scale = spec.scale.then(|| cx.vector(node, 1 + usize::from(spec.bias))).flatten();
    let scale = scale.map_or(1.0, |s| f64::from(s[0]));
    let x: Vec<&[f32]> = cx.input(node, 0).chunks(w.row_len()).collect();
    let n_out = w.n_rows();
    let y = products(cx.pool, w, 0..n_out, &x);
    for (row_idx, out) in out.chunks_mut(n_out).enumerate() {
        for (o, out) in out.iter_mut().enumerate() {
            let bias = bias.map_or(0.0, |b| f64::from(b[o]));
            *out = (y[o * x.len() + row_idx] * scale + bias) as f32;
        }
    }
}

/// One matrix per head over that head's part of the row.
pub(crate) fn head_linear(cx: &Context<'_>, node: &Node, heads: u32, out: &mut [f32]) {
    let (w, heads) = (cx.weight(node, 0), heads as usize);
    let (inner, n_out) = (w.row_len(), w.n_rows() / heads);
    for head in 0..heads {
        let rows = cx.input(node, 0).chunks(heads * inner);
        let x: Vec<&[f32]> = rows.map(|row| &row[head * inner..][..inner]).collect();
        let y = products(cx.pool, w, head * n_out..(head + 1) * n_out, &x);
        for (row_idx, out) in out.chunks_mut(heads * n_out).enumerate() {
            for (o, out) in out[head * n_out..][..n_out].iter_mut().enumerate() {
                *out = y[o * x.len() + row_idx] as f32;
            }
        }
    }
}

/// `y[i] = Σ_o x[o]·W[o, i]`.
pub(crate) fn linear_transposed(cx: &Context<'_>, node: &Node, out: &mut [f32]) {
    // A fixed number of partial sums, so that the result does not depend on the number of threads.
    const PARTS: usize = 16;
    let w = cx.weight(node, 0);
    let (n_in, width) = (w.n_rows(), w.row_len());
    let x = cx.input(node, 0);
    let n_rows = x.len() / n_in;
    let part_len = n_in.div_ceil(PARTS);
    let mut sums = vec![0.0f64; PARTS * n_rows * width];
    if sums.is_empty() {
        return;
    }
    for_parts(cx.pool, &mut sums, n_rows * width, |part, sums| {
        let mut row = vec![0.0; width];
        for o in part * part_len..((part + 1) * part_len).min(n_in) {
            w.decode_row(o, &mut row);
            for (sums, x) in sums.chunks_mut(width).zip(x.chunks(n_in)) {
                let x = f64::from(x[o]);
                sums.iter_mut().zip(&row).for_each(|(sum, w)| *sum += x * f64::from(*w));
            }
        }
    });
    for (i, out) in out.iter_mut().enumerate() {
        *out = (0..PARTS).map(|part| sums[part * n_rows * width + i]).sum::<f64>() as f32;
    }
}

/// Products of some rows of a matrix with some activation rows: `[weight row][activation row]`.
pub(crate) fn products(
    pool: &ThreadPool,
    w: &Weight,
    rows: Range<usize>,
    x: &[&[f32]],
) -> Vec<f64> {
    let mut out = vec![0.0; rows.len() * x.len()];
    // Several weight rows share one decode buffer.
    const ROWS: usize = 16;
    for_parts(pool, &mut out, ROWS * x.len(), |part, out| {
        let mut row = vec![0.0; w.row_len()];
        for (i, out) in out.chunks_mut(x.len()).enumerate() {
            w.decode_row(rows.start + part * ROWS + i, &mut row);
            out.iter_mut().zip(x).for_each(|(out, x)| *out = dot(&row, x));
        }
    });
    out
}

/// `Σ a[i]·b[i]` in `f64`, over eight partial sums that the compiler keeps in vectors.
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f64 {
    let mut sums = [0.0f64; 8];
    let (a8, a_rest) = a.as_chunks::<8>();
    let (b8, b_rest) = b.as_chunks::<8>();
    for (a, b) in a8.iter().zip(b8) {
        for lane in 0..8 {
            sums[lane] += f64::from(a[lane]) * f64::from(b[lane]);
        }
    }
    let rest: f64 = a_rest.iter().zip(b_rest).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
    sums.iter().sum::<f64>() + rest
}
