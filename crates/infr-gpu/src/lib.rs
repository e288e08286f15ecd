//! What the GPU backends share: from a program to lists of dispatches, and from batches to buffers.
//!
//! Level 3: depends on `infr-backend`, `infr-kernels`, `infr-graph` and `infr-tensor`.
//!
//! Invariants:
//! - No GPU API is named here: a list of dispatches is data, and a fake device runs whole models from it.
//! - Nothing is recorded on the decode path: a plan's recording is made once per shape class and replayed;
//!   what changes from step to step goes through the batch buffers.
//! - Kernels get addresses in push constants; `KERNELS.md` is their contract.
//!
//! Reading order: [`api`], [`dispatch`], `KERNELS.md`.

pub mod api;
pub mod dispatch;

pub use api::{Api, Copy, MemoryKind};
pub use dispatch::{Dispatch, DispatchList, Grid, MAX_PUSH, Push};
