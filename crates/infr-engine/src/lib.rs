//! The engine: token requests in, token events out.
//!
//! Level 4: depends on `infr-backend`, `infr-models`, `infr-gguf`, `infr-graph` and `infr-tensor`.
//! It knows tokens, not text, and names no backend and no device feature. One thread owns the
//! executor; everything else talks to it through a queue and one event channel per request.
//!
//! Invariants:
//! - A page is written by one sequence only and is immutable once another one can see it.
//! - A cached page is found by the exact tokens that lead to it, never by a hash alone.
//! - Every stream ends with `Finished` or `Failed`, whatever happens to the engine's thread.
//! - With [`Reserve::Full`] a sequence that started never lacks a page.
//!
//! Reading order: [`request`], [`event`], [`engine`], then `step`, `scheduler`, `sequence`, `driver`,
//! `batcher`, `cache`, `pages`, `prefix`, `slots`, and [`placement`]. [`null`] is an executor
//! without a model.

mod batcher;
mod cache;
mod driver;
pub mod engine;
mod error;
pub mod event;
mod host_sample;
mod load;
pub mod null;
mod pages;
pub mod placement;
mod prefix;
pub mod request;
mod scheduler;
mod sequence;
mod slots;
pub mod stats;
mod step;

pub use engine::{Engine, EngineOptions, EngineSource, Reserve, Shutdown};
pub use error::EngineError;
pub use event::{Event, EventStream, Finish, ReuseStop, Timings, TokenOut, Usage};
pub use placement::{Limits, Plan, PlanError};
pub use request::{Request, TokenConstraint, Wanted};
pub use stats::{Health, Stats};
