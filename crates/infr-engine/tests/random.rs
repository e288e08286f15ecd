//! Random schedules: whatever runs together, in whatever chunks and on however few pages, every
//! answer is the one that the request gets alone, and no page is left in use.

#![allow(clippy::unwrap_used)] // Helpers of tests are tests.

mod common;

use common::{Outcome, Rig, VOCAB, finish, options, text};
use infr_backend::SampleParams;
use infr_engine::{EngineOptions, Event, EventStream, Finish, Request, Reserve, Shutdown, Stats};
use infr_graph::Reach;

/// A small generator (SplitMix64), so that a failing schedule can be run again by its number.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u32) -> u32 {
        (self.next() % u64::from(n)) as u32
    }

    fn between(&mut self, low: u32, high: u32) -> u32 {
        low + self.below(high - low + 1)
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.below(100) < percent
    }
}

fn rig(rng: &mut Rng) -> Rig {
    let window = Reach::Window(rng.between(1, 11));
    let chunk = Reach::Chunk(rng.between(1, 3) * 4);
    let (reaches, recurrent): (Vec<Reach>, bool) = match rng.below(8) {
        0 | 1 => (vec![Reach::Full], false),
        2 => (vec![window], false),
        3 => (vec![Reach::Full, window], false),
        4 => (vec![chunk, Reach::Full], false),
        5 => (vec![window, Reach::Full], true),
        6 => (vec![Reach::Full], true),
        _ => (vec![], true),
    };
    let parallel = rng.between(1, 4);
    let options = EngineOptions {
        context: Some(rng.between(20, 60)),
        parallel,
        ubatch: rng.between(parallel, 16),
        page_len: 4,
        cache_rows: rng.chance(70).then(|| rng.between(1, 160)),
        reserve: if rng.chance(50) { Reserve::Full } else { Reserve::Prompt },
        steps_in_flight: rng.between(1, 2),
        prefix_cache: rng.chance(90),
        snapshot_bytes: Some(u64::from(rng.between(1, 12)) * 16),
        output_rows: 3,
        ..options()
    };
    let mut rig = Rig::new(&reaches, recurrent, options);
    rig.lazy = rng.chance(50);
    rig
}

fn sample(rng: &mut Rng) -> SampleParams {
    SampleParams {
        temperature: if rng.chance(50) { 0.8 } else { 0.0 },
        top_k: if rng.chance(30) { 5 } else { 0 },
        top_p: if rng.chance(30) { 0.9 } else { 1.0 },
        frequency_penalty: if rng.chance(20) { 0.7 } else { 0.0 },
        seed: rng.next(),
        ..SampleParams::default()
    }
}

/// A prompt that shares much with earlier ones.
fn prompt(rng: &mut Rng, texts: &[Vec<u32>]) -> Vec<u32> {
    let mut prompt = match texts.len() {
        0 => text(rng.below(3), 40),
        n => texts[rng.below(n as u32) as usize].clone(),
    };
    prompt.truncate(rng.between(1, prompt.len() as u32) as usize);
    if rng.chance(30) {
        let at = rng.below(prompt.len() as u32) as usize;
        prompt[at] = rng.below(VOCAB);
    }
    for _ in 0..rng.below(8) {
        prompt.push(rng.below(VOCAB));
    }
    prompt
}

struct Open {
    make: Box<dyn Fn() -> Request>,
    stream: EventStream,
    /// Cancel after this many tokens.
    cancel: Option<u32>,
}

fn open(rng: &mut Rng, rig: &Rig, engine: &infr_engine::Engine, texts: &[Vec<u32>]) -> Open {
    let mut prompt = prompt(rng, texts);
    prompt.truncate(rig.options.context.unwrap() as usize - 1);
    let (max_tokens, sample) = (rng.between(1, 30), sample(rng));
    let stop = if rng.chance(50) { vec![rng.below(VOCAB), rng.below(VOCAB)] } else { vec![] };
    let marks = vec![prompt.len() as u32 / 2];
    let salt = u64::from(rng.chance(10));
    let make = move || Request {
        sample: sample.clone(),
        stop_tokens: stop.clone(),
        marks: marks.clone(),
        cache_salt: salt,
        ..Request::new(prompt.clone(), max_tokens)
    };
    let stream = engine.submit(make());
    let cancel = rng.chance(20).then(|| rng.below(6));
    Open { make: Box::new(make), stream, cancel }
}

/// Receives one stream; a cancelled one gives `None`.
fn close(open: Open) -> Option<(Request, Outcome)> {
    let Open { make, mut stream, cancel } = open;
    let Some(cancel) = cancel else { return Some((make(), finish(stream))) };
    let mut tokens = 0;
    while tokens < cancel {
        match stream.recv() {
            Some(Event::Tokens(t)) => tokens += t.len() as u32,
            Some(_) => {}
            None => break,
        }
    }
    None
}

fn schedule(number: u64) -> Stats {
    let mut rng = Rng(number);
    let rig = rig(&mut rng);
    let engine = rig.start();
    let mut texts: Vec<Vec<u32>> = Vec::new();
    let mut done = Vec::new();
    for _turn in 0..rng.between(1, 4) {
        let mut opened = Vec::new();
        for _ in 0..rng.between(1, 5) {
            opened.push(open(&mut rng, &rig, &engine, &texts));
        }
        for open in opened {
            let Some((request, outcome)) = close(open) else { continue };
            let mut text = request.prompt.clone();
            text.extend(&outcome.tokens);
            texts.push(text);
            done.push((request, outcome));
        }
    }
    let stats = engine.shutdown(Shutdown::Drain);
    for (group, pages) in stats.pages.iter().enumerate() {
        assert_eq!(pages.used, 0, "schedule {number}: group {group} leaks: {pages:?}");
        assert_eq!(pages.free + pages.cached, pages.total);
    }
    for (request, outcome) in done {
        assert!(outcome.error.is_none(), "schedule {number}: {:?}", outcome.error);
        assert!(outcome.cached < outcome.usage.prompt);
        let prompt = request.prompt.clone();
        let alone = rig.alone(request);
        let wrong = format!("schedule {number}: {} cached of {prompt:?}", outcome.cached);
        assert_eq!(outcome.tokens, alone.tokens, "{wrong}");
        assert_eq!(outcome.finish, alone.finish, "{wrong}");
        assert_ne!(outcome.finish, Some(Finish::Cancelled));
    }
    stats
}

#[test]
fn random_schedules_give_what_each_request_gives_alone() {
    let mut all = Stats::default();
    for number in 0..1000 {
        let stats = schedule(number);
        all.started += stats.started;
        all.prompt_tokens += stats.prompt_tokens;
        all.cached_tokens += stats.cached_tokens;
        all.generated_tokens += stats.generated_tokens;
        all.steps += stats.steps;
        all.rows += stats.rows;
        all.discarded_rows += stats.discarded_rows;
        all.preemptions += stats.preemptions;
    }
    // What the schedules are to try has to have happened.
    let often = [
        all.started > 5000,
        all.cached_tokens > all.prompt_tokens / 8,
        all.preemptions > 100,
        all.discarded_rows > 100,
    ];
    assert_eq!(often, [true; 4], "{all:?}");
}
