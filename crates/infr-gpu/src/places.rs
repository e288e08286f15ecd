//! Where a program's weights and states lie: device addresses and geometry, without the buffers.
//!
//! Lowering stands on these alone, so a program can be lowered before anything is allocated.

use std::ops::Range;

use infr_tensor::DType;

/// A weight in the forms that its readers need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct WeightPlace {
    /// Blocks for products and row gathers, with their type.
    pub(crate) matrix: Option<(u64, DType)>,
    /// Values as `f32`.
    pub(crate) vector: Option<u64>,
}

/// The pools of one layer's cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PoolPlace {
    /// Cache group.
    pub(crate) group: usize,
    pub(crate) keys: Range<u64>,
    pub(crate) values: Range<u64>,
    /// Elements of a row.
    pub(crate) key_width: u32,
    pub(crate) value_width: u32,
    /// The contract's number of the element type.
    pub(crate) kv: u32,
}

/// The page tables of one cache group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TablePlace {
    pub(crate) address: u64,
    /// Entries per slot, a power of two.
    pub(crate) stride: u32,
}

/// All states.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct StatePlaces {
    /// Per state of the program.
    pub(crate) pools: Vec<Option<PoolPlace>>,
    /// Per cache group.
    pub(crate) tables: Vec<TablePlace>,
    /// Last sampled token of each slot.
    pub(crate) last: Range<u64>,
    /// log2 of the rows per page.
    pub(crate) page_shift: u32,
}
