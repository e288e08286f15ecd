//! Cache writes.

use infr_graph::Node;

use super::Context;
use crate::state::Paged;

/// Stores the key and value of every row that names a write index.
pub(crate) fn kv_write(cx: &Context<'_>, node: &Node, cache: &mut Paged) {
    let (key_width, value_width) = (cache.key_width, cache.value_width);
    let keys = cx.input(node, 0);
    let values = if value_width == 0 { &[][..] } else { cx.input(node, 1) };
    for (row_idx, row) in cx.step.batch.rows.iter().enumerate() {
        let Some(at) = row.write else { continue };
        let seq = &cx.step.batch.seqs[usize::from(row.seq)];
        let physical = cache.row(&seq.pages[cache.group], at as usize);
        let key = &keys[row_idx * key_width..][..key_width];
        let value = values.get(row_idx * value_width..(row_idx + 1) * value_width).unwrap_or(&[]);
        cache.write(physical, key, value);
    }
}
