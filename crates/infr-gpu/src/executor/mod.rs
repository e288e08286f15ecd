//! A program opened on one device.
//!
//! A step is: check the batch, find the plan of its shape class, write the batch arrays of the free ring slot,
//! submit the plan's recording. Nothing is recorded once a class has been met in both ring slots, and
//! nothing waits for the device but `collect` and the operations that read it.
//!
//! Reading order: this file (a step), `base` (what lowering stands on), `open`, `record` (plans and their
//! buffers), `values` (for `eval`).

mod base;
mod open;
mod record;
mod values;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use infr_backend::{
    BackendError, Batch, Contract, Executor, MemoryReport, Slot, StateOp, StepOutput, Ticket,
    TokenIn,
};
use infr_graph::{Phase, ShapeClass};
use infr_kernels::Selector;

use crate::api::Api;
use crate::batch_buffers::{Filling, MAX_PATCHES};
use crate::dispatch::Dispatch;
use crate::options::GpuOptions;
use crate::outputs::{Pending, Written};
use crate::plan::{Back, BackValue};
use crate::states::{Patch, States};
use crate::weights::Weights;
use base::{Base, Sizes, class_of, no_graph};
use record::{Key, Recorded, RingSlot};

/// Steps that may wait for collection, and buffers for what they need.
const RING: usize = 2;

/// A submitted step.
#[derive(Debug)]
struct InFlight {
    ticket: Ticket,
    value: u64,
    key: Key,
    n_rows: usize,
    /// What it copies to the host; its recording may be gone when it is collected.
    back: Arc<[BackValue]>,
    rows: Vec<Pending>,
    /// Its results, when they had to be taken before they were asked for.
    done: Option<StepOutput>,
}

/// Runs a program on one device.
#[derive(Debug)]
pub struct GpuExecutor<A: Api> {
    api: A,
    base: Base,
    loaded: Weights<A::Buffer>,
    rope_buffer: Option<A::Buffer>,
    states: States<A::Buffer>,
    ring: Vec<RingSlot<A>>,
    arena: A::Buffer,
    arena_bytes: u64,
    recorded: HashMap<Key, Recorded<A::Recording>>,
    recordings: u64,
    /// The last value that a submission will give the timeline.
    timeline: u64,
    next_ticket: u64,
    open: VecDeque<InFlight>,
    /// The plan that was submitted last.
    last: Option<Key>,
    max_rows: u32,
    /// Tokens that the host drew and the device does not know yet.
    drawn: Vec<(Slot, u32)>,
    patches: Vec<Patch>,
}

/// What an executor is opened with, beside the program.
#[derive(Debug)]
pub struct Device<A> {
    /// The API on one device.
    pub api: A,
    /// Its kernels and how they are chosen.
    pub selector: Selector,
    /// How work is planned.
    pub options: GpuOptions,
}

impl<A: Api> GpuExecutor<A> {
    /// How many recordings were made so far: stays as it is while decoding.
    pub fn recordings(&self) -> u64 {
        self.recordings
    }

    /// The device's API, for tests and profiles.
    pub fn api(&self) -> &A {
        &self.api
    }

    /// Dispatches of the plan of a batch with `rows` sequences of one row each.
    ///
    /// # Errors
    /// When an op or a type has no kernel.
    pub fn decode_plan(&self, rows: u32) -> Result<Vec<Dispatch>, BackendError> {
        let class = self.class(Sizes { rows, seqs: rows, out: rows });
        let plan = self.base.plan(Phase::Forward, class)?;
        let arena = self.api.address(&self.arena);
        Ok(plan.lower(self.base.ground(), &self.ring[0].batch.places, arena)?.dispatches)
    }

    fn class(&self, sizes: Sizes) -> ShapeClass {
        class_of(self.max_rows, sizes, &self.base.selector)
    }

    fn next_value(&mut self) -> u64 {
        self.timeline += 1;
        self.timeline
    }

    /// Takes the results of an open step, waiting for it.
    fn finish(&mut self, index: usize) -> Result<(), BackendError> {
        if self.open[index].done.is_some() {
            return Ok(());
        }
        self.api.wait(self.open[index].value)?;
        let step = &mut self.open[index];
        let slot = &mut self.ring[step.key.ring];
        let written = Written {
            api: &self.api,
            results: &slot.batch.results,
            back: &step.back,
            buffer: slot.back.as_ref().map(|(buffer, _)| buffer),
            n_rows: step.n_rows,
        };
        let mut out = StepOutput::default();
        let drawn = written.collect(&step.rows, &mut out);
        step.done = Some(out);
        slot.busy = false;
        for (slot, token) in drawn {
            self.drawn.retain(|(s, _)| *s != slot);
            // A later step that is already submitted has the last word.
            let mut later = self.open.iter().skip(index + 1).flat_map(|step| &step.rows);
            if !later.any(|row| row.samples() && row.slot == slot) {
                self.drawn.push((slot, token));
            }
        }
        Ok(())
    }

    /// Sends changed table entries and tokens drawn by the host, before the step that needs them.
    fn send_patches(&mut self, batch: &Batch, ring: usize) -> Result<(), BackendError> {
        self.patches.clear();
        self.states.table_patches(batch, &mut self.patches)?;
        self.patches.extend(self.drawn.drain(..).map(|(slot, token)| [slot.0, token]));
        let patches = std::mem::take(&mut self.patches);
        let pieces = patches.chunks(MAX_PATCHES as usize);
        let n_pieces = pieces.len();
        for (index, piece) in pieces.enumerate() {
            self.ring[ring].batch.fill_patches(&mut self.api, piece);
            let value = self.next_value();
            self.api.submit(&self.ring[ring].patch, value)?;
            if index + 1 < n_pieces {
                // The next piece goes where this one lies.
                self.api.wait(value)?;
            }
        }
        self.patches = patches;
        Ok(())
    }

    /// A token that the host draws is not on the device: the step that draws it ends first.
    fn finish_for_tokens(&mut self, batch: &Batch) -> Result<(), BackendError> {
        for index in 0..self.open.len() {
            let draws =
                |slot: Slot| self.open[index].rows.iter().any(|r| r.on_host() && r.slot == slot);
            let waits = batch.rows.iter().any(|row| match row.token {
                TokenIn::LastOf(slot) => draws(slot),
                TokenIn::Id(_) | TokenIn::Carried(_) => false,
            });
            if waits {
                self.finish(index)?;
            }
        }
        Ok(())
    }
}

impl<A: Api> Executor for GpuExecutor<A> {
    fn submit(&mut self, phase: Phase, batch: &Batch) -> Result<Ticket, BackendError> {
        if self.open.len() >= RING {
            return Err(BackendError::InvalidBatch(format!("{RING} steps are not collected")));
        }
        let graph = self.base.signatures.iter().find(|s| s.phase == phase);
        let graph = graph.ok_or_else(|| no_graph(phase))?;
        Contract {
            hidden: graph.hidden.is_some(),
            logits: graph.logits.is_some(),
            vocab: graph.vocab,
            carried: &graph.carried,
            carried_tokens: false,
            pages: &self.states.pages,
            page_len: self.states.page_len,
            slots: self.states.sampled.len() as u32,
            sampled: &|slot| self.states.sampled[slot.0 as usize],
            max_rows: self.max_rows,
        }
        .check(batch)?;
        let out_rows = batch.out_rows();
        let pending = |row_idx: &u32| {
            let row = &batch.rows[*row_idx as usize];
            let seq = &batch.seqs[usize::from(row.seq)];
            Pending::new(row, seq.slot, &seq.sample, graph.samples)
        };
        let rows: Vec<Pending> = out_rows.iter().map(pending).collect();
        let carries = graph.carries;
        self.finish_for_tokens(batch)?;
        let Some(ring) = self.ring.iter().position(|r| !r.busy) else {
            return Err(BackendError::InvalidBatch("both ring slots are busy".into()));
        };
        let class = self.class(Sizes {
            rows: batch.rows.len() as u32,
            seqs: batch.seqs.len() as u32,
            out: out_rows.len() as u32,
        });
        let back = Back {
            logits: rows.iter().any(Pending::needs_logits),
            hidden: rows.iter().any(Pending::needs_hidden),
            carried: carries,
        };
        let key = Key { phase, class, back, ring };
        self.prepare(key)?;
        self.send_patches(batch, ring)?;
        let sampled: Vec<bool> = rows.iter().map(|r| !r.on_host()).collect();
        let filling = Filling {
            batch,
            out_rows: &out_rows,
            sampled: &sampled,
            page_len: self.states.page_len,
            q_tile: self.base.q_tile(),
        };
        self.ring[ring].batch.fill(&mut self.api, &filling);
        let value = self.next_value();
        self.api.submit(&self.recorded[&key].recording, value)?;
        for row in rows.iter().filter(|r| r.samples()) {
            self.states.sampled[row.slot.0 as usize] = true;
        }
        self.ring[ring].busy = true;
        self.last = Some(key);
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        let n_rows = batch.rows.len();
        let back = Arc::clone(&self.recorded[&key].back);
        self.open.push_back(InFlight { ticket, value, key, n_rows, back, rows, done: None });
        Ok(ticket)
    }

    fn collect(&mut self, ticket: Ticket, out: &mut StepOutput) -> Result<(), BackendError> {
        match self.open.front() {
            Some(oldest) if oldest.ticket == ticket => {}
            other => {
                let oldest = other.map(|step| step.ticket.0);
                return Err(BackendError::InvalidBatch(format!(
                    "ticket {} is not the oldest open one, which is {oldest:?}",
                    ticket.0
                )));
            }
        }
        self.finish(0)?;
        if let Some(result) = self.open.pop_front().and_then(|step| step.done) {
            *out = result;
        }
        Ok(())
    }

    fn state(&mut self, ops: &mut [StateOp<'_>]) -> Result<(), BackendError> {
        for op in ops {
            let value = self.timeline + 1;
            if self.states.apply(&mut self.api, op, value)? {
                self.timeline = value;
            }
            if let StateOp::Clear(slot) = op {
                // A token drawn before the slot was given away must not come back.
                self.drawn.retain(|(s, _)| s != slot);
            }
        }
        Ok(())
    }

    fn memory(&self) -> MemoryReport {
        let ring = |r: &RingSlot<A>| r.batch.bytes + r.back.as_ref().map_or(0, |(_, b)| *b);
        MemoryReport {
            weights: self.loaded.bytes,
            pages: self.states.bytes,
            slots: 0,
            scratch: self.arena_bytes + self.ring.iter().map(ring).sum::<u64>(),
        }
    }
}
