//! What the backends' tests share: op cases, tiny models, tolerances, laws of execution.
//!
//! A dev-dependency only. A backend's `tests/ops.rs` is one line per configuration:
//! [`conformance!`] for every op, [`laws!`] for whole programs.
//!
//! Invariants:
//! - All data is drawn from seeds, so a failure repeats.
//! - The expected values come from `infr-cpu`'s reference, never from the backend under test.
//!
//! Reading order: [`maker`] (one-op programs), [`cases`], [`ops`] (the comparison), [`tolerance`];
//! then [`subject`] (whole programs), [`driver`] (how an engine runs them), [`laws`], [`tiny`]
//! (models of every family).

pub mod blocks;
pub mod cases;
pub mod driver;
pub mod laws;
pub mod maker;
pub mod ops;
pub mod rng;
pub mod subject;
pub mod tiny;
pub mod tolerance;

pub use infr_backend::Backend;
pub use infr_tensor::DType;
pub use maker::{Case, Maker};
pub use rng::Rng;
pub use subject::Subject;
pub use tolerance::Tolerance;
