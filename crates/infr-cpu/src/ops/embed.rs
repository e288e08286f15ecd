//! Token embedding: one decoded row of the table per row of the batch.

use infr_backend::TokenIn;
use infr_graph::Node;

use super::Context;
use crate::par::for_parts;

/// A row that carries an embedding takes it in place of a table row of the same width; in tables of
/// another width it counts as token 0.
pub(crate) fn embed(cx: &Context<'_>, node: &Node, out: &mut [f32]) {
    let table = cx.weight(node, 0);
    let ids = cx.ids(node, 0);
    let width = table.row_len();
    for_parts(cx.pool, out, width, |row_idx, out| {
        if let TokenIn::Carried(index) = cx.step.batch.rows[row_idx].token {
            let carried = &cx.step.batch.carried[0];
            if carried.width as usize == width {
                out.copy_from_slice(&carried.data[index as usize * width..][..width]);
                return;
            }
        }
        table.decode_row(ids[row_idx] as usize, out);
    });
}
