//! Batches and operations that break the contract of the seam are refused, with a text that says why.

use std::sync::Arc;

use infr_backend::{
    Backend, BackendError, Batch, Executor, ExpertPlacement, GroupRanges, PageTable, Placement,
    Row, SampleParams, SeqRows, Slot, StateOp, StepOutput, Ticket, TokenIn, Visible, Want,
};
use infr_cpu::{CpuBackend, CpuOptions};
use infr_graph::Phase;
use infr_testkit::subject;

const GROUPS: usize = 3;

fn open() -> Box<dyn Executor> {
    let subject = subject::dense();
    assert_eq!(subject.program.cache_groups().len(), GROUPS);
    let placement = Placement {
        homes: Vec::new(),
        experts: ExpertPlacement::Resident,
        pages: vec![8; GROUPS],
        page_len: 4,
        slots: 2,
        max_rows: 6,
    };
    let backend = CpuBackend::new(CpuOptions { threads: 1, ..CpuOptions::reference() });
    backend.open(&subject.program, &*subject.weights, &placement).expect("a valid program")
}

/// One sequence of three rows and one of one row.
fn batch() -> Batch {
    let row = |seq: u16, at: u32| Row {
        token: TokenIn::Id(at),
        position: at,
        seq,
        write: Some(at),
        visible: GroupRanges::new(&[Visible { lo: 0, hi: at + 1 }; GROUPS]),
        output: Want::Token,
        mask: None,
    };
    let seq = |slot: u32, rows: std::ops::Range<u32>, page: u32| SeqRows {
        slot: Slot(slot),
        rows,
        pages: (0..GROUPS).map(|_| Arc::new(PageTable(vec![page, PageTable::NONE]))).collect(),
        sample: SampleParams::default(),
    };
    Batch {
        rows: vec![row(0, 0), row(0, 1), row(0, 2), row(1, 0)],
        seqs: vec![seq(0, 0..3, 5), seq(1, 3..4, 2)],
        carried: Vec::new(),
    }
}

/// Changes a valid batch and expects this text.
fn refused(change: impl FnOnce(&mut Batch), expected: &str) {
    let mut batch = batch();
    change(&mut batch);
    match open().submit(Phase::Forward, &batch) {
        Err(BackendError::InvalidBatch(text)) => {
            assert!(text.contains(expected), "{text:?} should contain {expected:?}");
        }
        other => panic!("{expected}: {other:?}"),
    }
}

#[test]
fn the_unchanged_batch_runs() {
    let mut executor = open();
    let ticket = executor.submit(Phase::Forward, &batch()).expect("a valid batch");
    let mut out = StepOutput::default();
    executor.collect(ticket, &mut out).expect("the oldest ticket");
    assert_eq!(out.rows.len(), 4);
    assert!(out.rows.iter().all(|r| r.token.is_some() && r.logprob.is_some_and(|l| l <= 0.0)));
}

#[test]
fn rows_and_sequences_that_disagree() {
    refused(|b| b.rows.truncate(3), "sequence 1 has rows 3..4");
    refused(|b| b.seqs.truncate(1), "sequences hold 3 rows of 4");
    refused(|b| b.seqs[1].rows = 2..4, "sequence 1 has rows 2..4, not 3..");
    refused(|b| b.rows[1].seq = 1, "row 1 names sequence 1, not 0");
    refused(|b| b.rows[2].position = 0, "row 2 goes back to position 0");
    refused(|b| b.rows[2].write = Some(1), "row 2 writes at Some(1) after Some(1)");
    refused(|b| b.seqs[1].slot = Slot(0), "slot 0 is used by two sequences");
    refused(|b| b.seqs[1].slot = Slot(2), "sequence 1 has slot 2 of 2");
    refused(
        |b| {
            let row = b.rows[3].clone();
            b.rows.extend([row.clone(), row.clone(), row]);
        },
        "7 rows, at most 6",
    );
}

#[test]
fn pages_that_do_not_exist() {
    let table = |pages: &[u32]| Arc::new(PageTable(pages.to_vec()));
    refused(|b| b.seqs[0].pages.truncate(2), "sequence 0 has 2 page tables, wants 3");
    refused(
        |b| b.rows[0].visible = GroupRanges::new(&[Visible { lo: 0, hi: 1 }]),
        "row 0 has 1 visible ranges, wants 3",
    );
    refused(|b| b.seqs[0].pages[1] = table(&[8]), "physical page 8 of group 1, which has 8");
    refused(|b| b.seqs[0].pages[2] = table(&[]), "row 0 reads page 0 of a table of 0, group 2");
    refused(
        |b| b.rows[2].visible = GroupRanges::new(&[Visible { lo: 0, hi: 5 }; GROUPS]),
        "row 2 reads page 1 of group 0, which is NONE",
    );
    refused(|b| b.rows[2].write = Some(6), "row 2 writes page 1 of group 0, which is NONE");
    refused(
        |b| b.rows[2].visible = GroupRanges::new(&[Visible { lo: 3, hi: 2 }; GROUPS]),
        "row 2 sees 3..2 in group 0",
    );
    refused(|b| b.seqs[1].pages[1] = table(&[5]), "row 0 of page 5 of group 1 is written twice");
}

#[test]
fn tokens_and_wishes_that_cannot_be() {
    refused(|b| b.rows[1].token = TokenIn::Id(96), "row 1 has token 96 of 96");
    refused(|b| b.rows[3].token = TokenIn::LastOf(Slot(1)), "nothing was sampled in slot 1");
    refused(|b| b.rows[3].token = TokenIn::Carried(0), "row 3 is carried row 0 of 0");
    refused(|b| b.seqs[0].sample.repeat_penalty = 1.1, "penalties need the tokens before");
}

#[test]
fn tickets_are_collected_in_order() {
    let mut executor = open();
    let first = executor.submit(Phase::Forward, &batch()).expect("a valid batch");
    let second = executor.submit(Phase::Forward, &batch()).expect("a valid batch");
    assert!(matches!(
        executor.submit(Phase::Forward, &batch()),
        Err(BackendError::InvalidBatch(_))
    ));
    let mut out = StepOutput::default();
    assert!(executor.collect(second, &mut out).is_err());
    executor.collect(first, &mut out).expect("the oldest ticket");
    executor.collect(second, &mut out).expect("the oldest ticket");
    assert!(executor.collect(Ticket(7), &mut out).is_err());
    assert!(matches!(executor.submit(Phase::Denoise, &batch()), Err(BackendError::Unsupported(_))));
}

#[test]
fn state_operations_outside_the_pools() {
    let mut executor = open();
    let mut bytes = Vec::new();
    let mut fails =
        |mut op: StateOp<'_>, expected: &str| match executor.state(std::slice::from_mut(&mut op)) {
            Err(BackendError::InvalidBatch(text)) => assert!(text.contains(expected), "{text}"),
            other => panic!("{expected}: {other:?}"),
        };
    fails(StateOp::CopyPage { group: 0, from: 0, to: 8 }, "page 8 of group 0");
    fails(StateOp::ReadPage { group: 3, page: 0, out: &mut bytes }, "cache group 3 of 3");
    fails(StateOp::WritePage { group: 0, page: 0, data: &[0; 3] }, "a page of 3 bytes, wants 512");
    fails(StateOp::Clear(Slot(2)), "slot 2 of 2");
    fails(StateOp::WriteSlot { slot: Slot(0), data: &[0] }, "a slot of 1 bytes, wants 0");
}

#[test]
fn a_cleared_slot_has_no_last_token() {
    let mut executor = open();
    let ticket = executor.submit(Phase::Forward, &batch()).expect("a valid batch");
    executor.collect(ticket, &mut StepOutput::default()).expect("the oldest ticket");
    let mut next = batch();
    next.rows[3].token = TokenIn::LastOf(Slot(1));
    let ticket = executor.submit(Phase::Forward, &next).expect("slot 1 has a token");
    executor.collect(ticket, &mut StepOutput::default()).expect("the oldest ticket");
    executor.state(&mut [StateOp::Clear(Slot(1))]).expect("the slot exists");
    assert!(executor.submit(Phase::Forward, &next).is_err());
}
