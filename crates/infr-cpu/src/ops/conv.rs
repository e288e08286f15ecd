//! Depthwise causal convolution over the rows of a sequence.

use infr_graph::{ConvSpec, Node};

use super::Context;
use crate::par::for_parts;
use crate::state::Slots;

/// `y[t, c] = Σ_j w[c, j]·u[t − taps + 1 + j, c]`; rows before the batch come from the slot.
pub(crate) fn conv1d(
    cx: &Context<'_>,
    node: &Node,
    spec: ConvSpec,
    (slots, out): (&mut Slots, &mut [f32]),
) {
    let (channels, taps) = (spec.channels as usize, spec.taps as usize);
    let (x, filter) = (cx.input(node, 0), cx.vector(node, 0).unwrap_or(&[]));
    for seq in &cx.step.batch.seqs {
        let rows = seq.rows.start as usize * channels..seq.rows.end as usize * channels;
        if rows.is_empty() {
            continue;
        }
        let history = slots.block(seq.slot);
        // The history and the new rows as one run of rows.
        let run = [&history[..], &x[rows.clone()]].concat();
        for_parts(cx.pool, &mut out[rows], channels, |t, out| {
            for (c, out) in out.iter_mut().enumerate() {
                let term = |j: usize| {
                    f64::from(filter[c * taps + j]) * f64::from(run[(t + j) * channels + c])
                };
                *out = (0..taps).map(term).sum::<f64>() as f32;
            }
        });
        history.copy_from_slice(&run[run.len() - history.len()..]);
    }
}
