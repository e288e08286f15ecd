//! One file per model family: from a file's metadata to a program of graphs.
//!
//! Level 3: depends on `infr-graph`, `infr-gguf`, `infr-tensor`, and on `infr-backend` for the trait
//! that weights are loaded through. Names no device and no backend.
//!
//! Invariants:
//! - What is particular to a family stands in its file under `families/` and nowhere else; what
//!   several share is a function under `blocks/`.
//! - Every number of a file is checked in `hparams` before it is divided by or multiplied, and every
//!   tensor's shape is compared with the one that the hyper-parameters ask for.
//! - A graph ends with its wanted rows (`GatherOut`), then final norm, head and sampling.
//!
//! Reading order: [`family`], [`registry`], [`options`], then `families/llama.rs` with the blocks it
//! uses, `hparams`, `net` (weights by name), [`weights`], and [`synth`] (random files).

mod blocks;
mod common;
pub mod error;
mod families;
pub mod family;
mod hparams;
mod net;
pub mod options;
mod prelude;
pub mod registry;
mod rope;
mod sampling;
pub mod synth;
pub mod table;
pub mod weights;

pub use error::ModelError;
pub use family::{DecodeStyle, Diffusion, Family, Model, ModelInfo, Pooling, SamplingDefaults};
pub use options::BuildOptions;
pub use registry::{FAMILIES, Loaded, architectures, from_gguf, load};
pub use table::{Need, TableEntry, TensorTable};
pub use weights::GgufWeights;
