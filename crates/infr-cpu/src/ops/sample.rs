//! Sampling, by the one definition of the seam.

use infr_backend::sample::{apply_mask, draw, edit_logits, uniform};
use infr_backend::Row;
use infr_graph::Node;

use super::{Context, Step};

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
