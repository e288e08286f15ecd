//! Block diffusion on the tiny model and the CPU reference: the canvas changes only where the rule
//! allows, blocks end, the same seed gives the same text in any company, and what is committed is
//! what a prompt would have left.

#![allow(clippy::unwrap_used)] // Helpers of tests are tests.

mod common;

use std::sync::{Arc, Mutex};
use std::time::Instant;

use common::{Outcome, finish, text};
use infr_backend::{
    Backend, BackendError, Batch, DeviceInfo, EvalCase, EvalResult, Executor, MemoryReport,
    Placement, SampleParams, StateOp, StepOutput, Ticket, TokenIn, Visible, WeightSource,
};
use infr_cpu::{CpuBackend, CpuOptions};
use infr_engine::{
    Engine, EngineError, EngineOptions, EngineSource, Event, Finish, Request, Reserve, Shutdown,
    TokenConstraint, Wanted,
};
use infr_gguf::Gguf;
use infr_graph::{Phase, Program};
use infr_models::{BuildOptions, DecodeStyle, Diffusion, Loaded, synth};

const CANVAS: usize = 12;
/// Keys that a row of a sliding layer sees, itself included.
const WINDOW: u32 = 5;

/// What an executor was given and gave.
#[derive(Default)]
struct Step {
    phase: Option<Phase>,
    batch: Batch,
    output: StepOutput,
}

type Log = Arc<Mutex<Vec<Step>>>;

/// The CPU reference, with a record of its steps.
struct Recorder {
    inner: CpuBackend,
    log: Log,
}

struct Recording {
    inner: Box<dyn Executor>,
    log: Log,
}

impl Backend for Recorder {
    fn devices(&self) -> &[DeviceInfo] {
        self.inner.devices()
    }

    fn open(
        &self,
        program: &Program,
        weights: &dyn WeightSource,
        placement: &Placement,
    ) -> Result<Box<dyn Executor>, BackendError> {
        let inner = self.inner.open(program, weights, placement)?;
        Ok(Box::new(Recording { inner, log: Arc::clone(&self.log) }))
    }

    fn eval(&self, case: &EvalCase) -> Result<EvalResult, BackendError> {
        self.inner.eval(case)
    }
}

impl Executor for Recording {
    fn submit(&mut self, phase: Phase, batch: &Batch) -> Result<Ticket, BackendError> {
        let ticket = self.inner.submit(phase, batch)?;
        let (phase, batch) = (Some(phase), batch.clone());
        self.log.lock().unwrap().push(Step { phase, batch, output: StepOutput::default() });
        Ok(ticket)
    }

    fn collect(&mut self, ticket: Ticket, out: &mut StepOutput) -> Result<(), BackendError> {
        self.inner.collect(ticket, out)?;
        self.log.lock().unwrap()[ticket.0 as usize].output = out.clone();
        Ok(())
    }

    fn state(&mut self, ops: &mut [StateOp<'_>]) -> Result<(), BackendError> {
        self.inner.state(ops)
    }

    fn memory(&self) -> MemoryReport {
        self.inner.memory()
    }
}

fn load() -> Loaded {
    let bytes = synth::tiny("diffusion_gemma", 7, "F32").unwrap();
    infr_models::from_gguf(Arc::new(Gguf::from_bytes("tiny", bytes).unwrap())).unwrap()
}

/// The file's rule, and one whose blocks end early now and then on a model that knows nothing.
fn rules() -> [Diffusion; 2] {
    let DecodeStyle::BlockDiffusion(rule) = load().model.info().style else { panic!() };
    let easy = Diffusion {
        max_steps: 20,
        t_min: 0.02,
        t_max: 0.1,
        entropy_bound: 2.0,
        confidence_threshold: 1.0,
        ..rule
    };
    [rule, easy]
}

fn options() -> EngineOptions {
    EngineOptions { context: Some(128), parallel: 3, page_len: 4, ..EngineOptions::default() }
}

fn start(rule: Diffusion, options: EngineOptions) -> (Engine, Log) {
    let log = Log::default();
    let inner = CpuBackend::new(CpuOptions { threads: 1, ..CpuOptions::reference() });
    let backend = Arc::new(Recorder { inner, log: Arc::clone(&log) });
    let source =
        EngineSource::from_model(backend, &load(), &options, BuildOptions::default()).unwrap();
    assert!(source.diffusion.is_some());
    let source = EngineSource { diffusion: Some(rule), ..source };
    (Engine::start(source, options).unwrap(), log)
}

fn request(seed: u32, len: u32, max_tokens: u32) -> Request {
    let sample = SampleParams { seed: u64::from(seed), ..SampleParams::default() };
    Request { sample, ..Request::new(text(seed, len), max_tokens) }
}

fn tokens_of(batch: &Batch) -> Vec<u32> {
    let id = |token| match token {
        TokenIn::Id(id) => id,
        other => panic!("{other:?}"),
    };
    batch.rows.iter().map(|row| id(row.token)).collect()
}

/// Rows that the rule accepts, from its words: the entropies of all surer rows sum to at most the
/// bound.
fn accepted(entropies: &[f32], bound: f32) -> Vec<bool> {
    let surer = |row: usize| {
        let before = |&other: &usize| {
            entropies[other] < entropies[row] || entropies[other] == entropies[row] && other < row
        };
        let mut surer: Vec<f32> =
            (0..entropies.len()).filter(before).map(|o| entropies[o]).collect();
        surer.sort_by(f32::total_cmp);
        surer.iter().sum::<f32>()
    };
    (0..entropies.len()).map(|row| surer(row) <= bound).collect()
}

/// Follows the record of one request alone; gives the steps of each block.
fn check_blocks(rule: &Diffusion, log: &[Step], prompt: &[u32], answer: &Outcome) -> Vec<usize> {
    let mut known = prompt.to_vec();
    let (mut steps, mut counts) = (0, Vec::new());
    let mut before: Option<&Step> = None;
    let (mut best, mut stable) = (Vec::new(), 0);
    let (mut kept, mut fresh) = (0, 0);
    for step in log {
        let batch = &step.batch;
        if step.phase == Some(Phase::Forward) {
            // The prompt, or the block as its steps left it.
            let first = batch.rows[0].position as usize;
            if first >= prompt.len() {
                assert_eq!(tokens_of(batch), best);
                known.extend(&best);
                counts.push(steps);
                (steps, before, best, stable) = (0, None, Vec::new(), 0);
            }
            assert_eq!(tokens_of(batch), known[first..]);
            for (row, position) in batch.rows.iter().zip(first as u32..) {
                assert_eq!((row.position, row.write), (position, Some(position)));
                check_visible(row.visible.as_slice(), position, position + 1);
            }
            continue;
        }
        assert_eq!(batch.rows.len(), CANVAS);
        let start = known.len() as u32;
        for (row, position) in batch.rows.iter().zip(start..) {
            assert_eq!((row.position, row.write), (position, Some(position)));
            // Anchored at the canvas, not at the row.
            check_visible(row.visible.as_slice(), start, start + CANVAS as u32);
        }
        let left = (rule.max_steps - steps as u32) as f32 / rule.max_steps as f32;
        let wanted = rule.t_min + (rule.t_max - rule.t_min) * left;
        assert!((batch.seqs[0].sample.temperature - wanted).abs() < 1e-6);
        assert_eq!(batch.seqs[0].sample.top_k, 0);
        let soft = &batch.carried[0].data;
        match before {
            None => assert!(soft.iter().all(|&x| x == 0.0)),
            Some(before) => {
                assert_eq!(soft, &before.output.carried[0].data, "no self-conditioning");
                let accepted = accepted(&before.output.carried[1].data, rule.entropy_bound);
                assert!(accepted.iter().any(|&a| a));
                let (old, new) = (tokens_of(&before.batch), tokens_of(batch));
                for (row, &accepted) in accepted.iter().enumerate() {
                    match accepted {
                        true => assert_eq!(Some(new[row]), before.output.rows[row].token),
                        false => fresh += usize::from(new[row] != old[row]),
                    }
                    kept += usize::from(!accepted && new[row] == old[row]);
                }
            }
        }
        let now: Vec<u32> = step.output.rows.iter().map(|row| row.top[0].0).collect();
        stable = if now == best { stable + 1 } else { 0 };
        best = now;
        steps += 1;
        before = Some(step);
        let entropies = &step.output.carried[1].data;
        let mean = entropies.iter().sum::<f32>() / CANVAS as f32;
        let sure = stable >= rule.stability_threshold && mean < rule.confidence_threshold;
        if sure || steps as u32 == rule.max_steps {
            before = None;
        }
    }
    counts.push(steps);
    assert!(fresh > 20 * kept, "{fresh} rows fresh, {kept} kept");
    known.extend(&best);
    assert_eq!(known[prompt.len()..][..answer.tokens.len()], answer.tokens);
    counts
}

fn check_visible(ranges: &[Visible], first: u32, hi: u32) {
    let mut los: Vec<u32> = ranges.iter().map(|range| range.lo).collect();
    los.sort_unstable();
    assert_eq!(los, [0, first.saturating_sub(WINDOW - 1)]);
    assert!(ranges.iter().all(|range| range.hi == hi));
}

#[test]
fn the_canvas_changes_only_where_the_rule_allows() {
    let mut early = 0;
    for rule in rules() {
        for seed in 0..4 {
            let (engine, log) = start(rule, options());
            let prompt = text(seed, 17);
            let answer = finish(engine.submit(request(seed, 17, 36)));
            assert!(answer.error.is_none(), "{:?}", answer.error);
            let log = log.lock().unwrap();
            let counts = check_blocks(&rule, &log, &prompt, &answer);
            assert!(counts.iter().all(|&n| 0 < n && n as u32 <= rule.max_steps), "{counts:?}");
            early += counts.iter().filter(|&&n| (n as u32) < rule.max_steps).count();
            if answer.finish == Some(Finish::Length) {
                assert_eq!((answer.tokens.len(), counts.len()), (36, 3));
            }
        }
    }
    assert!(early > 0, "no block ended early");
}

#[test]
fn drafts_come_step_by_step_and_the_last_is_the_text() {
    let (engine, _) = start(rules()[0], options());
    let (mut drafts, mut text) = (Vec::new(), Vec::new());
    for event in engine.submit(request(1, 9, 12)) {
        match event {
            Event::Draft { step, tokens } => {
                assert_eq!((step as usize, tokens.len()), (drafts.len(), CANVAS));
                drafts.push(tokens);
            }
            Event::Tokens(tokens) => {
                assert!(tokens.iter().all(|t| t.logprob.is_some_and(|l| l <= 0.0)));
                text.extend(tokens.iter().map(|t| t.id));
            }
            _ => {}
        }
    }
    assert_eq!(drafts.len(), rules()[0].max_steps as usize);
    assert_eq!(drafts.last().unwrap()[..text.len()], text);
}

#[test]
fn a_seed_gives_one_text_in_any_company() {
    let (alone, _) = start(rules()[0], EngineOptions { prefix_cache: false, ..options() });
    let wanted: Vec<Outcome> =
        (0..3).map(|i| finish(alone.submit(request(i, 5 + 9 * i, 30)))).collect();
    assert!(wanted.iter().all(|w| w.error.is_none()));
    let other = finish(alone.submit(Request {
        sample: SampleParams { seed: 99, ..SampleParams::default() },
        ..request(0, 5, 30)
    }));
    assert_ne!(other.tokens, wanted[0].tokens);
    // Room for all canvases in a step, for two, for one; pages for all, and for one and a half.
    for (ubatch, reserve, cache_rows) in [
        (64, Reserve::Full, None),
        (24, Reserve::Full, None),
        (3, Reserve::Full, None),
        (30, Reserve::Prompt, Some(80)),
    ] {
        let context = if cache_rows.is_some() { Some(60) } else { Some(128) };
        let busy = EngineOptions { ubatch, reserve, cache_rows, context, ..options() };
        let (engine, log) = start(rules()[0], busy);
        let streams: Vec<_> = (0..3).map(|i| engine.submit(request(i, 5 + 9 * i, 30))).collect();
        for (stream, wanted) in streams.into_iter().zip(&wanted) {
            let found = finish(stream);
            assert_eq!(found.tokens, wanted.tokens, "steps of {ubatch} rows");
            assert_eq!(found.finish, wanted.finish);
        }
        let most = log.lock().unwrap().iter().map(|step| step.batch.seqs.len()).max();
        assert!(most > Some(1) || ubatch == 3, "nothing ran together");
        let stats = engine.shutdown(Shutdown::Drain);
        assert_eq!(stats.preemptions > 0, cache_rows.is_some());
        assert!(stats.pages.iter().all(|p| p.used == 0));
    }
}

#[test]
fn a_committed_block_is_as_if_prefilled() {
    let (engine, _) = start(rules()[0], options());
    let (cold, _) = start(rules()[0], EngineOptions { prefix_cache: false, ..options() });
    let (mut prompt, mut reused) = (text(4, 10), 0);
    for turn in 0..3 {
        let made =
            finish(engine.submit(Request { prompt: prompt.clone(), ..request(turn, 0, 24) }));
        assert!(made.error.is_none(), "{:?}", made.error);
        reused += made.cached;
        let committed = prompt.len() + made.tokens.len().saturating_sub(1) / CANVAS * CANVAS;
        prompt.extend(made.tokens);
        prompt.extend(text(turn, 3));
        let last = || Request { want: Wanted::LastLogits, ..Request::new(prompt.clone(), 0) };
        let (warm, wanted) = (finish(engine.submit(last())), finish(cold.submit(last())));
        assert_eq!(warm.cached as usize, committed);
        assert_eq!(warm.rows, wanted.rows);
        // The same answer from a cache as from nothing.
        let again = |engine: &Engine| {
            finish(engine.submit(Request { prompt: prompt.clone(), ..request(9, 0, 12) }))
        };
        assert_eq!(again(&engine).tokens, again(&cold).tokens);
    }
    assert!(reused > 0);
}

#[test]
fn answers_end_where_they_should() {
    let (engine, log) = start(rules()[0], options());
    let whole = finish(engine.submit(request(2, 10, 30)));
    assert_eq!((whole.finish, whole.tokens.len()), (Some(Finish::Length), 30));
    // At a token that ends it, which is delivered.
    let stop = whole.tokens[15];
    let at = whole.tokens.iter().position(|&t| t == stop).unwrap();
    let stopped = finish(engine.submit(Request { stop_tokens: vec![stop], ..request(2, 10, 30) }));
    assert_eq!(stopped.finish, Some(Finish::Stop));
    assert_eq!(stopped.tokens, whole.tokens[..=at]);
    // Not at one behind the limit.
    let none = Request { stop_tokens: vec![stop], ..request(2, 10, at as u32) };
    let none = finish(engine.submit(none));
    assert_eq!((none.finish, none.tokens), (Some(Finish::Length), whole.tokens[..at].to_vec()));
    // With the context: only whole blocks fit.
    let full = finish(engine.submit(request(3, 100, u32::MAX)));
    assert_eq!((full.finish, full.tokens.len()), (Some(Finish::ContextFull), 24));
    // With the prompt alone.
    let before = log.lock().unwrap().len();
    let nothing = finish(engine.submit(request(5, 10, 0)));
    assert_eq!((nothing.finish, nothing.tokens.len()), (Some(Finish::Length), 0));
    assert_eq!(log.lock().unwrap().len(), before + 1);
    // When no block fits.
    let error = finish(engine.submit(request(3, 117, 1))).error.unwrap();
    let wanted = EngineError::TooLong { prompt: 117, context: 128, block: 12 };
    assert_eq!(error.to_string(), wanted.to_string());
}

#[test]
fn answers_end_when_told_to() {
    let endless = Diffusion { max_steps: 1 << 16, confidence_threshold: 0.0, ..rules()[0] };
    let (engine, log) = start(endless, options());
    let mut stream = engine.submit(request(1, 9, 12));
    while !matches!(stream.recv().unwrap(), Event::Draft { .. }) {}
    stream.cancel();
    let outcome = finish(stream);
    assert_eq!((outcome.finish, outcome.tokens.len()), (Some(Finish::Cancelled), 0));
    let deadline = Some(Instant::now() + std::time::Duration::from_millis(100));
    let late = finish(engine.submit(Request { deadline, ..request(1, 9, 12) }));
    assert_eq!((late.finish, late.tokens.len()), (Some(Finish::Deadline), 0));
    assert!(log.lock().unwrap().len() < 1 << 15);
    assert!(engine.shutdown(Shutdown::Drain).pages.iter().all(|p| p.used == 0));
}

struct Anything;

impl TokenConstraint for Anything {
    fn mask(&mut self, bits: &mut [u32]) {
        bits.fill(u32::MAX);
    }

    fn accept(&mut self, _token: u32) -> bool {
        true
    }

    fn rollback(&mut self, _tokens: u32) {}
}

#[test]
fn what_needs_the_token_before_is_refused() {
    let (engine, log) = start(rules()[0], options());
    let with = |sample: SampleParams| Request { sample, ..request(0, 5, 5) };
    let requests = [
        (Request { constraint: Some(Box::new(Anything)), ..request(0, 5, 5) }, "constraint"),
        (with(SampleParams { repeat_penalty: 1.1, ..SampleParams::default() }), "penalties"),
        (with(SampleParams { logit_bias: vec![(1, 1.0)], ..SampleParams::default() }), "bias"),
    ];
    for (request, word) in requests {
        let error = finish(engine.submit(request)).error.unwrap();
        assert!(error.to_string().contains(word), "{error}");
    }
    assert!(log.lock().unwrap().is_empty());
    // Rows of a prompt are given like those of any model.
    let rows = finish(engine.submit(Request { want: Wanted::Logits, ..request(0, 5, 0) })).rows;
    assert_eq!(rows.len(), 5);
}
