//! The engine's thread: one turn after another, each of which takes what callers left, admits,
//! submits a step or collects one.
//!
//! With two steps in flight, step N+1 is submitted before step N is collected. A sequence that is
//! found to have ended in step N has a row in step N+1 whose output is thrown away; the page it
//! writes is still the sequence's own, so that row harms nobody. Its slot and pages are given back
//! when that step was collected.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use infr_backend::{BackendError, Batch, Executor, Placement, RowOut, StateOp, StepOutput, Ticket};
use infr_graph::{Program, StateKind};

use crate::batcher;
use crate::cache::Cache;
use crate::driver::{Carried, Drivers, End, SeqOutput, Style};
use crate::engine::{EngineOptions, EngineSource, Shared, Shutdown, Submission};
use crate::error::EngineError;
use crate::event::Event;
use crate::placement::Plan;
use crate::scheduler::{Pick, Prepare, Rules, Running, Scheduler};
use crate::sequence::Job;
use crate::slots::Snapshots;
use crate::stats::{Health, Stats};

/// How long the thread sleeps while it waits for a caller to take rows.
const PAUSED: Duration = Duration::from_millis(5);
/// How long it sleeps with nothing to do; a submission wakes it.
const IDLE: Duration = Duration::from_secs(60);
/// Losses of the device after which a request that ran each time is given up.
const MOST_LOSSES: u32 = 1;

/// What the thread starts with.
pub(crate) struct Setup {
    pub(crate) executor: Box<dyn Executor>,
    pub(crate) program: Arc<Program>,
    pub(crate) plan: Plan,
    pub(crate) options: EngineOptions,
    pub(crate) source: Option<EngineSource>,
    pub(crate) style: Style,
    pub(crate) vocab: u32,
}

/// A sequence's part of a step in flight.
struct Part {
    id: u64,
    /// Positions of the rows that give something back.
    positions: Vec<u32>,
    /// One behind the last position.
    end: u32,
}

/// A step in flight.
struct Flight {
    ticket: Ticket,
    parts: Vec<Part>,
    prompt: bool,
    at: Instant,
}

struct Stepper<'a> {
    shared: &'a Shared,
    setup: Fixed,
    /// `None` after the device was lost and could not be opened again.
    executor: Option<Box<dyn Executor>>,
    scheduler: Scheduler,
    flights: VecDeque<Flight>,
    shutdown: Option<Shutdown>,
    next_id: u64,
    collected: Instant,
    output: StepOutput,
    stats: Stats,
}

/// What does not change.
struct Fixed {
    program: Arc<Program>,
    plan: Plan,
    options: EngineOptions,
    source: Option<EngineSource>,
}

/// Marks the engine as ended, also when the thread panics: later requests are refused and those in
/// the inbox end with `Stopped`.
struct Ending<'a>(&'a Shared);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let left = {
            let mut inbox = self.0.inbox();
            inbox.ended = true;
            std::mem::take(&mut inbox.submissions)
        };
        drop(left);
    }
}

/// Runs the engine until it is shut down.
pub(crate) fn run(setup: Setup, shared: &Shared) {
    let _ending = Ending(shared);
    let mut stepper = Stepper::new(setup, shared);
    while stepper.turn() {}
    stepper.publish();
}

fn is_recurrent(program: &Program) -> bool {
    program.states.iter().any(|s| matches!(s.kind, StateKind::Slot { .. }))
}

impl Fixed {
    fn cache(&self) -> Cache {
        let Placement { pages, page_len, .. } = &self.plan.placement;
        let snapshots =
            is_recurrent(&self.program).then(|| Snapshots::new(self.plan.snapshot_bytes));
        let groups = self.program.cache_groups();
        let keep = self.options.prefix_cache && self.plan.causal;
        Cache::new(&groups, pages, *page_len, snapshots, keep)
    }
}

impl<'a> Stepper<'a> {
    fn new(setup: Setup, shared: &'a Shared) -> Stepper<'a> {
        let Setup { executor, program, plan, options, source, style, vocab } = setup;
        let (causal, output_rows) = (plan.causal, options.output_rows);
        let rules = Rules {
            max_rows: plan.placement.max_rows,
            drivers: Drivers { style, causal, output_rows, vocab },
            reserve: options.reserve,
            prefix_cache: options.prefix_cache && plan.causal,
            recurrent: is_recurrent(&program),
            reaches: program.cache_groups().iter().map(|g| g.reach).collect(),
        };
        let slots = plan.placement.slots;
        let setup = Fixed { program, plan, options, source };
        let scheduler = Scheduler::new(rules, setup.cache(), slots);
        Stepper {
            shared,
            setup,
            executor: Some(executor),
            scheduler,
            flights: VecDeque::new(),
            shutdown: None,
            next_id: 0,
            collected: Instant::now(),
            output: StepOutput::default(),
            stats: Stats::default(),
        }
    }

    /// One turn; `false` when the engine is to end.
    fn turn(&mut self) -> bool {
        self.take_inbox();
        self.scheduler.expire(Instant::now());
        self.retire();
        self.admit();
        self.publish();
        let depth = self.setup.options.steps_in_flight as usize;
        let idle = self.flights.is_empty();
        if self.flights.len() < depth && (idle || !self.scheduler.must_wait()) && self.submit() {
            return true;
        }
        if self.collect() {
            return true;
        }
        let empty = self.scheduler.running.is_empty() && self.scheduler.waiting.is_empty();
        if !empty {
            // Either a caller has to take rows, or the turn ended a sequence without a step.
            self.shared.wait(PAUSED);
        } else if self.shutdown.is_some() {
            return false;
        } else {
            self.shared.wait(IDLE);
        }
        true
    }

    fn take_inbox(&mut self) {
        let submissions = {
            let mut inbox = self.shared.inbox();
            inbox.nudged = false;
            self.shutdown = inbox.shutdown;
            std::mem::take(&mut inbox.submissions)
        };
        for submission in submissions {
            self.enqueue(submission);
        }
        if self.shutdown == Some(Shutdown::Now) {
            self.scheduler.cancel_all();
        }
    }

    fn enqueue(&mut self, submission: Submission) {
        let context = self.setup.plan.context;
        let block = self.scheduler.rules.drivers.style.block();
        let job = Job::new(self.next_id, submission, context, block);
        self.next_id += 1;
        self.scheduler.enqueue(job, context, self.setup.options.queue);
    }

    /// Takes back what ended sequences hold.
    fn retire(&mut self) {
        let (running, waiting) = self.scheduler.take_ended();
        for ended in running {
            self.keep_state(ended);
        }
        for job in waiting {
            self.count(&job);
        }
    }

    /// Gives back one ended sequence, after a snapshot of its recurrent states.
    fn keep_state(&mut self, mut ended: Running) {
        let seq = &mut ended.seq;
        let rows = seq.submitted;
        let cache = &mut self.scheduler.cache;
        cache.register(&mut seq.pages, &seq.job.tokens, rows);
        if seq.snapshots
            && cache.wants_snapshot(&seq.pages, &seq.job.tokens, rows)
            && let Some(executor) = &mut self.executor
        {
            let mut data = Vec::new();
            let mut op = [StateOp::ReadSlot { slot: seq.slot, out: &mut data }];
            // Without the snapshot the next turn computes more; a lost device shows in its step.
            if executor.state(&mut op).is_ok() {
                cache.keep_snapshot(&seq.pages, &seq.job.tokens, rows, data);
            }
        }
        let job = self.scheduler.give_back(ended);
        self.count(&job);
    }

    fn count(&mut self, job: &Job) {
        match job.told.failed {
            true => self.stats.failed += 1,
            false => self.stats.finished += 1,
        }
    }

    fn admit(&mut self) {
        if self.executor.is_none() && !self.scheduler.waiting.is_empty() {
            self.reopen();
        }
        if self.executor.is_none() {
            return;
        }
        for prepare in self.scheduler.admit() {
            if let Err(error) = self.prepare(&prepare) {
                self.lose(&error);
                return;
            }
        }
    }

    /// Brings pages and recurrent states into the state that an admitted sequence starts from.
    fn prepare(&mut self, prepare: &Prepare) -> Result<(), EngineError> {
        let Some(executor) = &mut self.executor else { return Ok(()) };
        let mut ops: Vec<StateOp<'_>> = Vec::new();
        for copy in &prepare.copies {
            ops.push(StateOp::CopyPage { group: copy.group, from: copy.from, to: copy.to });
        }
        if self.scheduler.rules.recurrent {
            ops.push(match &prepare.snapshot {
                Some(data) => StateOp::WriteSlot { slot: prepare.slot, data },
                None => StateOp::Clear(prepare.slot),
            });
        }
        if !ops.is_empty() {
            executor.state(&mut ops)?;
        }
        Ok(())
    }

    /// Submits a step; `false` when there is nothing to compute.
    fn submit(&mut self) -> bool {
        let Some(executor) = &mut self.executor else { return false };
        let picks = self.scheduler.pick(self.flights.is_empty(), self.shutdown.is_some());
        let Some(first) = picks.first() else { return false };
        let phase = first.work.phase;
        let mut batch = Batch::default();
        let mut parts = Vec::with_capacity(picks.len());
        let mut marks = Vec::new();
        let mut prompt = false;
        let reaches = std::mem::take(&mut self.scheduler.rules.reaches);
        for Pick { id, work } in picks {
            let Some(running) = self.scheduler.find(id) else { continue };
            prompt |= running.seq.in_prefill();
            let end = work.rows.last().map_or(0, |row| row.position + 1);
            if work.commit {
                running.seq.submitted = end;
            }
            if work.mark {
                marks.push(id);
            }
            running.seq.in_flight += 1;
            let positions = batcher::add(&mut batch, &reaches, &running.seq, work);
            parts.push(Part { id, positions, end });
        }
        self.scheduler.rules.reaches = reaches;
        self.stats.steps += 1;
        self.stats.rows += batch.rows.len() as u64;
        match executor.submit(phase, &batch) {
            Ok(ticket) => {
                let at = Instant::now();
                self.flights.push_back(Flight { ticket, parts, prompt, at });
                self.registered(&marks);
            }
            Err(BackendError::DeviceLost) => {
                self.lose(&BackendError::DeviceLost.into());
            }
            Err(error) => self.refused(&parts, &error.into()),
        }
        true
    }

    /// Enters the pages that the last step filled into the prefix tree, and takes snapshots.
    fn registered(&mut self, marks: &[u64]) {
        let Some(flight) = self.flights.back() else { return };
        let ids: Vec<u64> = flight.parts.iter().map(|p| p.id).collect();
        for id in ids {
            let Ok(index) = self.scheduler.running.binary_search_by_key(&id, |r| r.seq.job.id)
            else {
                continue;
            };
            let seq = &mut self.scheduler.running[index].seq;
            let cache = &mut self.scheduler.cache;
            cache.register(&mut seq.pages, &seq.job.tokens, seq.submitted);
            let rows = seq.submitted;
            if !marks.contains(&id) || !cache.wants_snapshot(&seq.pages, &seq.job.tokens, rows) {
                continue;
            }
            let Some(executor) = &mut self.executor else { return };
            let mut data = Vec::new();
            let mut op = [StateOp::ReadSlot { slot: seq.slot, out: &mut data }];
            match executor.state(&mut op) {
                Ok(()) => cache.keep_snapshot(&seq.pages, &seq.job.tokens, rows, data),
                Err(error) => return self.lose(&error.into()),
            }
        }
    }

    /// A step was not taken: the sequences in it fail, the device goes on.
    fn refused(&mut self, parts: &[Part], error: &EngineError) {
        tracing::error!(%error, "a step was refused");
        for part in parts {
            if let Some(running) = self.scheduler.find(part.id) {
                running.seq.in_flight -= 1;
                // Its last rows were not computed, so nothing behind the registered pages is kept.
                running.seq.submitted = 0;
                running.seq.job.end(Event::Failed(error.clone()));
            }
        }
    }

    /// Collects the oldest step; `false` when none is in flight.
    fn collect(&mut self) -> bool {
        let Some(flight) = self.flights.pop_front() else { return false };
        let Some(executor) = &mut self.executor else { return false };
        self.output.rows.clear();
        self.output.carried.clear();
        if let Err(error) = executor.collect(flight.ticket, &mut self.output) {
            self.lose(&error.into());
            return true;
        }
        let now = Instant::now();
        let took = now.saturating_duration_since(flight.at.max(self.collected));
        self.collected = now;
        match flight.prompt {
            true => self.stats.prefill_time += took,
            false => self.stats.decode_time += took,
        }
        let wanted: usize = flight.parts.iter().map(|p| p.positions.len()).sum();
        if self.output.rows.len() != wanted {
            let what = format!("{} output rows came, {wanted} were wanted", self.output.rows.len());
            self.lose(&BackendError::InvalidBatch(what).into());
            return true;
        }
        let mut output = std::mem::take(&mut self.output);
        let mut rest = &mut output.rows[..];
        let mut start = 0;
        for part in &flight.parts {
            let (rows, behind) = std::mem::take(&mut rest).split_at_mut(part.positions.len());
            rest = behind;
            let carried = Carried { values: &output.carried, rows: start..start + rows.len() };
            start += rows.len();
            self.absorb(part, rows, carried);
        }
        self.output = output;
        true
    }

    fn absorb(&mut self, part: &Part, rows: &mut [RowOut], carried: Carried<'_>) {
        let Ok(index) = self.scheduler.running.binary_search_by_key(&part.id, |r| r.seq.job.id)
        else {
            return;
        };
        let running = &mut self.scheduler.running[index];
        let seq = &mut running.seq;
        seq.in_flight -= 1;
        if seq.ended() {
            self.stats.discarded_rows += part.positions.len() as u64;
            return;
        }
        let before = seq.job.tokens.len();
        let out = SeqOutput { positions: &part.positions, rows, carried, end: part.end };
        let absorbed = running.driver.absorb(seq, out);
        self.stats.generated_tokens += (seq.job.tokens.len() - before) as u64;
        for event in absorbed.events {
            seq.job.sink.send(event);
        }
        let cache = &mut self.scheduler.cache;
        cache.register(&mut seq.pages, &seq.job.tokens, seq.submitted);
        match absorbed.end {
            Some(End::Finished(reason)) => seq.job.finish(reason),
            Some(End::Failed(error)) => seq.job.end(Event::Failed(error)),
            None => {}
        }
    }

    /// The device failed: what ran is computed again on a new one where there can be one.
    fn lose(&mut self, error: &EngineError) {
        tracing::error!(%error, "the device failed");
        self.flights.clear();
        self.executor = None;
        self.stats.device_losses += 1;
        // Told before the requests end: whoever sees one fail finds the reason.
        self.stats.health = Health::Down(error.to_string());
        self.publish();
        let can_reopen = self.setup.source.is_some();
        let cache = self.setup.cache();
        let ended = self.scheduler.reset(cache, self.setup.plan.placement.slots, |job| {
            job.losses += 1;
            let again = can_reopen && job.losses <= MOST_LOSSES;
            if !again {
                job.end(Event::Failed(error.clone()));
            }
            again
        });
        for job in ended {
            self.count(&job);
        }
    }

    /// Opens the device again; what waits fails when that is not possible.
    fn reopen(&mut self) {
        let opened = match &self.setup.source {
            Some(source) => {
                let placement = &self.setup.plan.placement;
                source.backend.open(&source.program, &*source.weights, placement)
            }
            None => Err(BackendError::DeviceLost),
        };
        match opened {
            Ok(executor) => {
                self.executor = Some(executor);
                self.stats.health = Health::Ok;
            }
            Err(error) => {
                let error = EngineError::from(error);
                self.stats.health = Health::Down(error.to_string());
                self.publish();
                self.scheduler.end_all(|job| job.end(Event::Failed(error.clone())));
            }
        }
    }

    /// Tells the state of things.
    fn publish(&mut self) {
        let scheduler = &self.scheduler;
        self.stats.queued = scheduler.waiting.len() as u32;
        self.stats.running = scheduler.running.len() as u32;
        self.stats.started = scheduler.admitted.requests;
        self.stats.prompt_tokens = scheduler.admitted.prompt_tokens;
        self.stats.cached_tokens = scheduler.admitted.cached_tokens;
        self.stats.preemptions = scheduler.preemptions;
        self.stats.pages = scheduler.cache.stats();
        self.stats.snapshots = scheduler.cache.snapshots.count();
        self.stats.snapshot_bytes = scheduler.cache.snapshots.bytes();
        *self.shared.stats() = self.stats.clone();
    }
}
