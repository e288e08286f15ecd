//! Random schedules in strict mode: prompts in random chunks, sequences that join and leave, chained
//! steps, preemption by recomputation. Every sequence makes the tokens that it makes alone.

#![allow(clippy::unwrap_used)]

mod support;

use infr_backend::{SampleParams, TokenIn, Want};
use infr_gpu::GpuOptions;
use infr_gpu::fake::FakeBackend;
use infr_tensor::DType;
use infr_testkit::driver::{Driver, Sequence, Work};
use infr_testkit::{Backend, Rng, Subject};

const PROMPTS: u64 = 6;
const NEW_TOKENS: usize = 6;

fn prompt(subject: &Subject, index: u64) -> Vec<u32> {
    let mut rng = Rng::new(1000 + index);
    (0..1 + rng.below(18)).map(|_| rng.below(subject.vocab)).collect()
}

fn params(index: u64) -> SampleParams {
    let temperature = if index.is_multiple_of(2) { 0.0 } else { 0.8 };
    SampleParams { temperature, top_k: 20, seed: index, ..SampleParams::default() }
}

/// A sequence on its way.
struct Running {
    index: u64,
    seq: Sequence,
    /// Prompt and collected tokens.
    known: Vec<u32>,
    n_prompt: usize,
    /// Tokens that steps in flight will give.
    in_flight: usize,
}

impl Running {
    fn start(driver: &mut Driver, subject: &Subject, index: u64) -> Running {
        let known = prompt(subject, index);
        let mut seq = driver.start();
        seq.sample = params(index);
        Running { index, seq, n_prompt: known.len(), known, in_flight: 0 }
    }

    /// Rows that can be submitted now.
    fn next(&self, rng: &mut Rng) -> Option<(Vec<TokenIn>, Want)> {
        let at = self.seq.len as usize;
        if at >= self.n_prompt + NEW_TOKENS - 1 {
            return None;
        }
        if at < self.known.len() {
            let most = (self.known.len() - at).min(9) as u32;
            let n = 1 + rng.below(most) as usize;
            let ids = self.known[at..at + n].iter().map(|t| TokenIn::Id(*t)).collect();
            let want = if at + n == self.known.len() { Want::Token } else { Want::Nothing };
            return Some((ids, want));
        }
        // The token before is still in flight: the device knows it.
        Some((vec![TokenIn::LastOf(self.seq.slot)], Want::Token))
    }

    fn is_done(&self) -> bool {
        self.known.len() == self.n_prompt + NEW_TOKENS
    }
}

fn alone(backend: &dyn Backend, subject: &Subject, index: u64) -> Vec<u32> {
    let mut driver = Driver::new(backend, subject, 64, 1);
    let mut running = Running::start(&mut driver, subject, index);
    let mut tokens: Vec<TokenIn> = running.known.iter().map(|t| TokenIn::Id(*t)).collect();
    while !running.is_done() {
        // Only the last row is drawn: `Driver` gives every row the same want.
        let (head, last) = tokens.split_at(tokens.len() - 1);
        for (rows, want) in [(head, Want::Nothing), (last, Want::Token)] {
            if rows.is_empty() {
                continue;
            }
            let work = Work { seq: &mut running.seq, tokens: rows, want };
            let token = driver.step(&mut [work]).last().and_then(|r| r.token);
            running.known.extend(token);
        }
        tokens = running.known.last().map(|t| TokenIn::Id(*t)).into_iter().collect();
    }
    running.known
}

fn schedule(backend: &dyn Backend, subject: &Subject, expected: &[Vec<u32>], seed: u64) {
    let mut rng = Rng::new(seed);
    let mut driver = Driver::new(backend, subject, 4, seed);
    let mut waiting: Vec<u64> = (0..4).map(|_| u64::from(rng.below(PROMPTS as u32))).collect();
    let mut running: Vec<Running> = Vec::new();
    let mut open = std::collections::VecDeque::new();
    while !waiting.is_empty() || !running.is_empty() {
        if running.len() < 3 && rng.below(2) == 0 {
            running.extend(waiting.pop().map(|index| Running::start(&mut driver, subject, index)));
        }
        let mut step = Vec::new();
        for r in &running {
            // A chunk that is not wanted to the end must not draw, so `Driver` gets it row by row.
            step.push(if rng.below(4) == 0 { None } else { r.next(&mut rng) });
        }
        let mut drawing = Vec::new();
        let mut work = Vec::new();
        for (r, rows) in running.iter_mut().zip(&step) {
            let Some((tokens, want)) = rows else { continue };
            if *want == Want::Token {
                r.in_flight += 1;
                drawing.push((r.index, r.seq.slot, tokens.len()));
            }
            work.push(Work { seq: &mut r.seq, tokens, want: *want });
        }
        if !work.is_empty() {
            open.push_back((driver.submit(&mut work), drawing));
        }
        if (open.len() == 2 || rng.below(3) == 0 || work_is_stuck(&running))
            && let Some((ticket, drawing)) = open.pop_front()
        {
            absorb(&mut running, driver.collect(ticket), &drawing);
        }
        let (done, rest): (Vec<_>, Vec<_>) = running.into_iter().partition(Running::is_done);
        running = rest;
        for r in done {
            assert_eq!(r.known, expected[r.index as usize], "seed {seed}, prompt {}", r.index);
            driver.end(r.seq);
        }
        // Preempted: its pages go, what it made stays and is computed again.
        if rng.below(12) == 0
            && let Some(at) = running.iter().position(|r| r.in_flight == 0)
        {
            let old = running.remove(at);
            driver.end(old.seq);
            let mut again = Running::start(&mut driver, subject, old.index);
            again.known = old.known;
            running.push(again);
        }
    }
    while let Some((ticket, _)) = open.pop_front() {
        driver.collect(ticket);
    }
}

/// Whether nothing can be submitted before something is collected.
fn work_is_stuck(running: &[Running]) -> bool {
    running.iter().all(|r| r.seq.len as usize >= r.n_prompt + NEW_TOKENS - 1)
}

fn absorb(
    running: &mut [Running],
    rows: Vec<infr_backend::RowOut>,
    drawing: &[(u64, infr_backend::Slot, usize)],
) {
    let mut rows = rows.into_iter();
    for (_, slot, n) in drawing {
        let token = rows.by_ref().take(*n).last().and_then(|r| r.token).unwrap();
        let r = running.iter_mut().find(|r| r.seq.slot == *slot).unwrap();
        r.known.push(token);
        r.in_flight -= 1;
    }
}

fn check(seeds: std::ops::Range<u64>) {
    let subject = support::tiny("llama", "F32", DType::F16);
    let backend = FakeBackend::new(GpuOptions { strict: true, fuse: true, warm: false });
    let expected: Vec<Vec<u32>> = (0..PROMPTS).map(|i| alone(&backend, &subject, i)).collect();
    for seed in seeds {
        schedule(&backend, &subject, &expected, seed);
    }
}

// A thousand in all, on several threads.

#[test]
fn schedules_to_250() {
    check(0..250);
}

#[test]
fn schedules_to_500() {
    check(250..500);
}

#[test]
fn schedules_to_750() {
    check(500..750);
}

#[test]
fn schedules_to_1000() {
    check(750..1000);
}
