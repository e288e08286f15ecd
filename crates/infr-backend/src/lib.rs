//! The seam between the engine and the devices.
//!
//! Level 2: depends on `infr-graph` and `infr-tensor`. The engine sees only these types; a backend
//! implements [`Backend`] and [`Executor`]. No device buffer crosses the seam.
//!
//! The contract in prose:
//! - A [`Program`](infr_graph::Program) is opened once on a [`Placement`]; the executor owns weights,
//!   page pools and slots from then on.
//! - [`Executor::submit`] takes a whole [`Batch`] and returns at once where the device allows it;
//!   [`Executor::collect`] gives the results in submission order. Up to two tickets may be open.
//! - A row names the token (an id, or the last one sampled in its slot), its position, where its
//!   keys and values go and what it may see. Rows of one sequence are consecutive and ascending.
//! - State operations are ordered after every step submitted before them.
//! - A slot is zero after [`StateOp::Clear`]; pages hold garbage until written.
//!
//! Reading order: [`batch`], [`contract`], [`output`], [`backend`], [`executor`], [`placement`], [`sample`].

pub mod backend;
pub mod batch;
pub mod contract;
pub mod error;
pub mod executor;
pub mod output;
pub mod placement;
pub mod sample;

pub use backend::{
    Backend, DeviceInfo, DeviceKind, EvalCase, EvalResult, HostTensor, WeightBytes, WeightSource,
};
pub use batch::{
    Batch, GroupRanges, HostRows, PageTable, Row, SeqRows, Slot, TokenIn, TokenMask, Visible, Want,
};
pub use contract::Contract;
pub use error::BackendError;
pub use executor::{Executor, MemoryReport, StateOp, Ticket};
pub use output::{RowOut, StepOutput};
pub use placement::{ExpertPlacement, Placement};
pub use sample::SampleParams;
