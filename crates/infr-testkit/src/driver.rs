//! Runs sequences on an executor as an engine does, with pages in random order.

use std::sync::Arc;

use infr_backend::{
    Backend, Batch, Executor, ExpertPlacement, GroupRanges, PageTable, Placement, Row, RowOut,
    SampleParams, SeqRows, Slot, StateOp, StepOutput, Ticket, TokenIn, Want,
};
use infr_graph::{CacheGroup, Phase, Reach};

use crate::maker::visible;
use crate::rng::Rng;
use crate::subject::Subject;

/// Rows of the largest batch.
const MAX_ROWS: u32 = 512;
/// Rows that a sequence may have.
const MAX_LEN: u32 = 320;
/// Slots of the executor.
const SLOTS: u32 = 6;

/// An executor with its free pages.
pub struct Driver {
    executor: Box<dyn Executor>,
    groups: Vec<CacheGroup>,
    page_len: u32,
    free: Vec<Vec<u32>>,
    slots: Vec<Slot>,
}

/// A sequence on the executor.
#[derive(Debug)]
pub struct Sequence {
    /// Its slot.
    pub slot: Slot,
    /// Physical pages per group.
    pub pages: Vec<Vec<u32>>,
    /// Rows in the cache.
    pub len: u32,
    /// How its tokens are drawn.
    pub sample: SampleParams,
}

/// Rows of one sequence in a step.
pub struct Work<'a> {
    /// The sequence.
    pub seq: &'a mut Sequence,
    /// Its tokens.
    pub tokens: &'a [TokenIn],
    /// What every row gives back.
    pub want: Want,
}

impl Driver {
    /// Opens a subject with room for some sequences of 320 rows, pages handed out in random order.
    ///
    /// # Panics
    /// When the backend cannot open it.
    pub fn new(backend: &dyn Backend, subject: &Subject, page_len: u32, seed: u64) -> Driver {
        let groups = subject.program.cache_groups();
        let n_pages = MAX_LEN.div_ceil(page_len) * SLOTS;
        let placement = Placement {
            homes: Vec::new(),
            experts: ExpertPlacement::Resident,
            pages: vec![n_pages; groups.len()],
            page_len,
            slots: SLOTS,
            max_rows: MAX_ROWS,
        };
        let executor = backend
            .open(&subject.program, &*subject.weights, &placement)
            .unwrap_or_else(|e| panic!("{}: {e}", subject.name));
        let mut rng = Rng::new(seed);
        let free = groups.iter().map(|_| rng.permutation(n_pages)).collect();
        let slots = rng.permutation(SLOTS).into_iter().map(Slot).collect();
        Driver { executor, groups, page_len, free, slots }
    }

    /// A new sequence in a cleared slot.
    ///
    /// # Panics
    /// When no slot is left or the executor fails.
    pub fn start(&mut self) -> Sequence {
        let slot = self.slots.pop().expect("a slot is free");
        self.state(&mut [StateOp::Clear(slot)]);
        let pages = vec![Vec::new(); self.groups.len()];
        Sequence { slot, pages, len: 0, sample: SampleParams::default() }
    }

    /// Gives a sequence's slot and pages back.
    pub fn end(&mut self, seq: Sequence) {
        self.slots.push(seq.slot);
        for (free, pages) in self.free.iter_mut().zip(seq.pages) {
            free.extend(pages.into_iter().filter(|p| *p != PageTable::NONE));
        }
    }

    /// A page of a group that no sequence holds.
    ///
    /// # Panics
    /// When none is left.
    pub fn take_page(&mut self, group: usize) -> u32 {
        self.free[group].pop().expect("a page is free")
    }

    /// Number of cache groups.
    pub fn n_groups(&self) -> usize {
        self.groups.len()
    }

    /// Runs state operations.
    ///
    /// # Panics
    /// When the executor fails.
    pub fn state(&mut self, ops: &mut [StateOp<'_>]) {
        self.executor.state(ops).unwrap_or_else(|e| panic!("state operation: {e}"));
    }

    /// Submits a step.
    ///
    /// # Panics
    /// When the executor fails.
    pub fn submit(&mut self, work: &mut [Work<'_>]) -> Ticket {
        let mut batch = Batch::default();
        for (index, Work { seq, tokens, want }) in work.iter_mut().enumerate() {
            let first = batch.rows.len() as u32;
            let end = seq.len + tokens.len() as u32;
            self.make_room(seq, end);
            for (token, at) in tokens.iter().zip(seq.len..) {
                let ranges = self.groups.iter().map(|g| visible(g.reach, at, end));
                batch.rows.push(Row {
                    token: *token,
                    position: at,
                    seq: index as u16,
                    write: Some(at),
                    visible: GroupRanges::new(&ranges.collect::<Vec<_>>()),
                    output: *want,
                    mask: None,
                });
            }
            batch.seqs.push(SeqRows {
                slot: seq.slot,
                rows: first..batch.rows.len() as u32,
                pages: seq.pages.iter().map(|p| Arc::new(PageTable(p.clone()))).collect(),
                sample: seq.sample.clone(),
            });
            seq.len = end;
        }
        let result = self.executor.submit(Phase::Forward, &batch);
        result.unwrap_or_else(|e| panic!("step of {} rows: {e}", batch.rows.len()))
    }

    /// Takes the results of a step.
    ///
    /// # Panics
    /// When the executor fails.
    pub fn collect(&mut self, ticket: Ticket) -> Vec<RowOut> {
        let mut out = StepOutput::default();
        self.executor.collect(ticket, &mut out).unwrap_or_else(|e| panic!("collect: {e}"));
        out.rows
    }

    /// Runs a step.
    pub fn step(&mut self, work: &mut [Work<'_>]) -> Vec<RowOut> {
        let ticket = self.submit(work);
        self.collect(ticket)
    }

    /// Logits after every token.
    pub fn logits(&mut self, seq: &mut Sequence, tokens: &[u32]) -> Vec<Vec<f32>> {
        let tokens: Vec<TokenIn> = tokens.iter().map(|t| TokenIn::Id(*t)).collect();
        let rows = self.step(&mut [Work { seq, tokens: &tokens, want: Want::Logits }]);
        rows.into_iter().map(|r| r.logits).collect()
    }

    /// Adds pages up to row `end`, and gives those back that no later row can see.
    fn make_room(&mut self, seq: &mut Sequence, end: u32) {
        let page_len = self.page_len;
        for (index, group) in self.groups.iter().enumerate() {
            let pages = &mut seq.pages[index];
            let first_seen = match group.reach {
                Reach::Full | Reach::Symmetric(_) => 0,
                Reach::Window(n) => (seq.len + 1).saturating_sub(n),
                Reach::Chunk(n) => seq.len / n * n,
            };
            for page in pages.iter_mut().take((first_seen / page_len) as usize) {
                if *page != PageTable::NONE {
                    self.free[index].push(std::mem::replace(page, PageTable::NONE));
                }
            }
            while (pages.len() as u32) < end.div_ceil(page_len) {
                pages.push(self.free[index].pop().expect("a page is free"));
            }
        }
    }
}
