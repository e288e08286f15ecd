//! What the backends' tests share: op cases, tiny models, tolerances, laws of execution.
//!
//! A dev-dependency only. A backend's `tests/ops.rs` is one line per configuration:
//! [`conformance!`] for every op, `laws!` for whole programs.
//!
//! Invariants:
//! - All data is drawn from seeds, so a failure repeats.
//! - The expected values come from `infr-cpu`'s reference, never from the backend under test.
//!
//! Reading order: [`maker`] (one-op programs), [`cases`], [`ops`] (the comparison), [`tolerance`].

pub mod blocks;
pub mod cases;
pub mod maker;
pub mod ops;
pub mod rng;
pub mod tolerance;

pub use maker::{Case, Maker};
pub use rng::Rng;
pub use tolerance::Tolerance;
