//! The handle: starts the engine's thread, takes requests, answers questions.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use infr_backend::{Backend, Executor, WeightSource};
use infr_graph::Program;
use infr_models::Diffusion;

use crate::driver::Style;
use crate::error::EngineError;
use crate::event::{self, Event, EventSink, EventStream, Nudge};
use crate::placement::Plan;
use crate::request::Request;
use crate::stats::Stats;
use crate::step;

/// What a sequence sets aside when it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reserve {
    /// The pages of its longest possible answer: a sequence that started ends undisturbed.
    #[default]
    Full,
    /// The pages of its prompt. When pages run out, the youngest sequence is put back into the
    /// queue and computed again later.
    Prompt,
}

/// Choices of the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineOptions {
    /// Tokens that one sequence may have; `None` takes the model's context, or as much of it as
    /// memory holds.
    pub context: Option<u32>,
    /// Sequences that run at once.
    pub parallel: u32,
    /// Rows of the largest step.
    pub ubatch: u32,
    /// Rows of a page.
    pub page_len: u32,
    /// Requests that may wait.
    pub queue: u32,
    /// Rows that the page pools hold over all sequences; `None` means `parallel` full contexts.
    pub cache_rows: Option<u32>,
    /// Bytes that weights, pages, slots and scratch may take; `None` means what the device has
    /// free.
    pub memory: Option<u64>,
    /// What a sequence sets aside when it starts.
    pub reserve: Reserve,
    /// Steps in flight: 2 overlaps host and device, 1 suits executors that compute inside `submit`.
    pub steps_in_flight: u32,
    /// Keep pages of finished sequences for prompts that begin alike.
    pub prefix_cache: bool,
    /// Bytes of snapshots of recurrent states; `None` means a twentieth of the memory.
    pub snapshot_bytes: Option<u64>,
    /// Rows per step whose logits or hidden rows go to the caller.
    pub output_rows: u32,
}

impl Default for EngineOptions {
    fn default() -> EngineOptions {
        EngineOptions {
            context: None,
            parallel: 1,
            ubatch: 512,
            page_len: 64,
            queue: 256,
            cache_rows: None,
            memory: None,
            reserve: Reserve::Full,
            steps_in_flight: 2,
            prefix_cache: true,
            snapshot_bytes: None,
            output_rows: 64,
        }
    }
}

/// What is needed to open a model, and to open it again after its device was lost.
#[derive(Clone)]
pub struct EngineSource {
    /// Runs it.
    pub backend: Arc<dyn Backend>,
    /// Its graphs, weights and states.
    pub program: Arc<Program>,
    /// Its weights' bytes.
    pub weights: Arc<dyn WeightSource + Send>,
    /// Tokens in the vocabulary.
    pub vocab: u32,
    /// Positions the model was trained for.
    pub context: u32,
    /// Whether rows see only what stands before them. When not, a prompt has to fit into one step.
    pub causal: bool,
    /// How blocks of tokens are denoised, in models that do not write one token after another.
    pub diffusion: Option<Diffusion>,
}

/// What the handle and the thread share.
pub(crate) struct Shared {
    pub(crate) inbox: Mutex<Inbox>,
    pub(crate) changed: Condvar,
    pub(crate) stats: Mutex<Stats>,
}

/// What callers have left for the thread.
#[derive(Default)]
pub(crate) struct Inbox {
    pub(crate) submissions: Vec<Submission>,
    /// Something else changed: a stream was cancelled or drained.
    pub(crate) nudged: bool,
    pub(crate) shutdown: Option<Shutdown>,
    /// The thread has ended.
    pub(crate) ended: bool,
}

/// How the engine ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shutdown {
    /// After the last request that was taken.
    Drain,
    /// Within one step; requests end with `Cancelled`.
    Now,
}

/// A request on its way to the thread.
pub(crate) struct Submission {
    pub(crate) request: Request,
    pub(crate) sink: EventSink,
    pub(crate) at: Instant,
}

impl Shared {
    pub(crate) fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn stats(&self) -> MutexGuard<'_, Stats> {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something is in the inbox, for at most `timeout`.
    pub(crate) fn wait(&self, timeout: Duration) {
        let inbox = self.inbox();
        if inbox.submissions.is_empty() && !inbox.nudged && inbox.shutdown.is_none() {
            drop(self.changed.wait_timeout(inbox, timeout));
        }
    }
}

/// A running engine. Dropping it waits for the requests that were taken.
pub struct Engine {
    shared: Arc<Shared>,
    nudge: Nudge,
    thread: Option<JoinHandle<()>>,
    plan: Arc<Plan>,
    vocab: u32,
}

impl Engine {
    /// Plans memory, opens the model and starts the thread.
    ///
    /// # Errors
    /// When memory does not suffice or the backend cannot open the program.
    pub fn start(source: EngineSource, options: EngineOptions) -> Result<Engine, EngineError> {
        let plan = Plan::for_source(&source, &options)?;
        let program = &source.program;
        let style = Style::of_source(&source)?;
        let executor = source.backend.open(program, &*source.weights, &plan.placement)?;
        let (program, vocab) = (Arc::clone(program), source.vocab);
        let source = Some(source);
        Engine::spawn(step::Setup { executor, program, plan, options, source, style, vocab })
    }

    /// Starts the thread on an executor that is open already, of a model that writes one token
    /// after another. Such an engine cannot recover from a lost device.
    ///
    /// # Errors
    /// When no thread is to be had.
    pub fn from_executor(
        executor: Box<dyn Executor>,
        program: Arc<Program>,
        plan: Plan,
        vocab: u32,
        options: EngineOptions,
    ) -> Result<Engine, EngineError> {
        let (source, style) = (None, Style::Autoregressive);
        Engine::spawn(step::Setup { executor, program, plan, options, source, style, vocab })
    }

    fn spawn(setup: step::Setup) -> Result<Engine, EngineError> {
        let shared = Arc::new(Shared {
            inbox: Mutex::default(),
            changed: Condvar::new(),
            stats: Mutex::default(),
        });
        let plan = Arc::new(setup.plan.clone());
        let vocab = setup.vocab;
        let for_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("infr-engine".to_owned())
            .spawn(move || step::run(setup, &for_thread))
            .map_err(|e| EngineError::Thread(e.to_string()))?;
        let for_nudge = Arc::clone(&shared);
        let nudge: Nudge = Arc::new(move || {
            for_nudge.inbox().nudged = true;
            for_nudge.changed.notify_one();
        });
        Ok(Engine { shared, nudge, thread: Some(thread), plan, vocab })
    }

    /// Queues a request. What is wrong with it comes as `Failed` in the stream.
    pub fn submit(&self, request: Request) -> EventStream {
        let (sink, stream) = event::channel(Arc::clone(&self.nudge));
        let refused = {
            let mut inbox = self.shared.inbox();
            if inbox.ended {
                Some(EngineError::Stopped)
            } else if inbox.shutdown.is_some() {
                Some(EngineError::Draining)
            } else if let Err(error) = self.check(&request) {
                Some(error)
            } else {
                inbox.submissions.push(Submission { request, sink, at: Instant::now() });
                self.shared.changed.notify_one();
                return stream;
            }
        };
        if let Some(error) = refused {
            sink.send(Event::Failed(error));
        }
        stream
    }

    fn check(&self, request: &Request) -> Result<(), EngineError> {
        if request.prompt.is_empty() {
            return Err(EngineError::EmptyPrompt);
        }
        let bad = request.prompt.iter().position(|&t| t >= self.vocab);
        if let Some(index) = bad {
            let token = request.prompt[index];
            return Err(EngineError::BadToken { index: index as u32, token, vocab: self.vocab });
        }
        Ok(())
    }

    /// Tokens that one sequence may have, prompt and answer together.
    pub fn context(&self) -> u32 {
        self.plan.context
    }

    /// How memory is used.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Counters and state.
    pub fn stats(&self) -> Stats {
        self.shared.stats().clone()
    }

    /// Takes no more requests and waits for the thread to end; gives the last counters.
    pub fn shutdown(mut self, how: Shutdown) -> Stats {
        self.end(how);
        self.stats()
    }

    fn end(&mut self, how: Shutdown) {
        self.shared.inbox().shutdown = Some(how);
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has ended every stream with `Stopped`.
            drop(thread.join());
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.end(Shutdown::Drain);
        }
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("plan", &self.plan).finish_non_exhaustive()
    }
}
