//! The SIMD side of the processor backend: pure functions over slices, chosen at run time by [`SimdLevel`].
//!
//! Knows no graph and no model. `unsafe` of this crate lives here: in the vector interface, in kernels over
//! raw pointers whose public wrappers check all sizes, and in the pool's job slot.
//! Reading order: [`simd`], [`acts`], [`pack`], [`linear`].

pub mod acts;
pub mod attention;
pub mod linear;
pub(crate) mod math;
pub mod pack;
pub(crate) mod pool;
pub mod rows;
pub mod simd;
#[cfg(test)]
mod testing;

pub use acts::{Acts, ActsKind, RowChoice};
pub use attention::{
    AttentionRows, AttentionSeq, AttentionShape, Interval, KvCache, KvData, attention,
};
pub use linear::{Output, acts_kind_of, linear, linear_unpacked};
pub use pack::{PackError, PackedWeight, WeightArena, WeightView};
pub use simd::SimdLevel;

use crate::threads::ThreadPool;

/// Threads and instruction set of a computation.
#[derive(Debug, Clone, Copy)]
pub struct Runner<'a> {
    /// Threads that take part.
    pub pool: &'a ThreadPool,
    /// Instruction set; levels that the processor lacks run as scalar code.
    pub level: SimdLevel,
}
