//! What a program depends on beside its file.

use infr_tensor::DType;

/// Choices made when a program is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuildOptions {
    /// Element type of cached keys.
    pub cache_k: DType,
    /// Element type of cached values; must equal `cache_k`.
    pub cache_v: DType,
    /// Positions that a sequence may have. LongRoPE models choose their factors by it.
    pub context: u32,
    /// Build the `Draft` graph and its cache when the file has a multi-token prediction block.
    pub draft: bool,
}

impl Default for BuildOptions {
    fn default() -> BuildOptions {
        BuildOptions { cache_k: DType::F16, cache_v: DType::F16, context: 4096, draft: false }
    }
}
