//! Writes what drivers ask for as one batch.

use std::sync::Arc;

use infr_backend::{Batch, GroupRanges, HostRows, Row, SeqRows, Visible, Want};
use infr_graph::Reach;

use crate::driver::{Sees, Work, WorkRow, device_params};
use crate::pages::first_visible;
use crate::sequence::Sequence;

/// Adds the rows of one sequence; gives the positions of those that give something back.
pub(crate) fn add(batch: &mut Batch, reaches: &[Reach], seq: &Sequence, work: Work) -> Vec<u32> {
    let first = batch.rows.len() as u32;
    let index = batch.seqs.len() as u16;
    let mut outputs = Vec::new();
    for row in work.rows {
        if row.output != Want::Nothing {
            outputs.push(row.position);
        }
        batch.rows.push(Row {
            token: row.token,
            position: row.position,
            seq: index,
            write: Some(row.position),
            visible: visible(reaches, &row),
            output: row.output,
            mask: row.mask,
        });
    }
    batch.seqs.push(SeqRows {
        slot: seq.slot,
        rows: first..batch.rows.len() as u32,
        pages: seq.pages.tables.iter().map(Arc::clone).collect(),
        sample: work.sample.unwrap_or_else(|| device_params(&seq.job.request.sample)),
    });
    for (index, rows) in work.carried.into_iter().enumerate() {
        if batch.carried.len() <= index {
            batch.carried.push(HostRows { width: rows.width, data: Vec::new() });
        }
        batch.carried[index].data.extend(rows.data);
    }
    outputs
}

/// What a row sees in each group.
fn visible(reaches: &[Reach], row: &WorkRow) -> GroupRanges {
    let mut ranges = [Visible::default(); GroupRanges::MAX];
    let count = reaches.len().min(GroupRanges::MAX);
    for (range, &reach) in ranges.iter_mut().zip(reaches) {
        *range = match row.sees {
            Sees::Causal => {
                Visible { lo: first_visible(reach, row.position), hi: row.position + 1 }
            }
            Sees::Block { anchor, end } => {
                let hi = match reach {
                    Reach::Symmetric(n) => end.min(row.position.saturating_add(n / 2 + 1)),
                    Reach::Full | Reach::Window(_) | Reach::Chunk(_) => end,
                };
                Visible { lo: first_visible(reach, anchor), hi }
            }
        };
    }
    GroupRanges::new(&ranges[..count])
}

#[cfg(test)]
mod tests {
    use infr_backend::TokenIn;

    use super::*;

    #[test]
    fn ranges_follow_reach_and_block() {
        let row = |sees| WorkRow {
            token: TokenIn::Id(0),
            position: 9,
            sees,
            output: Want::Nothing,
            mask: None,
        };
        let reaches = [Reach::Full, Reach::Window(4), Reach::Chunk(8), Reach::Symmetric(4)];
        let pairs = |sees| {
            let ranges = visible(&reaches, &row(sees));
            ranges.as_slice().iter().map(|r| (r.lo, r.hi)).collect::<Vec<_>>()
        };
        assert_eq!(pairs(Sees::Causal), [(0, 10), (6, 10), (8, 10), (7, 10)]);
        let block = Sees::Block { anchor: 7, end: 20 };
        assert_eq!(pairs(block), [(0, 20), (4, 20), (0, 20), (5, 12)]);
    }
}
