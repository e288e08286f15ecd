//! How requests begin and end.

#![allow(clippy::unwrap_used)] // Helpers of tests are tests.

mod common;

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use common::{Rig, VOCAB, finish, options, plain, text};
use infr_engine::null::{Script, Seen};
use infr_engine::{
    Engine, EngineError, EngineOptions, Event, EventStream, Finish, Request, Reserve, Shutdown,
    Wanted,
};
use infr_graph::Reach;

/// Counts up from the last token.
fn counting() -> Rig {
    let next = |seen: &Seen<'_>| (seen.groups[0].last().unwrap() + 1) % VOCAB;
    let script: Script = Arc::new(next);
    Rig { script: Some(script), ..plain() }
}

#[test]
fn an_answer_ends_at_its_length() {
    let outcome = finish(counting().start().submit(Request::new(vec![1, 2, 3], 4)));
    assert_eq!(outcome.tokens, [4, 5, 6, 7]);
    assert_eq!(outcome.finish, Some(Finish::Length));
    assert_eq!((outcome.usage.prompt, outcome.usage.generated, outcome.usage.cached), (3, 4, 0));
    assert!(outcome.outs[0].logprob.unwrap() > -0.1);
    assert_eq!(outcome.prefill, [3]);
}

#[test]
fn a_stop_token_ends_it_and_is_delivered() {
    for depth in 1..=2 {
        let mut rig = counting();
        rig.options.steps_in_flight = depth;
        let engine = rig.start();
        let request = Request { stop_tokens: vec![9, 6], ..Request::new(vec![1, 2, 3], 40) };
        let outcome = finish(engine.submit(request));
        assert_eq!(outcome.tokens, [4, 5, 6]);
        assert_eq!(outcome.finish, Some(Finish::Stop));
        let stats = engine.shutdown(Shutdown::Drain);
        assert_eq!(stats.discarded_rows, u64::from(depth - 1), "the step that ran ahead");
        assert_eq!(stats.pages[0].used, 0);
    }
}

#[test]
fn a_full_context_ends_it() {
    let engine = counting().start();
    let outcome = finish(engine.submit(Request::new(vec![1; 250], u32::MAX)));
    assert_eq!(outcome.finish, Some(Finish::ContextFull));
    assert_eq!(outcome.tokens.len(), 6);
    // Exactly as many as wanted is no full context.
    let outcome = finish(engine.submit(Request::new(vec![1; 250], 6)));
    assert_eq!(outcome.finish, Some(Finish::Length));
}

#[test]
fn nothing_to_generate_only_fills_the_cache() {
    let engine = counting().start();
    let outcome = finish(engine.submit(Request::new(vec![1; 40], 0)));
    assert_eq!((outcome.tokens.len(), outcome.finish), (0, Some(Finish::Length)));
    assert_eq!(finish(engine.submit(Request::new(vec![1; 50], 1))).cached, 40);
}

#[test]
fn wrong_requests_fail_with_numbers() {
    let engine = counting().start();
    let error = |request| finish(engine.submit(request)).error.unwrap();
    let long = error(Request::new(vec![1; 256], 1));
    assert!(matches!(long, EngineError::TooLong { prompt: 256, context: 256, block: 1 }), "{long}");
    assert!(matches!(error(Request::new(vec![], 1)), EngineError::EmptyPrompt));
    let bad = error(Request::new(vec![1, VOCAB], 1));
    assert!(matches!(bad, EngineError::BadToken { index: 1, token: VOCAB, vocab: VOCAB }));
    assert!(finish(engine.submit(Request::new(vec![1; 255], 1))).error.is_none());
}

/// An engine for one request at a time, and one that runs until it is cancelled.
fn occupied(queue: u32) -> (Engine, EventStream) {
    let mut rig = counting();
    rig.options = EngineOptions { queue, parallel: 1, context: Some(1 << 20), ..rig.options };
    let engine = rig.start();
    let mut stream = engine.submit(Request::new(vec![1], u32::MAX));
    while !matches!(stream.recv(), Some(Event::Tokens(_))) {}
    (engine, stream)
}

#[test]
fn a_full_queue_refuses() {
    let (engine, first) = occupied(2);
    let streams: Vec<_> = (0..5).map(|_| engine.submit(Request::new(vec![1], 3))).collect();
    let mut outcomes = streams.into_iter().rev().map(finish);
    for outcome in outcomes.by_ref().take(3) {
        assert!(matches!(outcome.error, Some(EngineError::QueueFull { limit: 2 })));
    }
    drop(first);
    assert!(outcomes.all(|o| o.finish == Some(Finish::Length)));
}

#[test]
fn a_cancelled_request_ends_and_frees_its_pages() {
    let (engine, stream) = occupied(9);
    let second = engine.submit(Request::new(vec![1], 2));
    stream.cancel();
    assert_eq!(finish(stream).finish, Some(Finish::Cancelled));
    assert_eq!(finish(second).finish, Some(Finish::Length));
    // Dropped, queued and running.
    let running = engine.submit(Request::new(vec![1], u32::MAX));
    let queued = engine.submit(Request::new(vec![1], u32::MAX));
    drop((queued, running));
    let stats = engine.shutdown(Shutdown::Drain);
    assert_eq!((stats.pages[0].used, stats.running, stats.queued), (0, 0, 0));
}

#[test]
fn a_prompt_is_cancelled_within_a_step() {
    let mut rig = counting();
    rig.options = EngineOptions { context: Some(50_000), parallel: 1, ubatch: 1, ..rig.options };
    let engine = rig.start();
    let mut stream = engine.submit(Request::new(vec![1; 20_000], 1));
    while !matches!(stream.recv(), Some(Event::Prefill { .. })) {}
    stream.cancel();
    let outcome = finish(stream);
    assert_eq!(outcome.finish, Some(Finish::Cancelled));
    assert!(outcome.prefill.len() < 20_000, "{}", outcome.prefill.len());
}

#[test]
fn deadlines_end_running_and_waiting_requests() {
    let mut rig = counting();
    rig.options.context = Some(1_000_000);
    rig.options.parallel = 1;
    let engine = rig.start();
    let soon = |after| Some(Instant::now() + Duration::from_millis(after));
    let running = Request { deadline: soon(700), ..Request::new(vec![1], u32::MAX) };
    let waiting = Request { deadline: soon(10), ..Request::new(vec![1], u32::MAX) };
    let (running, waiting) = (engine.submit(running), engine.submit(waiting));
    let waiting = finish(waiting);
    assert_eq!((waiting.finish, waiting.tokens.len()), (Some(Finish::Deadline), 0));
    let running = finish(running);
    assert_eq!(running.finish, Some(Finish::Deadline));
    assert!(!running.tokens.is_empty());
}

#[test]
fn waiting_requests_learn_their_place() {
    let (engine, first) = occupied(9);
    let mut second = engine.submit(Request::new(vec![1], 1));
    let mut third = engine.submit(Request::new(vec![1], 1));
    assert!(matches!(second.recv(), Some(Event::Queued { ahead: 0 })));
    assert!(matches!(third.recv(), Some(Event::Queued { ahead: 1 })));
    drop(first);
    assert!(matches!(second.recv(), Some(Event::Started { .. })));
    assert!(matches!(third.recv(), Some(Event::Queued { ahead: 0 })));
    assert_eq!(finish(third).finish, Some(Finish::Length));
}

#[test]
fn shutting_down_drains_or_cancels() {
    let (engine, first) = occupied(9);
    let second = engine.submit(Request::new(vec![1], 3));
    engine.shutdown(Shutdown::Now);
    assert_eq!(finish(first).finish, Some(Finish::Cancelled));
    assert_eq!(finish(second).finish, Some(Finish::Cancelled));

    let (engine, first) = occupied(9);
    let second = engine.submit(Request::new(vec![1], 3));
    let ending = std::thread::spawn(move || engine.shutdown(Shutdown::Drain));
    drop(first);
    assert_eq!(finish(second).finish, Some(Finish::Length));
    assert_eq!(ending.join().unwrap().running, 0);
}

#[test]
fn a_drained_engine_delivers_rows_that_nobody_takes() {
    let engine = counting().start();
    let stream = engine.submit(Request { want: Wanted::Logits, ..Request::new(vec![1; 100], 0) });
    engine.shutdown(Shutdown::Drain);
    assert_eq!(finish(stream).rows.len(), 100);
}

#[test]
fn an_async_caller_is_woken() {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let engine = counting().start();
    let mut stream = engine.submit(Request::new(vec![1; 200], 20));
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut tokens = 0;
    loop {
        match stream.poll_recv(&mut Context::from_waker(&waker)) {
            Poll::Ready(Some(Event::Tokens(t))) => tokens += t.len(),
            Poll::Ready(Some(_)) => {}
            Poll::Ready(None) => break,
            Poll::Pending => std::thread::park_timeout(Duration::from_secs(20)),
        }
    }
    assert_eq!(tokens, 20);
}

#[test]
fn too_few_pages_put_the_youngest_back() {
    let options = EngineOptions {
        context: Some(64),
        cache_rows: Some(64),
        reserve: Reserve::Prompt,
        ..options()
    };
    let rig = Rig::new(&[Reach::Full], false, options);
    let engine = rig.start();
    let requests = || (0..4).map(|i| Request::new(text(i, 10), 50));
    let streams: Vec<_> = requests().map(|r| engine.submit(r)).collect();
    for (stream, request) in streams.into_iter().zip(requests()) {
        assert_eq!(finish(stream).tokens, rig.alone(request).tokens);
    }
    let stats = engine.shutdown(Shutdown::Drain);
    assert!(stats.preemptions > 0);
    assert_eq!(stats.pages[0].used, 0);
}

#[test]
fn prompts_share_the_steps_and_do_not_hold_up_answers() {
    let mut rig = plain();
    rig.options.prefix_cache = false;
    let engine = rig.start();
    let mut answer = engine.submit(Request::new(text(1, 3), 200));
    while !matches!(answer.recv(), Some(Event::Tokens(_))) {}
    let (a, b) = (
        engine.submit(Request::new(text(2, 160), 1)),
        engine.submit(Request::new(text(3, 160), 1)),
    );
    let (a, b) = (finish(a), finish(b));
    // 15 rows per step are left beside the answer; each prompt has every second step.
    assert!(a.prefill.len() >= 10 && b.prefill.len() >= 10);
    drop(answer);
    let stats = engine.shutdown(Shutdown::Drain);
    assert_eq!(stats.preemptions, 0);
}
