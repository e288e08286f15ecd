//! Engines on null executors, and what a stream gave.

#![allow(dead_code)] // Each test file uses its own part.

use std::sync::Arc;
use std::time::Duration;

use infr_engine::null::{NullExecutor, Script};
use infr_engine::{
    Engine, EngineError, EngineOptions, Event, EventStream, Finish, Limits, Plan, Request,
    ReuseStop, TokenOut, Usage,
};
use infr_graph::{Program, Reach, StateDecl, StateKind};
use infr_tensor::DType;

pub(crate) const VOCAB: u32 = 64;

/// A program that is nothing but its caches.
pub(crate) fn program(reaches: &[Reach], recurrent: bool) -> Arc<Program> {
    let paged = |(i, &reach): (usize, &Reach)| StateDecl {
        layer: i as u16,
        kind: StateKind::Paged { key_width: 8, value_width: 8, dtype: DType::F32, reach },
    };
    let mut states: Vec<StateDecl> = reaches.iter().enumerate().map(paged).collect();
    if recurrent {
        states.push(StateDecl { layer: 9, kind: StateKind::Slot { width: 4 } });
    }
    Arc::new(Program { states, ..Program::default() })
}

pub(crate) fn options() -> EngineOptions {
    EngineOptions {
        context: Some(256),
        parallel: 4,
        ubatch: 16,
        page_len: 4,
        ..EngineOptions::default()
    }
}

#[derive(Clone)]
pub(crate) struct Rig {
    pub(crate) program: Arc<Program>,
    pub(crate) options: EngineOptions,
    pub(crate) lazy: bool,
    pub(crate) script: Option<Script>,
    pub(crate) causal: bool,
}

impl Rig {
    pub(crate) fn new(reaches: &[Reach], recurrent: bool, options: EngineOptions) -> Rig {
        let program = program(reaches, recurrent);
        Rig { program, options, lazy: false, script: None, causal: true }
    }

    pub(crate) fn start(&self) -> Engine {
        let limits = Limits { memory: None, context: 4096, causal: self.causal, block: 1 };
        let plan = Plan::new(&self.program, &self.options, limits).unwrap();
        let executor = match &self.script {
            None => NullExecutor::new(&self.program, &plan.placement, VOCAB),
            Some(script) => {
                let script = Arc::clone(script);
                NullExecutor::scripted(&self.program, &plan.placement, VOCAB, script)
            }
        };
        let executor = if self.lazy { executor.lazy() } else { executor };
        let program = Arc::clone(&self.program);
        Engine::from_executor(Box::new(executor), program, plan, VOCAB, self.options.clone())
            .unwrap()
    }

    /// What a request gives alone, in one-row steps, without cache and without running ahead.
    pub(crate) fn alone(&self, request: Request) -> Outcome {
        let options = EngineOptions {
            parallel: 1,
            ubatch: 1,
            page_len: 256,
            steps_in_flight: 1,
            prefix_cache: false,
            cache_rows: None,
            ..self.options.clone()
        };
        let engine = Rig { options, lazy: false, ..self.clone() }.start();
        finish(engine.submit(request))
    }
}

/// Full attention on pages of 4.
pub(crate) fn plain() -> Rig {
    Rig::new(&[Reach::Full], false, options())
}

/// All that a stream gave.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) tokens: Vec<u32>,
    pub(crate) outs: Vec<TokenOut>,
    pub(crate) cached: u32,
    pub(crate) reuse: ReuseStop,
    pub(crate) prefill: Vec<u32>,
    pub(crate) rows: Vec<(u32, Vec<f32>)>,
    pub(crate) finish: Option<Finish>,
    pub(crate) usage: Usage,
    pub(crate) error: Option<EngineError>,
}

/// Receives until the end; panics when nothing comes for long.
pub(crate) fn finish(mut stream: EventStream) -> Outcome {
    let mut outcome = Outcome::default();
    while let Some(event) = stream.recv_timeout(Duration::from_secs(20)).expect("an event") {
        assert!(outcome.finish.is_none() && outcome.error.is_none(), "an event after the last");
        match event {
            Event::Queued { .. } | Event::Draft { .. } => {}
            Event::Started { cached, reuse } => (outcome.cached, outcome.reuse) = (cached, reuse),
            Event::Prefill { done, .. } => outcome.prefill.push(done),
            Event::Tokens(tokens) => {
                outcome.tokens.extend(tokens.iter().map(|t| t.id));
                outcome.outs.extend(tokens);
            }
            Event::Logits { first, rows } | Event::Hidden { first, rows } => {
                for (i, row) in rows.data.chunks(rows.width as usize).enumerate() {
                    outcome.rows.push((first + i as u32, row.to_vec()));
                }
            }
            Event::Finished { reason, usage } => {
                (outcome.finish, outcome.usage) = (Some(reason), usage);
            }
            Event::Failed(error) => outcome.error = Some(error),
        }
    }
    assert!(outcome.finish.is_some() || outcome.error.is_some(), "no last event");
    outcome
}

/// A request with tokens that look like text: `seed` names it.
pub(crate) fn text(seed: u32, len: u32) -> Vec<u32> {
    (0..len)
        .map(|i| {
            seed.wrapping_mul(31).wrapping_add(i.wrapping_mul(i).wrapping_mul(7)).wrapping_add(i)
                % VOCAB
        })
        .collect()
}
