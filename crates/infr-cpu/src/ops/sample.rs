//! Sampling, by the one definition of the seam.

use infr_backend::Row;
use infr_backend::sample::{apply_mask, draw, edit_logits, uniform};
use infr_graph::Node;

use super::{Context, Step};
use crate::par::for_parts;

/// One token per output row.
pub(crate) fn sample(cx: &Context<'_>, node: &Node, out: &mut [i32]) {
    let (logits, vocab) = (cx.input(node, 0), cx.width(node, 0));
    for (out_idx, out) in out.iter_mut().enumerate() {
        *out = draw_row(&cx.step, out_idx, &logits[out_idx * vocab..][..vocab]) as i32;
    }
}

/// Draws the token of one output row from its logits.
pub(crate) fn draw_row(step: &Step<'_>, out_idx: usize, logits: &[f32]) -> u32 {
    let row: &Row = &step.batch.rows[step.out_rows[out_idx] as usize];
    let params = &step.batch.seqs[usize::from(row.seq)].sample;
    let number = uniform(params.seed, row.position);
    if row.mask.is_none() && params.logit_bias.is_empty() {
        return draw(logits, params, number);
    }
    let mut edited = logits.to_vec();
    if let Some(mask) = &row.mask {
        apply_mask(&mut edited, mask);
    }
    edit_logits(&mut edited, params, &[]);
    draw(&edited, params, number)
}

/// Probabilities of every output row at its sequence's temperature.
pub(crate) fn softmax(cx: &Context<'_>, node: &Node, out: &mut [f32]) {
    let (logits, vocab) = (cx.input(node, 0), cx.width(node, 0));
    for_parts(cx.pool, out, vocab, |out_idx, out| {
        let logits = &logits[out_idx * vocab..][..vocab];
        let temperature = temperature(&cx.step, out_idx);
        let max = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        let power = |logit: &f32| ((f64::from(*logit) - max) / temperature).exp();
        let sum: f64 = logits.iter().map(power).sum();
        for (out, logit) in out.iter_mut().zip(logits) {
            *out = (power(logit) / sum) as f32;
        }
    });
}

/// What divides the logits of an output row.
pub(crate) fn temperature(step: &Step<'_>, out_idx: usize) -> f64 {
    let row = &step.batch.rows[step.out_rows[out_idx] as usize];
    match step.batch.seqs[usize::from(row.seq)].sample.temperature {
        t if t > 0.0 => f64::from(t),
        _ => 1.0,
    }
}

/// Entropy of every row of probabilities, in nats.
pub(crate) fn entropy(cx: &Context<'_>, node: &Node, out: &mut [f32]) {
    let (probabilities, vocab) = (cx.input(node, 0), cx.width(node, 0));
    for_parts(cx.pool, out, 1, |row, out| {
        let row = &probabilities[row * vocab..][..vocab];
        let term = |p: &f32| if *p > 0.0 { f64::from(*p) * f64::from(*p).ln() } else { 0.0 };
        out[0] = -row.iter().map(term).sum::<f64>() as f32;
    });
}
