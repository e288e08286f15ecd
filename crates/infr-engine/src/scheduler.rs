//! Who runs, and what the next step holds.
//!
//! A step is of one phase, and phases that have work take turns. Decoding sequences come first, in
//! turn where the row budget is too small for all, so that prompts never hold up answers; what is
//! left of the budget goes to prompts in turn, each step beginning behind the one that was served
//! first in the last. With [`Reserve::Full`] the pages that running sequences could need in the worst case never
//! exceed the pools. Sharing only lowers the need, so no sequence lacks a page.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use infr_backend::Slot;
use infr_graph::{Phase, Reach};

use crate::cache::{Cache, Copy, Lookup};
use crate::driver::{Driver, Drivers, Work};
use crate::engine::Reserve;
use crate::error::EngineError;
use crate::event::{Event, Finish};
use crate::placement::worst_pages;
use crate::request::Wanted;
use crate::sequence::{Job, Sequence};
use crate::slots::Slots;

/// Bytes of undelivered rows at which a sequence pauses.
const PAUSE_BYTES: usize = 32 << 20;

/// A sequence with its driver.
pub(crate) struct Running {
    pub(crate) seq: Sequence,
    pub(crate) driver: Box<dyn Driver>,
    /// Work that lacked pages.
    stash: Option<Work>,
}

impl Running {
    /// The phase of its next rows.
    fn phase(&self) -> Phase {
        self.stash.as_ref().map_or_else(|| self.driver.phase(&self.seq), |work| work.phase)
    }
}

/// What does not change while the engine runs.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    /// Rows of the largest step.
    pub(crate) max_rows: u32,
    pub(crate) drivers: Drivers,
    pub(crate) reserve: Reserve,
    /// Use cached tokens.
    pub(crate) prefix_cache: bool,
    /// The program has recurrent layers.
    pub(crate) recurrent: bool,
    pub(crate) reaches: Vec<Reach>,
}

/// What has to be done to the device before an admitted sequence's first step.
#[derive(Debug)]
pub(crate) struct Prepare {
    pub(crate) slot: Slot,
    pub(crate) copies: Vec<Copy>,
    pub(crate) snapshot: Option<Arc<Vec<u8>>>,
}

/// One sequence's part of the next step.
#[derive(Debug)]
pub(crate) struct Pick {
    pub(crate) id: u64,
    pub(crate) work: Work,
}

/// Waiting and running sequences.
pub(crate) struct Scheduler {
    pub(crate) rules: Rules,
    pub(crate) cache: Cache,
    slots: Slots,
    pub(crate) waiting: VecDeque<Job>,
    /// Ascending by id.
    pub(crate) running: Vec<Running>,
    /// Pages set aside, per group.
    reserved: Vec<u32>,
    /// The prompt that was served first in the last step.
    served: u64,
    /// The decoding sequence that was served last.
    decoded: u64,
    /// The phase of the last step.
    phase: Phase,
    /// Pages ran out while steps were in flight.
    starved: bool,
    pub(crate) preemptions: u64,
    pub(crate) admitted: Admitted,
}

/// Counts of requests that started, each counted once.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Admitted {
    pub(crate) requests: u64,
    pub(crate) prompt_tokens: u64,
    pub(crate) cached_tokens: u64,
}

impl Scheduler {
    pub(crate) fn new(rules: Rules, cache: Cache, slots: u32) -> Scheduler {
        let reserved = vec![0; rules.reaches.len()];
        Scheduler {
            rules,
            cache,
            slots: Slots::new(slots),
            waiting: VecDeque::new(),
            running: Vec::new(),
            reserved,
            served: 0,
            decoded: 0,
            phase: Phase::Forward,
            starved: false,
            preemptions: 0,
            admitted: Admitted::default(),
        }
    }

    /// The running sequence with this id.
    pub(crate) fn find(&mut self, id: u64) -> Option<&mut Running> {
        let index = self.running.binary_search_by_key(&id, |r| r.seq.job.id).ok()?;
        self.running.get_mut(index)
    }

    /// Ends what was cancelled or is too late.
    pub(crate) fn expire(&mut self, now: Instant) {
        for running in &mut self.running {
            if let Some(reason) = running.seq.job.must_end(now) {
                running.seq.job.finish(reason);
            }
        }
        for job in &mut self.waiting {
            if let Some(reason) = job.must_end(now) {
                job.finish(reason);
            }
        }
    }

    /// Ends everything.
    pub(crate) fn end_all(&mut self, event: impl Fn(&mut Job)) {
        self.running.iter_mut().map(|r| &mut r.seq.job).chain(&mut self.waiting).for_each(event);
    }

    /// Takes out what has ended and is in no step in flight.
    pub(crate) fn take_ended(&mut self) -> (Vec<Running>, Vec<Job>) {
        let done = |r: &mut Running| r.seq.ended() && r.seq.in_flight == 0;
        let running = self.running.extract_if(.., done).collect();
        let waiting = std::mem::take(&mut self.waiting);
        let (ended, waiting) = waiting.into_iter().partition(|job| job.told.ended);
        self.waiting = waiting;
        (running, Vec::from(ended))
    }

    /// Gives back what a sequence held.
    pub(crate) fn give_back(&mut self, running: Running) -> Job {
        let Sequence { mut job, slot, mut pages, submitted, reserved, .. } = running.seq;
        self.cache.register_rest(&mut pages, &job.tokens, submitted);
        self.cache.end(pages);
        self.slots.give_back(slot);
        for (sum, pages) in self.reserved.iter_mut().zip(reserved) {
            *sum -= pages;
        }
        job.told.ahead = None;
        job
    }

    /// Starts as many waiting requests as there is room for, in order.
    pub(crate) fn admit(&mut self) -> Vec<Prepare> {
        let mut prepared = Vec::new();
        let block = self.rules.drivers.style.block();
        while self.slots.free() > 0
            && let Some(job) = self.waiting.front()
        {
            let most = match self.rules.reserve {
                Reserve::Full => job.most_rows(block),
                Reserve::Prompt => job.most_rows(block).min(job.tokens.len() as u32 + block),
            };
            let most = most.max(job.tokens.len() as u32);
            let (step, page_len) = (self.rules.max_rows, self.cache.page_len());
            let needed = |&reach: &Reach| worst_pages(reach, most, step, page_len);
            let needed: Vec<u32> = self.rules.reaches.iter().map(needed).collect();
            if !self.has_room(&needed) {
                break;
            }
            let Some(job) = self.waiting.pop_front() else { break };
            match self.start(job, needed) {
                Ok(prepare) => prepared.push(prepare),
                Err(job) => {
                    self.waiting.push_front(*job);
                    break;
                }
            }
        }
        for (ahead, job) in self.waiting.iter_mut().enumerate() {
            let ahead = ahead as u32;
            if job.told.ahead != Some(ahead) {
                job.told.ahead = Some(ahead);
                job.sink.send(Event::Queued { ahead });
            }
        }
        prepared
    }

    /// Whether a sequence that needs this many pages per group can start.
    fn has_room(&self, needed: &[u32]) -> bool {
        match self.rules.reserve {
            Reserve::Full => {
                let mut sums = needed.iter().zip(&self.reserved).zip(self.cache.totals());
                sums.all(|((need, reserved), total)| need + reserved <= total)
            }
            Reserve::Prompt => needed.iter().zip(self.cache.available()).all(|(&n, a)| n <= a),
        }
    }

    fn start(&mut self, mut job: Job, reserved: Vec<u32>) -> Result<Prepare, Box<Job>> {
        let lookup = Lookup {
            salt: job.request.cache_salt,
            tokens: &job.tokens,
            reuse: self.rules.prefix_cache && !job.wants_all_rows(),
        };
        let Some(begin) = self.cache.begin(lookup) else { return Err(Box::new(job)) };
        let Some(slot) = self.slots.take() else {
            self.cache.end(begin.pages);
            return Err(Box::new(job));
        };
        if !job.told.started {
            self.admitted.requests += 1;
            self.admitted.prompt_tokens += u64::from(job.prompt_len);
            self.admitted.cached_tokens += u64::from(begin.cached);
        }
        job.note_start(begin.cached, begin.reuse);
        for (sum, pages) in self.reserved.iter_mut().zip(&reserved) {
            *sum += pages;
        }
        let rules = &self.rules;
        let driver = rules.drivers.for_request(job.request.want);
        let seq = Sequence {
            known_at_start: job.tokens.len() as u32,
            job,
            slot,
            pages: begin.pages,
            submitted: begin.cached,
            pending: 0,
            in_flight: 0,
            mask: None,
            snapshots: rules.recurrent && rules.prefix_cache,
            reserved,
        };
        let at = self.running.partition_point(|r| r.seq.job.id < seq.job.id);
        self.running.insert(at, Running { seq, driver, stash: None });
        Ok(Prepare { slot, copies: begin.copies, snapshot: begin.snapshot })
    }

    /// Whether running ahead of the steps in flight would split the batch: some sequence has to
    /// wait for their results, and would get steps of its own.
    pub(crate) fn must_wait(&self) -> bool {
        self.starved || self.running.iter().any(|r| r.driver.waits(&r.seq))
    }

    /// Chooses what the next step holds, all of one phase. `idle` means that no step is in flight.
    pub(crate) fn pick(&mut self, idle: bool, drain: bool) -> Vec<Pick> {
        self.starved &= !idle;
        let mut phases: Vec<Phase> = Vec::new();
        for phase in self.running.iter().map(Running::phase) {
            if !phases.contains(&phase) {
                phases.push(phase);
            }
        }
        // Phases take turns.
        phases.sort_by_key(|&phase| phase == self.phase);
        for phase in phases {
            let picks = self.pick_of(phase, idle, drain);
            if !picks.is_empty() {
                self.phase = phase;
                return picks;
            }
        }
        Vec::new()
    }

    fn pick_of(&mut self, phase: Phase, idle: bool, drain: bool) -> Vec<Pick> {
        let mut picks: Vec<Pick> = Vec::new();
        let mut budget = self.rules.max_rows;
        for id in self.order(phase) {
            if budget == 0 || self.starved {
                break;
            }
            let Some(running) = self.find(id) else { continue };
            let seq = &mut running.seq;
            if seq.ended() || !drain && seq.job.sink.weight() > PAUSE_BYTES {
                continue;
            }
            let work = match running.stash.take() {
                Some(work) => Ok(Some(work)),
                None => running.driver.next(seq, budget),
            };
            let work = match work {
                Ok(Some(work)) => work,
                Ok(None) => continue,
                Err(error) => {
                    seq.job.end(Event::Failed(error));
                    continue;
                }
            };
            if work.rows.len() as u32 > budget {
                running.stash = Some(work);
                continue;
            }
            let rows = work.rows.len() as u32;
            let decodes = !seq.in_prefill();
            if self.give_pages(id, &work, &mut picks, idle) {
                budget -= rows;
                if decodes {
                    self.decoded = id;
                }
                picks.push(Pick { id, work });
            } else if let Some(running) = self.find(id) {
                running.stash = Some(work);
            }
        }
        picks
    }

    /// Ids of sequences in a phase, in the order in which they get rows.
    fn order(&mut self, phase: Phase) -> Vec<u64> {
        let ids = |prefill: bool| {
            let of_phase = self.running.iter().filter(move |r| r.phase() == phase);
            let wanted = of_phase.filter(move |r| r.seq.in_prefill() == prefill);
            wanted.map(|r| r.seq.job.id)
        };
        let behind = |mut ids: Vec<u64>, served: u64| {
            let at = ids.partition_point(|&id| id <= served) % ids.len().max(1);
            ids.rotate_left(at);
            ids
        };
        let mut order = behind(ids(false).collect(), self.decoded);
        let prompts = behind(ids(true).collect(), self.served);
        if let Some(&first) = prompts.first() {
            self.served = first;
        }
        order.extend(prompts);
        order
    }

    /// Gives a sequence the pages that its work needs. When there are too few, the youngest
    /// sequences are put back; with steps in flight that has to wait for them.
    fn give_pages(&mut self, id: u64, work: &Work, picks: &mut Vec<Pick>, idle: bool) -> bool {
        loop {
            let Ok(index) = self.running.binary_search_by_key(&id, |r| r.seq.job.id) else {
                return false;
            };
            let (Some(first), Some(last)) = (work.rows.first(), work.rows.last()) else {
                return false;
            };
            let pages = &mut self.running[index].seq.pages;
            self.cache.release_behind(pages, first.position);
            if self.cache.ensure(pages, last.position + 1) {
                return true;
            }
            debug_assert!(self.rules.reserve == Reserve::Prompt, "reserved pages are missing");
            if !idle {
                self.starved = true;
                return false;
            }
            let Some(youngest) = self.running.pop() else { return false };
            let victim = youngest.seq.job.id;
            picks.retain(|pick| pick.id != victim);
            self.put_back(youngest);
            if victim == id {
                return false;
            }
        }
    }

    /// Puts a sequence back to the head of the queue; it has no step in flight.
    fn put_back(&mut self, mut running: Running) {
        self.preemptions += u64::from(!running.seq.ended());
        running.driver.restart();
        let job = self.give_back(running);
        self.waiting.push_front(job);
    }

    /// The device and all it held are gone. What ran goes back to the queue unless `keep` says no;
    /// gives what does not.
    pub(crate) fn reset(
        &mut self,
        cache: Cache,
        slots: u32,
        mut keep: impl FnMut(&mut Job) -> bool,
    ) -> Vec<Job> {
        self.cache = cache;
        self.slots = Slots::new(slots);
        self.reserved.fill(0);
        self.starved = false;
        let mut ended = Vec::new();
        for running in std::mem::take(&mut self.running).into_iter().rev() {
            let mut job = running.seq.job;
            if !job.told.ended && keep(&mut job) {
                job.told.ahead = None;
                self.waiting.push_front(job);
            } else {
                ended.push(job);
            }
        }
        ended
    }

    /// Checks a new request and queues it.
    pub(crate) fn enqueue(&mut self, mut job: Job, context: u32, limit: u32) {
        let generates = job.request.want == Wanted::Generate && job.request.max_tokens > 0;
        let Rules { max_rows, drivers, .. } = &self.rules;
        let context = if drivers.causal { context } else { context.min(*max_rows) };
        let block = drivers.style.block();
        let room = limit.saturating_add(self.slots.free());
        if job.prompt_len + u32::from(generates) * block > context {
            let prompt = job.prompt_len;
            job.end(Event::Failed(EngineError::TooLong { prompt, context, block }));
        } else if self.waiting.len() as u32 >= room {
            job.end(Event::Failed(EngineError::QueueFull { limit }));
        } else if let Some(reason) = job.must_end(Instant::now()) {
            job.finish(reason);
        } else {
            self.waiting.push_back(job);
        }
    }

    /// Ends all requests as cancelled.
    pub(crate) fn cancel_all(&mut self) {
        self.end_all(|job| job.finish(Finish::Cancelled));
    }
}
