//! The gated delta rule in single precision, two passes over a head's state per row.

use infr_graph::DeltaSpec;

use crate::ops::delta::{Rows, key_head};

/// [`crate::ops::delta::HeadRule`]: decay and read in one pass, write and output in the other.
pub(super) fn head(
    spec: &DeltaSpec,
    rows: &Rows<'_>,
    head: usize,
    (state, out): (&mut [f32], &mut [f32]),
) {
    let (k_heads, v_heads) = (spec.k_heads as usize, spec.v_heads as usize);
    let (dk, dv) = (spec.key_dim as usize, spec.value_dim as usize);
    let k_head = key_head(spec, head);
    let scale = (dk as f32).sqrt().recip();
    let mut change = vec![0.0f32; dv];
    for (t, out) in out.chunks_exact_mut(dv).enumerate() {
        let q = &rows.q[(t * k_heads + k_head) * dk..][..dk];
        let k = &rows.k[(t * k_heads + k_head) * dk..][..dk];
        let v = &rows.v[(t * v_heads + head) * dv..][..dv];
        let decay = rows.g[t * v_heads + head].exp();
        let beta = rows.beta[t * v_heads + head];
        change.fill(0.0);
        for (row, k) in state.chunks_exact_mut(dv).zip(k) {
            for (s, read) in row.iter_mut().zip(&mut change) {
                *s *= decay;
                *read += *s * k;
            }
        }
        change.iter_mut().zip(v).for_each(|(c, v)| *c = beta * (v - *c));
        out.fill(0.0);
        for (row, (k, q)) in state.chunks_exact_mut(dv).zip(k.iter().zip(q)) {
            for ((s, change), out) in row.iter_mut().zip(&change).zip(&mut *out) {
                *s += k * change;
                *out += *s * q;
            }
        }
        out.iter_mut().for_each(|o| *o *= scale);
    }
}
