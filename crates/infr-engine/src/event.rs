//! What a request gives back, and the channel that it comes through.
//!
//! The channel is a queue with a condition variable and one `std::task::Waker`, so that a thread
//! can wait on it and an async runtime can poll it without this crate knowing one.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use infr_backend::HostRows;

use crate::error::EngineError;

/// A generated token.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenOut {
    /// The token.
    pub id: u32,
    /// Its log-probability under the model's own logits.
    pub logprob: Option<f32>,
    /// The most likely tokens with log-probabilities, descending; as many as the request asked for.
    pub top: Vec<(u32, f32)>,
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Finish {
    /// A stop token was drawn, or a block of tokens fell into a loop.
    Stop,
    /// `max_tokens` were drawn, or everything that was asked of the prompt is delivered.
    Length,
    /// The sequence has as many tokens as the context holds.
    ContextFull,
    /// The caller cancelled.
    Cancelled,
    /// The deadline passed.
    Deadline,
}

/// Why no more of the prompt came from the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ReuseStop {
    /// The prompt ended: all of it but the one token that is always computed was cached.
    WholePrompt,
    /// What was cached ended here, or nothing was.
    #[default]
    CacheEnded,
    /// The cached text goes on with another token.
    Diverged {
        /// Place of the first differing token.
        at: u32,
        /// The token that the cache has there.
        cached: u32,
        /// The token that the prompt has there.
        prompt: u32,
    },
    /// The tokens match up to `matched`, but pages that are needed were given to others.
    Evicted {
        /// Tokens that match.
        matched: u32,
    },
    /// The tokens match up to `matched`, but no snapshot of the recurrent layers lies closer.
    NoSnapshot {
        /// Tokens that match.
        matched: u32,
    },
    /// The request cannot use cached tokens: it wants outputs of every position, or the cache is
    /// off.
    NotUsed,
}

/// Where a request's time went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Timings {
    /// Waiting to be admitted.
    pub queued: Duration,
    /// From admission to the first token (or the end of the prompt).
    pub prefill: Duration,
    /// From the first token to the last.
    pub decode: Duration,
}

/// What a request cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt: u32,
    /// Of these, taken from the cache.
    pub cached: u32,
    /// Tokens generated.
    pub generated: u32,
    /// Why no more came from the cache.
    pub reuse: ReuseStop,
    /// Where the time went.
    pub timings: Timings,
}

/// One message of a request's stream. `Finished` and `Failed` are last.
#[derive(Debug, Clone)]
pub enum Event {
    /// The request waits behind `ahead` others.
    Queued {
        /// Requests before it.
        ahead: u32,
    },
    /// The request runs.
    Started {
        /// Prompt tokens taken from the cache.
        cached: u32,
        /// Why no more were.
        reuse: ReuseStop,
    },
    /// A part of the prompt was computed.
    Prefill {
        /// Prompt tokens done, cached ones included.
        done: u32,
        /// Prompt tokens in all.
        of: u32,
    },
    /// New tokens.
    Tokens(Vec<TokenOut>),
    /// A preliminary block of a diffusion model.
    Draft {
        /// Denoising step of the block, from 0.
        step: u32,
        /// The block as it stands.
        tokens: Vec<u32>,
    },
    /// Logits of consecutive prompt positions.
    Logits {
        /// Position of the first row.
        first: u32,
        /// One row of the vocabulary's width per position.
        rows: HostRows,
    },
    /// Hidden rows of consecutive prompt positions.
    Hidden {
        /// Position of the first row.
        first: u32,
        /// One row per position.
        rows: HostRows,
    },
    /// The end.
    Finished {
        /// Why.
        reason: Finish,
        /// What it cost.
        usage: Usage,
    },
    /// The end, by an error.
    Failed(EngineError),
}

impl Event {
    /// Whether nothing follows.
    pub fn is_last(&self) -> bool {
        matches!(self, Event::Finished { .. } | Event::Failed(_))
    }

    /// Bytes of its rows, for flow control.
    fn weight(&self) -> usize {
        match self {
            Event::Logits { rows, .. } | Event::Hidden { rows, .. } => rows.data.len() * 4,
            Event::Queued { .. }
            | Event::Started { .. }
            | Event::Prefill { .. }
            | Event::Tokens(_)
            | Event::Draft { .. }
            | Event::Finished { .. }
            | Event::Failed(_) => 0,
        }
    }
}

#[derive(Default)]
struct Queue {
    events: VecDeque<Event>,
    /// Bytes of rows in `events`.
    weight: usize,
    /// The last event was pushed.
    ended: bool,
    /// The receiver does not want more.
    cancelled: bool,
    waker: Option<Waker>,
}

#[derive(Default)]
struct Channel {
    queue: Mutex<Queue>,
    ready: Condvar,
}

impl Channel {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // A panic elsewhere leaves the queue whole: every change is a single push or pop.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes the engine when a stream was cancelled or drained.
pub(crate) type Nudge = Arc<dyn Fn() + Send + Sync>;

/// The receiving end of a request. Dropping it cancels the request.
pub struct EventStream {
    channel: Arc<Channel>,
    nudge: Nudge,
}

impl EventStream {
    /// Waits for the next event; `None` after the last one.
    pub fn recv(&mut self) -> Option<Event> {
        let mut queue = self.channel.lock();
        loop {
            if let Some(event) = self.pop(&mut queue) {
                return Some(event);
            }
            if queue.ended {
                return None;
            }
            queue = self.channel.ready.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits for the next event for at most `timeout`.
    ///
    /// # Errors
    /// When none came in time.
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<Option<Event>, TimedOut> {
        let end = Instant::now() + timeout;
        let mut queue = self.channel.lock();
        loop {
            if let Some(event) = self.pop(&mut queue) {
                return Ok(Some(event));
            }
            if queue.ended {
                return Ok(None);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(TimedOut);
            }
            let waited = self.channel.ready.wait_timeout(queue, left);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The next event if there is one now.
    pub fn try_recv(&mut self) -> Option<Event> {
        self.pop(&mut self.channel.lock())
    }

    /// The next event for an async caller: `Ready(None)` after the last one.
    pub fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Option<Event>> {
        let mut queue = self.channel.lock();
        if let Some(event) = self.pop(&mut queue) {
            return Poll::Ready(Some(event));
        }
        if queue.ended {
            return Poll::Ready(None);
        }
        queue.waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// Ends the request within one step; `Finished` with `Cancelled` follows.
    pub fn cancel(&self) {
        self.channel.lock().cancelled = true;
        (self.nudge)();
    }

    fn pop(&self, queue: &mut Queue) -> Option<Event> {
        let event = queue.events.pop_front()?;
        let weight = event.weight();
        queue.weight -= weight;
        if weight > 0 {
            (self.nudge)();
        }
        Some(event)
    }
}

/// No event came in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no event in time")]
pub struct TimedOut;

impl Iterator for EventStream {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        self.recv()
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        self.cancel();
    }
}

impl std::fmt::Debug for EventStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EventStream")
    }
}

/// The sending end. Dropped without a last event (the engine's thread died), it sends `Stopped`.
pub(crate) struct EventSink {
    channel: Arc<Channel>,
}

impl EventSink {
    pub(crate) fn send(&self, event: Event) {
        let waker = {
            let mut queue = self.channel.lock();
            if queue.ended {
                return;
            }
            queue.ended = event.is_last();
            queue.weight += event.weight();
            queue.events.push_back(event);
            queue.waker.take()
        };
        self.channel.ready.notify_one();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.channel.lock().cancelled
    }

    /// Bytes of rows that wait to be received.
    pub(crate) fn weight(&self) -> usize {
        self.channel.lock().weight
    }
}

impl Drop for EventSink {
    fn drop(&mut self) {
        self.send(Event::Failed(EngineError::Stopped));
    }
}

pub(crate) fn channel(nudge: Nudge) -> (EventSink, EventStream) {
    let channel = Arc::new(Channel::default());
    (EventSink { channel: Arc::clone(&channel) }, EventStream { channel, nudge })
}
