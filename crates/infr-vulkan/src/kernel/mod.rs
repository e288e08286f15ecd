//! Kernels: the table that the build script made, pipelines, and their cache on disk.

mod cache;
mod pipelines;

pub(crate) use pipelines::Pipelines;

/// A compiled variant.
pub(crate) struct Module {
    /// Name for messages.
    pub(crate) name: &'static str,
    /// SPIR-V.
    pub(crate) code: &'static [u8],
}

include!(concat!(env!("OUT_DIR"), "/generated.rs"));

/// What exists.
pub(crate) const KERNELS: &str = include_str!("../../kernels.toml");
/// What is chosen on any device.
pub(crate) const TUNING: &str = include_str!("../../tuning/generic.toml");
