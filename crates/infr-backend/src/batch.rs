//! A step's input: a ragged batch of rows over paged caches and slots.

use std::ops::Range;
use std::sync::Arc;

use crate::sample::SampleParams;

/// Index of a sequence's fixed device memory: recurrent states and the last sampled token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(pub u32);

/// Physical page of each logical page of one sequence in one cache group.
///
/// Entries of pages that no row of the batch can see may hold [`PageTable::NONE`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PageTable(pub Vec<u32>);

impl PageTable {
    /// A logical page that has no physical one.
    pub const NONE: u32 = u32::MAX;
}

/// The token of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenIn {
    /// A known id.
    Id(u32),
    /// The token sampled last in this slot, possibly by a step still in flight.
    LastOf(Slot),
    /// A row of the batch's carried rows in place of an embedding.
    Carried(u32),
}

/// What a row gives back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Want {
    /// Nothing: a prefill row.
    #[default]
    Nothing,
    /// The sampled token and its log-probability.
    Token,
    /// The sampled token and the `top` most likely ones with log-probabilities.
    Logprobs {
        /// How many.
        top: u8,
    },
    /// All logits (the caller samples).
    Logits,
    /// The hidden row after the final norm.
    Hidden,
}

/// Cache rows `lo..hi` (logical indices of the sequence) that a row sees in one cache group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Visible {
    /// First visible row.
    pub lo: u32,
    /// One behind the last visible row.
    pub hi: u32,
}

/// One visible range per cache group, in the order of `Program::cache_groups`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GroupRanges {
    len: u8,
    ranges: [Visible; GroupRanges::MAX],
}

impl GroupRanges {
    /// The most cache groups that a program may have.
    pub const MAX: usize = 4;

    /// The ranges in group order; at most [`GroupRanges::MAX`].
    pub fn new(ranges: &[Visible]) -> GroupRanges {
        let mut out = GroupRanges::default();
        for &range in ranges.iter().take(GroupRanges::MAX) {
            out.ranges[usize::from(out.len)] = range;
            out.len += 1;
        }
        out
    }

    /// The ranges in group order.
    pub fn as_slice(&self) -> &[Visible] {
        &self.ranges[..usize::from(self.len)]
    }
}

/// A bit per token: set means allowed.
pub type TokenMask = Arc<Vec<u32>>;

/// One token of one sequence.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Its token.
    pub token: TokenIn,
    /// Its position (for rotary embeddings and position scales).
    pub position: u32,
    /// Index into [`Batch::seqs`].
    pub seq: u16,
    /// Logical cache index where its keys and values are written, `None` to write nothing.
    pub write: Option<u32>,
    /// What it sees, per cache group.
    pub visible: GroupRanges,
    /// What it gives back.
    pub output: Want,
    /// Tokens allowed for its sample.
    pub mask: Option<TokenMask>,
}

/// The rows of one sequence in a batch.
#[derive(Debug, Clone, PartialEq)]
pub struct SeqRows {
    /// The sequence's slot.
    pub slot: Slot,
    /// Its rows in [`Batch::rows`], consecutive.
    pub rows: Range<u32>,
    /// Page tables, one per cache group.
    pub pages: Vec<Arc<PageTable>>,
    /// How its tokens are drawn.
    pub sample: SampleParams,
}

/// Rows of `f32` that enter or leave a step through host memory.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HostRows {
    /// Elements per row.
    pub width: u32,
    /// Rows one after another.
    pub data: Vec<f32>,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Batch {
    /// All rows, grouped by sequence.
    pub rows: Vec<Row>,
    /// The sequences.
    pub seqs: Vec<SeqRows>,
    /// Carried values, indexed by the graph's `BatchField::Carried`.
    pub carried: Vec<HostRows>,
}

impl Batch {
    /// Indices of the rows that give something back, ascending.
    pub fn out_rows(&self) -> Vec<u32> {
        let wanted = |(_, row): &(usize, &Row)| row.output != Want::Nothing;
        self.rows.iter().enumerate().filter(wanted).map(|(i, _)| i as u32).collect()
    }
}
