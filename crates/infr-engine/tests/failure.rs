//! Devices that fail.

#![allow(clippy::unwrap_used)] // Helpers of tests are tests.

mod common;

use std::sync::Arc;

use common::{VOCAB, finish, options, plain, program, text};
use infr_backend::BackendError;
use infr_engine::null::{Faults, NoWeights, NullBackend, NullExecutor};
use infr_engine::{
    Engine, EngineError, EngineOptions, EngineSource, Finish, Health, Limits, Plan, PlanError,
    Request, Shutdown,
};
use infr_graph::Reach;

fn start(faults: Faults) -> Engine {
    let source = EngineSource {
        backend: Arc::new(NullBackend::new(VOCAB, None, faults)),
        program: program(&[Reach::Full], false),
        weights: Arc::new(NoWeights),
        vocab: VOCAB,
        context: 512,
        causal: true,
        diffusion: None,
    };
    Engine::start(source, options()).unwrap()
}

#[test]
fn a_lost_device_is_opened_again_and_requests_go_on() {
    for lose_at in 0..12 {
        let engine = start(Faults { lose_at: Some(lose_at), ..Faults::default() });
        let requests = || (0..3).map(|i| Request::new(text(i, 20), 15));
        let streams: Vec<_> = requests().map(|r| engine.submit(r)).collect();
        for (stream, request) in streams.into_iter().zip(requests()) {
            let outcome = finish(stream);
            assert_eq!(outcome.finish, Some(Finish::Length));
            assert_eq!(outcome.tokens, plain().alone(request).tokens);
        }
        let stats = engine.shutdown(Shutdown::Drain);
        assert_eq!((stats.device_losses, stats.health), (1, Health::Ok));
    }
}

#[test]
fn without_a_source_a_lost_device_ends_the_service_and_says_so() {
    let program = program(&[Reach::Full], false);
    let limits = Limits { memory: None, context: 256, causal: true, block: 1 };
    let plan = Plan::new(&program, &options(), limits).unwrap();
    let executor = NullExecutor::new(&program, &plan.placement, VOCAB)
        .with_faults(Faults { lose_at: Some(3), ..Faults::default() });
    let engine =
        Engine::from_executor(Box::new(executor), program, plan, VOCAB, options()).unwrap();
    for _ in 0..2 {
        let error = finish(engine.submit(Request::new(text(1, 20), 15))).error.unwrap();
        let EngineError::Backend(error) = error else { panic!("{error}") };
        assert!(matches!(*error, BackendError::DeviceLost));
    }
    assert!(matches!(engine.stats().health, Health::Down(_)));
}

#[test]
fn a_refused_step_fails_its_requests_only() {
    let engine = start(Faults { refuse_at: Some(2), ..Faults::default() });
    let outcome = finish(engine.submit(Request::new(text(1, 20), 15)));
    assert!(matches!(outcome.error, Some(EngineError::Backend(_))));
    let again = finish(engine.submit(Request::new(text(1, 20), 15)));
    assert_eq!(again.tokens, plain().alone(Request::new(text(1, 20), 15)).tokens);
    let stats = engine.shutdown(Shutdown::Drain);
    assert_eq!((stats.failed, stats.finished, stats.device_losses), (1, 1, 0));
}

#[test]
fn a_dead_thread_ends_streams() {
    let mut rig = plain();
    rig.script = Some(Arc::new(|_| panic!("as told")));
    let engine = rig.start();
    let outcome = finish(engine.submit(Request::new(vec![1], 5)));
    assert!(matches!(outcome.error, Some(EngineError::Stopped)));
    // The thread marks its end while it unwinds.
    let error = loop {
        match finish(engine.submit(Request::new(vec![1], 5))).error {
            Some(error) => break error,
            None => continue,
        }
    };
    assert!(matches!(error, EngineError::Stopped));
}

#[test]
fn a_plan_that_does_not_fit_names_what_is_missing() {
    let program = program(&[Reach::Full, Reach::Window(8)], true);
    let limits = Limits { memory: Some(10_000), context: 4096, causal: true, block: 1 };
    let error = Plan::new(&program, &options(), limits).unwrap_err();
    let PlanError::TooSmall { needed, budget, short, context } = error else { panic!("{error}") };
    assert_eq!((budget, context), (10_000, 256));
    assert_eq!(short, needed - budget);
    // Without a wanted context, the largest that fits is found.
    let any = EngineOptions { context: None, parallel: 1, ..options() };
    let limits = Limits { memory: Some(100_000), ..limits };
    let plan = Plan::new(&program, &any, limits).unwrap();
    assert!(plan.bytes() <= 100_000 && plan.context.is_multiple_of(4));
    let more = EngineOptions { context: Some(plan.context + 4), ..any };
    assert!(Plan::new(&program, &more, limits).is_err());
}

#[test]
fn a_plan_prints_as_a_table() {
    let program = program(&[Reach::Full, Reach::Window(8)], true);
    let limits = Limits { memory: Some(1 << 24), context: 4096, causal: true, block: 1 };
    let plan = Plan::new(&program, &options(), limits).unwrap();
    // One key and one value row of 8 floats each, 256 rows, 4 sequences; then 4 sequences of
    // (7 + 16) / 4 + 2 pages and as many again.
    assert_eq!(plan.placement.pages, [256, 56]);
    let wanted = "\
weights           0 tensors                                      0.0 MiB
cache 0           256 pages of 4 rows, 1 layers, full            0.1 MiB
cache 1           56 pages of 4 rows, 1 layers, window 8         0.0 MiB
recurrent states  4 slots of 16 bytes                            0.0 MiB
scratch           estimate for 16 rows, 16 with outputs          0.0 MiB
all               of 16.0 MiB                                    0.1 MiB
snapshots         in host memory                                 0.8 MiB
context 256 tokens, 4 at once";
    assert_eq!(plan.to_string(), wanted);
}

#[test]
fn options_that_cannot_work_are_named() {
    let program = program(&[Reach::Full], false);
    let limits = Limits { memory: None, context: 64, causal: true, block: 1 };
    let plan = |options| Plan::new(&program, &options, limits);
    let error = plan(EngineOptions { page_len: 0, ..options() }).unwrap_err();
    assert_eq!(error, PlanError::Option("page_len must be at least 1".to_owned()));
    assert!(plan(EngineOptions { parallel: 17, ..options() }).is_err());
}
