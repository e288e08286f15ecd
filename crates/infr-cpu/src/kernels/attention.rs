//! Attention over the paged cache.

use infr_backend::{Batch, Visible};
use infr_graph::{AttnSpec, Node};

use crate::fast::{self, AttentionRows, AttentionSeq, AttentionShape, Interval, KvCache, Runner};
use crate::ops::Context;
use crate::state::{Paged, Pool};

/// What every row of the step sees, per cache group.
#[derive(Debug, Default)]
pub(super) struct VisibleCache {
    groups: Vec<Vec<Interval>>,
}

impl VisibleCache {
    fn entry(&mut self, group: usize, batch: &Batch) -> &[Interval] {
        if self.groups.len() <= group {
            self.groups.resize_with(group + 1, Vec::new);
        }
        let ranges = &mut self.groups[group];
        if ranges.is_empty() {
            ranges.extend(batch.rows.iter().map(|row| {
                let Visible { lo, hi } = row.visible.as_slice()[group];
                Interval { lo, hi }
            }));
        }
        ranges
    }

    /// Forgets the step before.
    pub(super) fn forget(&mut self) {
        self.groups.iter_mut().for_each(Vec::clear);
    }
}

/// [`infr_graph::Op::Attention`].
pub(super) fn attention(
    (cx, run): (&Context<'_>, Runner<'_>),
    node: &Node,
    spec: &AttnSpec,
    visible: &mut VisibleCache,
    (cache, out): (&Paged, &mut [f32]),
) {
    let batch = cx.step.batch;
    let visible = visible.entry(cache.group, batch);
    let seqs: Vec<AttentionSeq<'_>> = batch
        .seqs
        .iter()
        .map(|seq| AttentionSeq {
            rows: seq.rows.start as usize..seq.rows.end as usize,
            pages: &seq.pages[cache.group].0,
        })
        .collect();
    let shape = AttentionShape {
        heads: spec.heads as usize,
        kv_heads: spec.kv_heads as usize,
        key_dim: spec.key_dim as usize,
        value_dim: spec.value_dim as usize,
        scale: spec.scale,
        softcap: spec.softcap,
        sinks: spec.sinks.then(|| cx.vector(node, 0)).flatten(),
    };
    let values = cache.values.as_ref().map(Pool::view);
    let cache = KvCache { keys: cache.keys.view(), values, page_len: cache.page_len };
    let rows = AttentionRows { seqs: &seqs, visible, q: cx.input(node, 0) };
    fast::attention(run, &shape, &cache, &rows, out);
}
