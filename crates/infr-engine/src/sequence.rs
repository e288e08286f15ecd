//! A request that runs: its tokens, how far it is, and what it holds.

use std::time::{Duration, Instant};

use infr_backend::Slot;

use crate::cache::SeqPages;
use crate::engine::Submission;
use crate::event::{Event, EventSink, Finish, ReuseStop, Timings, Usage};
use crate::request::{Request, Wanted};

/// What outlives being put back into the queue.
pub(crate) struct Job {
    /// Ascending in order of arrival.
    pub(crate) id: u64,
    pub(crate) request: Request,
    pub(crate) sink: EventSink,
    /// Prompt and generated tokens that are known.
    pub(crate) tokens: Vec<u32>,
    pub(crate) prompt_len: u32,
    /// Tokens at which it ends.
    pub(crate) limit: u32,
    /// What the caller has been told.
    pub(crate) told: Told,
    /// Times at which things happened.
    pub(crate) clock: Clock,
    /// Times that it was running when the device was lost.
    pub(crate) losses: u32,
}

/// What the caller has been told.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Told {
    pub(crate) ahead: Option<u32>,
    pub(crate) started: bool,
    /// Prompt tokens done.
    pub(crate) prefill: u32,
    /// Prompt positions whose rows were delivered.
    pub(crate) rows: u32,
    pub(crate) cached: u32,
    pub(crate) reuse: ReuseStop,
    pub(crate) ended: bool,
    pub(crate) failed: bool,
}

/// Times at which things happened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    arrived: Instant,
    started: Option<Instant>,
    first: Option<Instant>,
    last: Option<Instant>,
}

impl Job {
    /// A job with `context` tokens at most; new ones come in blocks of `block` rows.
    pub(crate) fn new(id: u64, submission: Submission, context: u32, block: u32) -> Job {
        let Submission { mut request, sink, at } = submission;
        let tokens = std::mem::take(&mut request.prompt);
        let prompt_len = tokens.len() as u32;
        let limit = match request.want {
            Wanted::Generate => {
                let room = context.saturating_sub(prompt_len) / block * block;
                prompt_len + request.max_tokens.min(room)
            }
            Wanted::Logits | Wanted::Hidden | Wanted::LastHidden | Wanted::LastLogits => prompt_len,
        };
        let clock = Clock { arrived: at, started: None, first: None, last: None };
        let told = Told::default();
        Job { id, request, sink, tokens, prompt_len, limit, told, clock, losses: 0 }
    }

    /// Rows that it needs at most, with its last block whole.
    pub(crate) fn most_rows(&self, block: u32) -> u32 {
        self.prompt_len + (self.limit - self.prompt_len).next_multiple_of(block)
    }

    /// As many tokens as may be are known.
    pub(crate) fn is_complete(&self) -> bool {
        self.tokens.len() as u32 >= self.limit
    }

    /// Why it ends when it is complete.
    pub(crate) fn completion(&self) -> Finish {
        match self.generated() < self.request.max_tokens {
            true => Finish::ContextFull,
            false => Finish::Length,
        }
    }

    pub(crate) fn generated(&self) -> u32 {
        self.tokens.len() as u32 - self.prompt_len
    }

    /// Every prompt position gives something back.
    pub(crate) fn wants_all_rows(&self) -> bool {
        matches!(self.request.want, Wanted::Logits | Wanted::Hidden)
    }

    /// Why it must end now, without anything having been computed.
    pub(crate) fn must_end(&self, now: Instant) -> Option<Finish> {
        if self.sink.is_cancelled() {
            return Some(Finish::Cancelled);
        }
        self.request.deadline.filter(|&d| d <= now).map(|_| Finish::Deadline)
    }

    pub(crate) fn note_start(&mut self, cached: u32, reuse: ReuseStop) {
        if self.told.started {
            return;
        }
        self.told = Told { started: true, cached, reuse, ..self.told };
        self.clock.started = Some(Instant::now());
        self.sink.send(Event::Started { cached, reuse });
    }

    pub(crate) fn note_prefill(&mut self, done: u32) {
        if done > self.told.prefill && done <= self.prompt_len {
            self.told.prefill = done;
            self.sink.send(Event::Prefill { done, of: self.prompt_len });
        }
    }

    /// The prompt is done; what follows is counted as the answer's time.
    pub(crate) fn note_answer(&mut self) {
        self.clock.first.get_or_insert_with(Instant::now);
    }

    pub(crate) fn note_token(&mut self) {
        let now = Instant::now();
        self.clock.first.get_or_insert(now);
        self.clock.last = Some(now);
    }

    /// Sends the last event.
    pub(crate) fn end(&mut self, event: Event) {
        if !self.told.ended {
            self.told.ended = true;
            self.told.failed = matches!(event, Event::Failed(_));
            self.sink.send(event);
        }
    }

    pub(crate) fn finish(&mut self, reason: Finish) {
        let usage = self.usage();
        self.end(Event::Finished { reason, usage });
    }

    fn usage(&self) -> Usage {
        let now = Instant::now();
        let Clock { arrived, started, first, last } = self.clock;
        let since = |from: Option<Instant>, to: Option<Instant>| match from {
            Some(from) => to.unwrap_or(now).saturating_duration_since(from),
            None => Duration::ZERO,
        };
        Usage {
            prompt: self.prompt_len,
            cached: self.told.cached,
            generated: self.generated(),
            reuse: self.told.reuse,
            timings: Timings {
                queued: since(Some(arrived), started),
                prefill: since(started, first),
                decode: since(first, last),
            },
        }
    }
}

/// A job that has a slot and pages.
pub(crate) struct Sequence {
    pub(crate) job: Job,
    pub(crate) slot: Slot,
    pub(crate) pages: SeqPages,
    /// Rows that were given to the device or came from the cache; the next row's position.
    pub(crate) submitted: u32,
    /// Tokens that were known when it started: the last of their rows gives the first new token.
    pub(crate) known_at_start: u32,
    /// Sampled tokens that were not collected.
    pub(crate) pending: u32,
    /// Steps in flight that have rows of it.
    pub(crate) in_flight: u32,
    /// Allowed tokens of the row in flight, when the host samples.
    pub(crate) mask: Option<infr_backend::TokenMask>,
    /// The model keeps snapshots of recurrent states.
    pub(crate) snapshots: bool,
    /// Pages that it set aside, per cache group.
    pub(crate) reserved: Vec<u32>,
}

impl Sequence {
    /// It has ended; only its steps in flight keep it.
    pub(crate) fn ended(&self) -> bool {
        self.job.told.ended
    }

    /// Prompt rows (or rows computed again) are left.
    pub(crate) fn in_prefill(&self) -> bool {
        self.submitted < self.known_at_start
    }
}
