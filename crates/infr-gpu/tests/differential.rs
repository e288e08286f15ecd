//! Random batches on the reference and on the fake device: rows that want different things, masks and
//! biases, rows that write nothing, several drawn rows of one sequence, tokens of steps in flight.

#![allow(clippy::unwrap_used)]

mod support;

use std::collections::VecDeque;
use std::sync::Arc;

use infr_backend::{
    Backend, Batch, Executor, ExpertPlacement, GroupRanges, PageTable, Placement, Row, RowOut,
    SampleParams, SeqRows, Slot, StateOp, StepOutput, TokenIn, Want,
};
use infr_gpu::GpuOptions;
use infr_gpu::fake::FakeBackend;
use infr_graph::{CacheGroup, Phase};
use infr_tensor::DType;
use infr_testkit::maker::visible;
use infr_testkit::ops::reference;
use infr_testkit::{Rng, Subject, Tolerance};

const SLOTS: u32 = 3;
const PAGE_LEN: u32 = 4;
const MAX_LEN: u32 = 40;
const CLOSE: Tolerance = Tolerance { max: 1e-3, rms: 2e-4 };

fn placement(groups: usize) -> Placement {
    Placement {
        homes: Vec::new(),
        experts: ExpertPlacement::Resident,
        pages: vec![SLOTS * MAX_LEN.div_ceil(PAGE_LEN); groups],
        page_len: PAGE_LEN,
        slots: SLOTS,
        max_rows: 24,
    }
}

/// What is known of the sequence in a slot.
#[derive(Clone)]
struct Track {
    len: u32,
    /// Whether something was drawn in the slot.
    drawn: bool,
    pages: Vec<u32>,
    sample: SampleParams,
}

fn params(rng: &mut Rng) -> SampleParams {
    let mut p = SampleParams { seed: u64::from(rng.below(1000)), ..SampleParams::default() };
    if rng.below(2) == 0 {
        p.temperature = 0.8;
        p.top_k = rng.below(3) * 10;
        p.top_p = if rng.below(2) == 0 { 1.0 } else { 0.9 };
        p.min_p = if rng.below(3) == 0 { 0.02 } else { 0.0 };
    }
    if rng.below(4) == 0 {
        p.logit_bias = vec![(rng.below(50), 4.0), (rng.below(50), -4.0)];
    }
    p
}

fn want(rng: &mut Rng) -> Want {
    match rng.below(8) {
        0 | 1 => Want::Nothing,
        2 => Want::Logprobs { top: 1 + rng.below(4) as u8 },
        3 => Want::Logits,
        4 => Want::Hidden,
        _ => Want::Token,
    }
}

fn batch(rng: &mut Rng, tracks: &mut [Track], groups: &[CacheGroup], vocab: u32) -> Batch {
    let mut batch = Batch::default();
    for slot in rng.permutation(SLOTS) {
        let track = &mut tracks[slot as usize];
        let room = MAX_LEN - track.len;
        if room < 10 || rng.below(4) == 0 {
            continue;
        }
        let (first, index) = (batch.rows.len() as u32, batch.seqs.len() as u16);
        let n = if rng.below(2) == 0 { 1 } else { 1 + rng.below(7) };
        let writes = rng.below(6) != 0;
        for i in 0..n {
            let at = track.len + i;
            let chains = i == 0 && track.drawn && rng.below(2) == 0;
            let token =
                if chains { TokenIn::LastOf(Slot(slot)) } else { TokenIn::Id(rng.below(vocab)) };
            // Rows that write nothing see what the cache holds before them.
            let seen = if writes { at } else { track.len.saturating_sub(1) };
            let ranges: Vec<_> =
                groups.iter().map(|g| visible(g.reach, seen, track.len + n)).collect();
            let mask = (rng.below(6) == 0)
                .then(|| Arc::new((0..vocab.div_ceil(32)).map(|_| !rng.below(9)).collect()));
            batch.rows.push(Row {
                token,
                position: at,
                seq: index,
                write: writes.then_some(at),
                visible: GroupRanges::new(&ranges),
                output: want(rng),
                mask,
            });
        }
        if !writes && track.len == 0 {
            // Nothing can be seen yet.
            batch.rows.truncate(first as usize);
            continue;
        }
        let rows = &batch.rows[first as usize..];
        let draws = |r: &Row| matches!(r.output, Want::Token | Want::Logprobs { .. });
        track.drawn |= rows.iter().any(draws);
        let table = Arc::new(PageTable(track.pages.clone()));
        batch.seqs.push(SeqRows {
            slot: Slot(slot),
            rows: first..batch.rows.len() as u32,
            pages: groups.iter().map(|_| Arc::clone(&table)).collect(),
            sample: track.sample.clone(),
        });
        track.len += if writes { n } else { 0 };
    }
    batch
}

fn same(expected: &RowOut, found: &RowOut) -> Result<(), String> {
    if expected.token != found.token {
        return Err(format!("token {:?}, expected {:?}", found.token, expected.token));
    }
    let logprobs = |row: &RowOut| -> Vec<f32> {
        row.logprob.into_iter().chain(row.top.iter().map(|t| t.1)).collect()
    };
    CLOSE.check(&logprobs(expected), &logprobs(found)).map_err(|e| format!("logprobs: {e}"))?;
    CLOSE.check(&expected.logits, &found.logits).map_err(|e| format!("logits: {e}"))?;
    CLOSE.check(&expected.hidden, &found.hidden).map_err(|e| format!("hidden: {e}"))
}

/// Two executors side by side.
struct Pair {
    expected: Box<dyn Executor>,
    found: Box<dyn Executor>,
    open: VecDeque<[infr_backend::Ticket; 2]>,
    rows: usize,
}

impl Pair {
    fn submit(&mut self, batch: &Batch) {
        let both = [&mut self.expected, &mut self.found];
        let tickets = both.map(|e| e.submit(Phase::Forward, batch).unwrap());
        self.open.push_back(tickets);
    }

    fn collect(&mut self, place: &str) {
        let Some([a, b]) = self.open.pop_front() else { return };
        let (mut expected, mut found) = (StepOutput::default(), StepOutput::default());
        self.expected.collect(a, &mut expected).unwrap();
        self.found.collect(b, &mut found).unwrap();
        assert_eq!(expected.rows.len(), found.rows.len(), "{place}");
        for (index, (expected, found)) in expected.rows.iter().zip(&found.rows).enumerate() {
            same(expected, found).unwrap_or_else(|e| panic!("{place}, output row {index}: {e}"));
        }
        self.rows += found.rows.len();
    }

    fn clear(&mut self, slot: u32) {
        for executor in [&mut self.expected, &mut self.found] {
            executor.state(&mut [StateOp::Clear(Slot(slot))]).unwrap();
        }
    }
}

fn run(subject: &Subject, fake: &FakeBackend, reference: &dyn Backend, seed: u64) -> usize {
    let mut rng = Rng::new(seed);
    let groups = subject.program.cache_groups();
    let open = |b: &dyn Backend| {
        b.open(&subject.program, &*subject.weights, &placement(groups.len())).unwrap()
    };
    let (expected, found) = (open(reference), open(fake));
    let mut pair = Pair { expected, found, open: VecDeque::new(), rows: 0 };
    let n_pages = MAX_LEN.div_ceil(PAGE_LEN);
    let pages = rng.permutation(SLOTS * n_pages);
    let mut tracks: Vec<Track> = pages
        .chunks(n_pages as usize)
        .map(|p| Track { len: 0, drawn: false, pages: p.to_vec(), sample: params(&mut rng) })
        .collect();
    for step in 0..14 {
        let place = format!("{}, seed {seed}, step {step}", subject.name);
        if pair.open.len() == 2 || rng.below(3) == 0 {
            pair.collect(&place);
        }
        // A sequence ends and another takes its slot, pages in another order.
        if rng.below(5) == 0 {
            let slot = rng.below(SLOTS);
            pair.clear(slot);
            let track = &mut tracks[slot as usize];
            track.pages.rotate_left(3);
            *track = Track { len: 0, drawn: false, sample: params(&mut rng), ..track.clone() };
        }
        if pair.open.len() < 2 {
            let batch = batch(&mut rng, &mut tracks, &groups, subject.vocab);
            pair.submit(&batch);
        }
    }
    while !pair.open.is_empty() {
        pair.collect(&format!("{}, seed {seed}, at the end", subject.name));
    }
    pair.rows
}

fn check(name: &str, seeds: std::ops::Range<u64>) {
    let subject = support::tiny(name, "F32", DType::F32);
    let (fake, reference) = (FakeBackend::new(GpuOptions::default()), reference());
    let strict = FakeBackend::new(GpuOptions { strict: true, warm: false, fuse: true });
    let mut rows = 0;
    for seed in seeds {
        let backend = if seed % 3 == 0 { &strict } else { &fake };
        rows += run(&subject, backend, &reference, seed);
    }
    println!("{name}: {rows} output rows");
    assert!(rows > 500, "only {rows} output rows were compared");
}

#[test]
fn one_cache_group() {
    check("llama", 0..40);
}

#[test]
fn windows_and_soft_caps() {
    check("gemma2", 100..130);
}

#[test]
fn norms_per_head() {
    check("qwen3", 200..230);
}
