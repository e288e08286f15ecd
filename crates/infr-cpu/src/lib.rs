//! The processor as a backend: the reference that every backend is compared with, and SIMD kernels.
//!
//! Level 3: depends on `infr-backend`, `infr-graph` and `infr-tensor`.
//!
//! Invariants:
//! - `ops/` is the definition of every op, in plain loops without unsafe code, and calls no rewrite pass.
//! - A batch is checked against the contract of the seam before anything is read or written.
//! - A result does not depend on the number of threads.
//!
//! Reading order: [`backend`], [`executor`], `plan` (a graph made ready), `ops` (the reference), `state`
//! (pages and slots), `outputs`; then `kernels` (what replaces the reference's ops), [`fast`] and
//! [`threads`].

pub mod backend;
pub mod executor;
pub mod fast;
pub mod threads;

mod arena;
mod device;
mod kernels;
mod ops;
mod outputs;
mod par;
mod plan;
mod profile;
mod state;
mod weights;

pub use backend::{CpuBackend, CpuOptions};
pub use executor::CpuExecutor;
pub use fast::SimdLevel;
pub use profile::OpTime;
