//! Sampling on device and host, constraints, log-probabilities, rows of the prompt.

#![allow(clippy::unwrap_used)] // Helpers of tests are tests.

mod common;

use common::{Rig, VOCAB, finish, plain, text};
use infr_backend::SampleParams;
use infr_engine::{EngineError, EngineOptions, Finish, Request, Shutdown, TokenConstraint, Wanted};
use infr_graph::Reach;

fn warm(seed: u64) -> SampleParams {
    SampleParams { temperature: 1.0, top_k: 20, top_p: 0.95, seed, ..SampleParams::default() }
}

#[test]
fn host_and_device_draw_the_same() {
    let engine = plain().start();
    for seed in 0..20 {
        let device = Request { sample: warm(seed), ..Request::new(text(1, 9), 30) };
        // A bias of nothing forces the host path.
        let sample = SampleParams { logit_bias: vec![(3, 0.0)], ..warm(seed) };
        let host = Request { sample, ..Request::new(text(1, 9), 30) };
        let (device, host) = (finish(engine.submit(device)), finish(engine.submit(host)));
        assert_eq!(device.tokens, host.tokens);
        for (a, b) in device.outs.iter().zip(&host.outs) {
            assert!((a.logprob.unwrap() - b.logprob.unwrap()).abs() < 1e-6);
        }
    }
}

#[test]
fn seeds_differ_and_repeat() {
    let engine = plain().start();
    let run = |seed| {
        let request = Request { sample: warm(seed), ..Request::new(text(1, 9), 30) };
        finish(engine.submit(request)).tokens
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn penalties_count_prompt_and_answer() {
    let engine = plain().start();
    let sample = SampleParams { presence_penalty: 1e6, ..SampleParams::default() };
    let request = Request { sample, ..Request::new((0..40).collect(), 24) };
    let mut tokens = finish(engine.submit(request)).tokens;
    tokens.sort_unstable();
    assert_eq!(tokens, (40..VOCAB).collect::<Vec<_>>());
}

#[test]
fn running_ahead_changes_nothing() {
    for seed in 0..10 {
        let mut outcomes = Vec::new();
        for (depth, lazy) in [(1, false), (2, false), (2, true)] {
            let mut rig = Rig { lazy, ..plain() };
            rig.options.steps_in_flight = depth;
            let engine = rig.start();
            let sample = warm(seed);
            let stop_tokens = vec![7, 8, 9];
            let request = Request { sample, stop_tokens, ..Request::new(text(2, 21), 40) };
            let outcome = finish(engine.submit(request));
            outcomes.push((outcome.tokens, outcome.finish));
        }
        assert_eq!(outcomes[0], outcomes[1]);
        assert_eq!(outcomes[0], outcomes[2]);
    }
}

#[test]
fn likely_tokens_come_when_asked_for() {
    let engine = plain().start();
    let request = Request { logprobs: Some(3), ..Request::new(text(2, 5), 4) };
    let outcome = finish(engine.submit(request));
    for out in outcome.outs {
        assert_eq!(out.top.len(), 3);
        assert_eq!(out.top[0].0, out.id);
        assert_eq!(Some(out.top[0].1), out.logprob);
    }
}

/// Tokens of the given remainder modulo 4, in turn; after `len` only token 0.
struct Turns {
    taken: Vec<u32>,
    len: usize,
}

impl TokenConstraint for Turns {
    fn mask(&mut self, bits: &mut [u32]) {
        assert!(bits.iter().all(|&b| b == 0));
        let n = self.taken.len();
        if n == self.len {
            bits[0] = 1;
            return;
        }
        for id in (1..VOCAB).filter(|id| *id as usize % 4 == n % 4) {
            bits[id as usize / 32] |= 1 << (id % 32);
        }
    }

    fn accept(&mut self, token: u32) -> bool {
        self.taken.push(token);
        token as usize % 4 == (self.taken.len() - 1) % 4
    }

    fn rollback(&mut self, tokens: u32) {
        self.taken.truncate(self.taken.len() - tokens as usize);
    }
}

fn constrained(bias: bool, len: usize) -> Request {
    let logit_bias = if bias { vec![(5, 0.0)] } else { vec![] };
    Request {
        constraint: Some(Box::new(Turns { taken: vec![], len })),
        sample: SampleParams { logit_bias, ..warm(5) },
        stop_tokens: vec![0],
        ..Request::new(text(4, 7), 100)
    }
}

#[test]
fn constraints_hold_on_device_and_host() {
    let engine = plain().start();
    let other = engine.submit(Request::new(text(9, 30), 60));
    let device = finish(engine.submit(constrained(false, 11)));
    let host = finish(engine.submit(constrained(true, 11)));
    assert_eq!(device.finish, Some(Finish::Stop));
    assert_eq!(device.tokens.len(), 12);
    assert!(device.tokens[..11].iter().enumerate().all(|(i, t)| *t as usize % 4 == i % 4));
    assert_eq!(device.tokens, host.tokens);
    assert_eq!(finish(other).tokens.len(), 60);
}

#[test]
fn a_constraint_that_allows_nothing_fails_the_request_alone() {
    struct Nothing;
    impl TokenConstraint for Nothing {
        fn mask(&mut self, _bits: &mut [u32]) {}
        fn accept(&mut self, _token: u32) -> bool {
            true
        }
        fn rollback(&mut self, _tokens: u32) {}
    }
    let engine = plain().start();
    let other = engine.submit(Request::new(text(9, 30), 60));
    let request = Request { constraint: Some(Box::new(Nothing)), ..Request::new(text(1, 3), 9) };
    let outcome = finish(engine.submit(request));
    assert!(matches!(outcome.error, Some(EngineError::ConstraintStuck { generated: 0 })));
    assert_eq!(finish(other).finish, Some(Finish::Length));
    let stats = engine.shutdown(Shutdown::Drain);
    assert_eq!((stats.failed, stats.finished, stats.pages[0].used), (1, 1, 0));
}

#[test]
fn logits_of_all_positions_come_in_order_and_predict_the_answer() {
    let engine = plain().start();
    let answer = finish(engine.submit(Request::new(text(6, 10), 20)));
    let mut whole = text(6, 10);
    whole.extend(&answer.tokens);
    let request = Request { want: Wanted::Logits, ..Request::new(whole.clone(), 0) };
    let outcome = finish(engine.submit(request));
    assert_eq!(outcome.finish, Some(Finish::Length));
    let positions: Vec<u32> = outcome.rows.iter().map(|r| r.0).collect();
    assert_eq!(positions, (0..30).collect::<Vec<_>>());
    for (position, logits) in &outcome.rows[9..29] {
        let best = infr_backend::sample::argmax(logits);
        assert_eq!(best, whole[*position as usize + 1]);
    }
}

#[test]
fn the_last_row_alone() {
    let engine = plain().start();
    let all = Request { want: Wanted::Hidden, ..Request::new(text(6, 10), 0) };
    let last = Request { want: Wanted::LastHidden, ..Request::new(text(6, 10), 0) };
    let (all, last) = (finish(engine.submit(all)), finish(engine.submit(last)));
    assert_eq!(all.rows.len(), 10);
    assert_eq!(last.rows, all.rows[9..]);
    let last = Request { want: Wanted::LastLogits, ..Request::new(text(6, 10), 0) };
    let last = finish(engine.submit(last));
    assert_eq!((last.rows.len(), last.rows[0].0, last.cached), (1, 9, 9));
}

#[test]
fn an_encoder_takes_a_prompt_in_one_step() {
    let rig = Rig {
        causal: false,
        ..Rig::new(&[Reach::Symmetric(8), Reach::Full], false, common::options())
    };
    let engine = rig.start();
    let streams: Vec<_> = (0..4)
        .map(|i| Request { want: Wanted::Hidden, ..Request::new(text(i, 9), 0) })
        .map(|request| engine.submit(request))
        .collect();
    for stream in streams {
        let outcome = finish(stream);
        assert_eq!((outcome.rows.len(), outcome.prefill, outcome.cached), (9, vec![9], 0));
    }
    let long = Request { want: Wanted::Hidden, ..Request::new(text(1, 17), 0) };
    let error = finish(engine.submit(long)).error.unwrap();
    assert!(matches!(error, EngineError::TooLong { prompt: 17, context: 16, block: 1 }), "{error}");
}

#[test]
fn rows_that_nobody_takes_hold_up_their_request_only() {
    let options = EngineOptions {
        context: Some(300_000),
        ubatch: 512,
        page_len: 64,
        output_rows: 512,
        ..common::options()
    };
    let rig = Rig::new(&[Reach::Window(2)], false, options);
    let engine = rig.start();
    let prompt = text(1, 250_000);
    let stream = engine.submit(Request { want: Wanted::Logits, ..Request::new(prompt, 0) });
    let begun = std::time::Instant::now();
    while engine.stats().rows < 131_072 && begun.elapsed().as_secs() < 60 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    std::thread::sleep(std::time::Duration::from_millis(200));
    let rows = engine.stats().rows;
    // 32 MiB of rows of 64 floats.
    assert!((131_072..140_000).contains(&rows), "{rows}");
    assert_eq!(finish(engine.submit(Request::new(text(2, 9), 5))).tokens.len(), 5);
    assert_eq!(finish(stream).rows.len(), 250_000);
}
