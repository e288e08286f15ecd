//! What the GPU backends share: from a program to lists of dispatches, and from batches to buffers.
//!
//! Level 3: depends on `infr-backend`, `infr-kernels`, `infr-graph` and `infr-tensor`.
//!
//! Invariants:
//! - No GPU API is named here: a list of dispatches is data, and a fake device runs whole models from it.
//! - Nothing is recorded on the decode path: a plan's recording is made once per shape class and ring slot
//!   and replayed; what changes from step to step goes through the batch arrays.
//! - Kernels get addresses in push constants; `KERNELS.md` is their contract.
//!
//! Reading order: [`api`] and [`dispatch`] (what a GPU API implements), `KERNELS.md`, [`executor`] (a step),
//! `plan` (optimise, place, lower), `lower` (one file per group of ops), [`barrier`], `batch_buffers`,
//! `states`, `weights`, `outputs`; [`fake`] emulates a device.

pub mod api;
pub mod barrier;
pub mod dispatch;
pub mod eval;
pub mod executor;
pub mod fake;
pub mod options;

mod batch_buffers;
mod lower;
mod outputs;
mod places;
mod plan;
mod rope;
mod states;
mod weights;

pub use api::{Api, Copy, MemoryKind};
pub use dispatch::{Dispatch, DispatchList, Grid, MAX_PUSH, Push};
pub use eval::eval;
pub use executor::{Device, GpuExecutor};
pub use options::GpuOptions;
