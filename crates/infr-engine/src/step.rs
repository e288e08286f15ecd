//! The engine's thread.
use std::sync::Arc;

use infr_backend::Executor;
use infr_graph::Program;

use crate::engine::{EngineOptions, EngineSource, Shared};
use crate::placement::Plan;

/// What the thread starts with.
pub(crate) struct Setup {
    pub(crate) executor: Box<dyn Executor>,
    pub(crate) program: Arc<Program>,
    pub(crate) plan: Plan,
    pub(crate) options: EngineOptions,
    pub(crate) source: Option<EngineSource>,
    pub(crate) vocab: u32,
}

pub(crate) fn run(_setup: Setup, shared: &Arc<Shared>) {
    shared.inbox().ended = true;
}
