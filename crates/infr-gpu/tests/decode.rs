//! The decode path on the fake device: greedy tokens, chained steps without waits or recordings, memory
//! that stays as it is.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;

use infr_backend::{
    Backend, Batch, Executor, ExpertPlacement, GroupRanges, PageTable, Placement, Row,
    SampleParams, SeqRows, Slot, StepOutput, TokenIn, Visible, Want,
};
use infr_gpu::fake::{FakeApi, FakeCounts};
use infr_gpu::{GpuExecutor, GpuOptions};
use infr_graph::Phase;
use infr_tensor::DType;
use infr_testkit::Subject;
use infr_testkit::ops::reference;

const PAGE_LEN: u32 = 4;
const MAX_LEN: u32 = 96;

fn placement(subject: &Subject, slots: u32) -> Placement {
    Placement {
        homes: Vec::new(),
        experts: ExpertPlacement::Resident,
        pages: vec![slots * MAX_LEN.div_ceil(PAGE_LEN); subject.program.cache_groups().len()],
        page_len: PAGE_LEN,
        slots,
        max_rows: 32,
    }
}

/// `tokens` of every sequence from row `at` on; sequence `i` has slot `i` and pages of its own.
fn batch(tokens: &[Vec<TokenIn>], at: u32, sample: &SampleParams) -> Batch {
    let mut batch = Batch::default();
    for (index, tokens) in tokens.iter().enumerate() {
        let first = batch.rows.len() as u32;
        for (token, row) in tokens.iter().zip(at..) {
            let last = row + 1 == at + tokens.len() as u32;
            batch.rows.push(Row {
                token: *token,
                position: row,
                seq: index as u16,
                write: Some(row),
                visible: GroupRanges::new(&[Visible { lo: 0, hi: row + 1 }]),
                output: if last { Want::Token } else { Want::Nothing },
                mask: None,
            });
        }
        let n_pages = MAX_LEN.div_ceil(PAGE_LEN);
        let pages = (0..n_pages).rev().map(|p| p + index as u32 * n_pages).collect();
        batch.seqs.push(SeqRows {
            slot: Slot(index as u32),
            rows: first..batch.rows.len() as u32,
            pages: vec![Arc::new(PageTable(pages))],
            sample: sample.clone(),
        });
    }
    batch
}

fn prompts(n: u32) -> Vec<Vec<TokenIn>> {
    (0..n).map(|i| (0..9).map(|t| TokenIn::Id((i * 37 + t * 11) % 90)).collect()).collect()
}

/// Tokens of `n_seqs` sequences over `steps` steps, each taking the last token from the device.
fn chained(
    executor: &mut dyn Executor,
    n_seqs: u32,
    steps: u32,
    p: &SampleParams,
) -> Vec<Vec<u32>> {
    let mut out = StepOutput::default();
    let mut tokens = vec![Vec::new(); n_seqs as usize];
    let mut open = executor.submit(Phase::Forward, &batch(&prompts(n_seqs), 0, p)).unwrap();
    let last: Vec<Vec<TokenIn>> = (0..n_seqs).map(|i| vec![TokenIn::LastOf(Slot(i))]).collect();
    for step in 0..steps {
        let ahead = executor.submit(Phase::Forward, &batch(&last, 9 + step, p)).unwrap();
        executor.collect(open, &mut out).unwrap();
        for (tokens, row) in tokens.iter_mut().zip(&out.rows) {
            tokens.push(row.token.unwrap());
        }
        open = ahead;
    }
    executor.collect(open, &mut out).unwrap();
    tokens
}

fn fake(subject: &Subject, slots: u32, options: GpuOptions) -> GpuExecutor<FakeApi> {
    let device = FakeApi::device(options);
    let placement = placement(subject, slots);
    GpuExecutor::open(device, &subject.program, &*subject.weights, &placement).unwrap()
}

#[test]
fn tokens_are_those_of_the_reference() {
    let subject = support::tiny("llama", "Q8_0", DType::F16);
    let reference = reference();
    let greedy = SampleParams::default();
    let warm = SampleParams { temperature: 0.9, top_k: 12, seed: 5, ..SampleParams::default() };
    let wide = SampleParams { temperature: 1.3, top_p: 0.8, seed: 6, ..SampleParams::default() };
    let floor = SampleParams { temperature: 1.1, min_p: 0.05, seed: 7, ..SampleParams::default() };
    // A draw near the edge between two tokens may fall on the other side, which rounding decides.
    for (params, steps) in [(greedy, 64), (warm, 16), (wide, 16), (floor, 16)] {
        let mut cpu =
            reference.open(&subject.program, &*subject.weights, &placement(&subject, 3)).unwrap();
        let expected = chained(&mut *cpu, 3, steps, &params);
        for strict in [false, true] {
            let options = GpuOptions { strict, ..GpuOptions::default() };
            let found = chained(&mut fake(&subject, 3, options), 3, steps, &params);
            assert_eq!(expected, found, "{params:?}, strict {strict}");
        }
    }
}

#[test]
fn decoding_records_nothing_and_waits_only_for_results() {
    let subject = support::tiny("llama", "F16", DType::F16);
    let mut executor = fake(&subject, 2, GpuOptions::default());
    let params = SampleParams::default();
    chained(&mut executor, 2, 4, &params);
    let (recordings, memory, held) =
        (executor.recordings(), executor.memory(), executor.api().held());
    let before: FakeCounts = executor.api().counts();
    for _ in 0..20 {
        chained(&mut executor, 2, 64, &params);
    }
    let after = executor.api().counts();
    assert_eq!(executor.recordings(), recordings);
    assert_eq!(after.recorded, before.recorded);
    assert_eq!((executor.memory(), executor.api().held()), (memory, held));
    // One wait per collected step; a step that changes page tables is two submissions.
    let steps = 20 * 65;
    assert!(after.waits - before.waits <= steps, "{before:?} {after:?}");
    let submitted = after.submitted - before.submitted;
    assert!(submitted >= steps && submitted <= 2 * steps, "{before:?} {after:?}");
}

#[test]
fn warm_plans_cover_decoding_from_the_first_step() {
    let subject = support::tiny("llama", "F16", DType::F16);
    let mut executor = fake(&subject, 4, GpuOptions::default());
    let params = SampleParams::default();
    let step = |executor: &mut GpuExecutor<FakeApi>, n: u32, at: u32| {
        let tokens: Vec<Vec<TokenIn>> = (0..n).map(|i| vec![TokenIn::Id(i)]).collect();
        let ticket = executor.submit(Phase::Forward, &batch(&tokens, at, &params)).unwrap();
        executor.collect(ticket, &mut StepOutput::default()).unwrap();
    };
    let recordings = executor.recordings();
    for at in 0..3 {
        (1..=4).for_each(|n| step(&mut executor, n, at));
    }
    assert_eq!(executor.recordings(), recordings);
}

#[test]
fn a_layer_is_a_handful_of_dispatches() {
    let subject = support::tiny("llama", "F16", DType::F16);
    let count = |fuse: bool| {
        let executor = fake(&subject, 1, GpuOptions { fuse, ..GpuOptions::default() });
        let plan = executor.decode_plan(1).unwrap();
        let layers = subject.program.states.len();
        println!("fused {fuse}: {} dispatches, {layers} layers", plan.len());
        (plan.len(), layers)
    };
    let ((fused, layers), (unfused, _)) = (count(true), count(false));
    // norm, q, k, v, rope and cache, attention, combine, o, norm, gate and up, down; and of the model:
    // embedding, last sum, gather, norm, head, sample.
    assert!(fused <= 11 * layers + 6, "{fused} dispatches for {layers} layers");
    assert!(unfused >= fused + 4 * layers, "{unfused} unfused, {fused} fused");
}

/// A later batch that outgrows the arena ends all recordings, also that of a step in flight.
#[test]
fn a_step_in_flight_survives_a_larger_one() {
    let subject = support::tiny("llama", "F16", DType::F16);
    let params = SampleParams::default();
    let wanting = |n_seqs: u32, want: Want| {
        let mut batch = batch(&prompts(n_seqs), 0, &params);
        batch.rows.iter_mut().for_each(|r| r.output = want);
        batch
    };
    let rows = |n: u32| {
        let mut executor = fake(&subject, 4, GpuOptions::default());
        let first = executor.submit(Phase::Forward, &wanting(1, Want::Logits)).unwrap();
        let mut out = [StepOutput::default(), StepOutput::default()];
        if n > 0 {
            // Every row of three prompts: more output rows than there are slots.
            let second = executor.submit(Phase::Forward, &wanting(n, Want::Logits)).unwrap();
            executor.collect(first, &mut out[0]).unwrap();
            executor.collect(second, &mut out[1]).unwrap();
        } else {
            executor.collect(first, &mut out[0]).unwrap();
        }
        let [first, second] = out;
        (first.rows, second.rows, executor.memory().scratch)
    };
    let ((alone, _, small), (first, second, large)) = (rows(0), rows(3));
    assert!(large > small, "the second step must have outgrown the arena: {small} {large}");
    assert_eq!(alone.len(), 9);
    assert_eq!(alone, first);
    assert_eq!(second.len(), 27);
    assert!(second.iter().all(|r| r.logits.iter().all(|x| x.is_finite())));
}
