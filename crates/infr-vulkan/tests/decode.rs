//! The decode path: tokens of the reference, chained steps that record nothing and hold no more memory.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;

use infr_backend::{
    Backend, Batch, Executor, ExpertPlacement, GroupRanges, PageTable, Placement, Row,
    SampleParams, SeqRows, Slot, StepOutput, TokenIn, Visible, Want,
};
use infr_gpu::{GpuExecutor, GpuOptions};
use infr_graph::Phase;
use infr_tensor::DType;
use infr_testkit::Subject;
use infr_testkit::ops::reference;
use infr_vulkan::VulkanApi;

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

/// Tokens of `n_seqs` sequences over `steps` steps, each taking the last token from the device.
fn chained(
    executor: &mut dyn Executor,
    n_seqs: u32,
    steps: u32,
    p: &SampleParams,
) -> Vec<Vec<u32>> {
    let mut out = StepOutput::default();
    let mut tokens = vec![Vec::new(); n_seqs as usize];
    let prompt = |i: u32| (0..9).map(|t| TokenIn::Id((i * 37 + t * 11) % 90)).collect();
    let prompts: Vec<Vec<TokenIn>> = (0..n_seqs).map(prompt).collect();
    let mut open = executor.submit(Phase::Forward, &batch(&prompts, 0, p)).unwrap();
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

fn executor(
    on: &support::Watched,
    subject: &Subject,
    slots: u32,
    options: GpuOptions,
) -> GpuExecutor<VulkanApi> {
    let api = on.backend.api(on.device()).unwrap();
    let device = infr_gpu::Device { api, selector: on.backend.selector(on.device()), options };
    let placement = placement(subject, slots);
    GpuExecutor::open(device, &subject.program, &*subject.weights, &placement).unwrap()
}

#[test]
fn tokens_are_those_of_the_reference() {
    let Some(on) = support::backend(GpuOptions::default()) else { return };
    let subject = support::tiny("llama", "Q8_0", DType::F16);
    let greedy = SampleParams::default();
    let warm = SampleParams { temperature: 0.9, top_k: 12, seed: 5, ..SampleParams::default() };
    let wide = SampleParams { temperature: 1.3, top_p: 0.8, seed: 6, ..SampleParams::default() };
    let floor = SampleParams { temperature: 1.1, min_p: 0.05, seed: 7, ..SampleParams::default() };
    // A draw near the edge between two tokens may fall on the other side, which rounding decides.
    for (params, steps) in [(greedy, 64), (warm, 16), (wide, 16), (floor, 16)] {
        let placement = placement(&subject, 3);
        let cpu = reference().open(&subject.program, &*subject.weights, &placement);
        let expected = chained(&mut *cpu.unwrap(), 3, steps, &params);
        for strict in [false, true] {
            let options = GpuOptions { strict, ..GpuOptions::default() };
            let found = chained(&mut executor(&on, &subject, 3, options), 3, steps, &params);
            assert_eq!(expected, found, "{params:?}, strict {strict}");
        }
    }
}

#[test]
fn ten_thousand_steps_record_nothing_and_hold_no_more_memory() {
    let Some(on) = support::backend(GpuOptions::default()) else { return };
    let subject = support::tiny("llama", "F16", DType::F16);
    let mut executor = executor(&on, &subject, 2, GpuOptions::default());
    let params = SampleParams::default();
    let first = chained(&mut executor, 2, 80, &params);
    let facts = |e: &GpuExecutor<VulkanApi>| (e.recordings(), e.memory(), e.api().n_buffers());
    let before = facts(&executor);
    for _ in 0..10_000 / 81 + 1 {
        assert_eq!(chained(&mut executor, 2, 80, &params), first);
    }
    assert_eq!(facts(&executor), before);
}
