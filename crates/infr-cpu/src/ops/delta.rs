//! The gated delta rule (Yang et al., "Gated Delta Networks", 2024), row by row.

use infr_graph::{DeltaSpec, HeadMap, Node};

use super::Context;
use crate::par::for_parts;
use crate::state::Slots;

/// One sequence's rows.
struct Rows<'a> {
    q: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
    g: &'a [f32],
    beta: &'a [f32],
    n_rows: usize,
}

/// Decay, read, write, output: for every row of every sequence and every value head.
pub(crate) fn delta_net(
    cx: &Context<'_>,
    node: &Node,
    spec: &DeltaSpec,
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
        // Heads are independent: each thread takes a head's state and writes that head's outputs.
        let mut work: Vec<(Vec<f32>, Vec<f32>)> = slots
            .block(seq.slot)
            .chunks(head_len)
            .map(|state| (state.to_vec(), vec![0.0; n_rows * dv]))
            .collect();
        for_parts(cx.pool, &mut work, 1, |head, work| {
            let (state, out) = &mut work[0];
            delta_head(spec, &rows_in, head, (state, out));
        });
        for (head, (state, head_out)) in work.iter().enumerate() {
            slots.block(seq.slot)[head * head_len..][..head_len].copy_from_slice(state);
            for (row, values) in rows.clone().zip(head_out.chunks(dv)) {
                out[(row * v_heads + head) * dv..][..dv].copy_from_slice(values);
            }
        }
    }
}

fn delta_head(spec: &DeltaSpec, rows: &Rows<'_>, head: usize, (s, out): (&mut [f32], &mut [f32])) {
    let (k_heads, v_heads) = (spec.k_heads as usize, spec.v_heads as usize);
    let (dk, dv) = (spec.key_dim as usize, spec.value_dim as usize);
    let k_head = match spec.map {
        HeadMap::Modulo => head % k_heads,
        HeadMap::Divide => head / (v_heads / k_heads),
    };
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
