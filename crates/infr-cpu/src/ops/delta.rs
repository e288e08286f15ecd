//! The gated delta rule (Yang et al., "Gated Delta Networks", 2024), row by row.

use infr_graph::{DeltaSpec, HeadMap, Node};

use super::Context;
use crate::par::for_parts;
use crate::state::Slots;

/// One sequence's rows.
pub(crate) struct Rows<'a> {
    pub(crate) q: &'a [f32],
    pub(crate) k: &'a [f32],
    pub(crate) v: &'a [f32],
    pub(crate) g: &'a [f32],
    pub(crate) beta: &'a [f32],
    pub(crate) n_rows: usize,
}

/// Computes the rows of one head: the state of the head and its outputs `[row][value_dim]`.
pub(crate) type HeadRule = fn(&DeltaSpec, &Rows<'_>, usize, (&mut [f32], &mut [f32]));

/// Decay, read, write, output: for every row of every sequence and every value head.
pub(crate) fn delta_net(
    cx: &Context<'_>,
    node: &Node,
    (spec, rule): (&DeltaSpec, HeadRule),
    (slots, out): (&mut Slots, &mut [f32]),
) {
    let (v_heads, dv) = (spec.v_heads as usize, spec.value_dim as usize);
    let head_len = spec.key_dim as usize * dv;
    for seq in &cx.step.batch.seqs {
        let rows = seq.rows.start as usize..seq.rows.end as usize;
        if rows.is_empty() {
            continue;
        }
        let of = |index: usize| {
            let width = cx.width(node, index);
            &cx.input(node, index)[rows.start * width..rows.end * width]
        };
        let n_rows = rows.len();
        let rows_in = Rows { q: of(0), k: of(1), v: of(2), g: of(3), beta: of(4), n_rows };
        // Heads are independent: each thread takes a head's state and gives that head's outputs.
        let mut outputs = vec![0.0; v_heads * n_rows * dv];
        let heads = slots.block(seq.slot).chunks_mut(head_len).zip(outputs.chunks_mut(n_rows * dv));
        let mut work: Vec<_> = heads.collect();
        for_parts(cx.pool, &mut work, 1, |head, work| {
            let (state, out) = &mut work[0];
            rule(spec, &rows_in, head, (state, out));
        });
        for (head, head_out) in outputs.chunks(n_rows * dv).enumerate() {
            for (row, values) in rows.clone().zip(head_out.chunks(dv)) {
                out[(row * v_heads + head) * dv..][..dv].copy_from_slice(values);
            }
        }
    }
}

/// Key head of a value head.
pub(crate) fn key_head(spec: &DeltaSpec, head: usize) -> usize {
    match spec.map {
        HeadMap::Modulo => head % spec.k_heads as usize,
        HeadMap::Divide => head / (spec.v_heads / spec.k_heads) as usize,
    }
}

/// The rule for one head in `f64`, its state kept in `f32`.
pub(crate) fn delta_head(
    spec: &DeltaSpec,
    rows: &Rows<'_>,
    head: usize,
    (s, out): (&mut [f32], &mut [f32]),
) {
    let (k_heads, v_heads) = (spec.k_heads as usize, spec.v_heads as usize);
    let (dk, dv) = (spec.key_dim as usize, spec.value_dim as usize);
    let k_head = key_head(spec, head);
    let scale = 1.0 / (dk as f64).sqrt();
    let mut sums = vec![0.0f64; dv];
    for t in 0..rows.n_rows {
        let q = &rows.q[(t * k_heads + k_head) * dk..][..dk];
        let k = &rows.k[(t * k_heads + k_head) * dk..][..dk];
        let v = &rows.v[(t * v_heads + head) * dv..][..dv];
        let decay = f64::from(rows.g[t * v_heads + head]).exp();
        let beta = f64::from(rows.beta[t * v_heads + head]);
        s.iter_mut().for_each(|s| *s = (f64::from(*s) * decay) as f32);
        read(s, k, &mut sums);
        for (i, row) in s.chunks_mut(dv).enumerate() {
            for (j, s) in row.iter_mut().enumerate() {
                let change = beta * (f64::from(v[j]) - sums[j]);
                *s = (f64::from(*s) + f64::from(k[i]) * change) as f32;
            }
        }
        read(s, q, &mut sums);
        let out = &mut out[t * dv..][..dv];
        out.iter_mut().zip(&sums).for_each(|(out, sum)| *out = (sum * scale) as f32);
    }
}

/// `sums[j] = Σ_i S[i, j]·x[i]`.
fn read(s: &[f32], x: &[f32], sums: &mut [f64]) {
    sums.fill(0.0);
    for (row, x) in s.chunks(sums.len()).zip(x) {
        sums.iter_mut().zip(row).for_each(|(sum, s)| *sum += f64::from(*s) * f64::from(*x));
    }
}
