//! How an executor plans its work.

/// Options of an executor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GpuOptions {
    /// A row's arithmetic depends on its own sequence alone, not on its neighbours in the batch or on the
    /// chunk that it came in.
    pub strict: bool,
    /// Run the rewrite passes; otherwise one kernel per op.
    pub fuse: bool,
    /// Record the plans of small decode batches while loading.
    pub warm: bool,
}

impl Default for GpuOptions {
    fn default() -> GpuOptions {
        GpuOptions { strict: false, fuse: true, warm: true }
    }
}
