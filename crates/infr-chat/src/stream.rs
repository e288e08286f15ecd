//! Tokens to text deltas: detokenises, splits thinking from the answer, watches stop strings.

use std::collections::VecDeque;
use std::sync::Arc;

use infr_engine::{EngineError, Event, EventStream, Finish, ReuseStop, Usage};
use infr_text::reasoning::{ReasoningDelta, ReasoningSplitter};
use infr_text::tokenizer::{DecodeOptions, Detokenizer, Tokenizer};

use crate::stop::StopMatcher;

/// One message of an answer's stream. `Finished` and `Failed` are last.
#[derive(Debug, Clone)]
pub enum ChatEvent {
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
        /// Prompt tokens done.
        done: u32,
        /// Prompt tokens in all.
        of: u32,
    },
    /// Thinking.
    Reasoning(String),
    /// The answer.
    Content(String),
    /// A block of a diffusion model as it stands.
    Draft(String),
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

/// What a stream needs beside the engine's events.
pub(crate) struct Parts {
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) splitter: Option<ReasoningSplitter>,
    pub(crate) stop: Vec<String>,
}

/// The receiving end of an answer. Dropping it cancels the request.
pub struct ChatStream {
    events: EventStream,
    tokenizer: Arc<Tokenizer>,
    detokenizer: Detokenizer,
    splitter: Option<ReasoningSplitter>,
    stop: StopMatcher,
    ready: VecDeque<ChatEvent>,
    generated: u32,
}

impl ChatStream {
    pub(crate) fn new(events: EventStream, parts: Parts) -> ChatStream {
        // Marks of thinking may be control tokens, which plain decoding leaves out.
        let options =
            DecodeOptions { render_special: parts.splitter.is_some(), ..DecodeOptions::default() };
        ChatStream {
            events,
            detokenizer: Detokenizer::new(Arc::clone(&parts.tokenizer), options),
            tokenizer: parts.tokenizer,
            splitter: parts.splitter,
            stop: StopMatcher::new(&parts.stop),
            ready: VecDeque::new(),
            generated: 0,
        }
    }

    /// Ends the answer within one step; `Finished` follows.
    pub fn cancel(&self) {
        self.events.cancel();
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Queued { ahead } => self.ready.push_back(ChatEvent::Queued { ahead }),
            Event::Started { cached, reuse } => {
                self.ready.push_back(ChatEvent::Started { cached, reuse });
            }
            Event::Prefill { done, of } => self.ready.push_back(ChatEvent::Prefill { done, of }),
            Event::Tokens(tokens) => {
                for token in tokens {
                    self.token(token.id);
                }
            }
            Event::Draft { tokens, .. } => {
                let text = self.tokenizer.decode(&tokens, DecodeOptions::default());
                self.ready.push_back(ChatEvent::Draft(text));
            }
            // Only requests for prompt outputs get these.
            Event::Logits { .. } | Event::Hidden { .. } => {}
            Event::Finished { reason, usage } => {
                self.finish_text();
                let reason = if self.stop.found() { Finish::Stop } else { reason };
                self.ready.push_back(ChatEvent::Finished { reason, usage });
            }
            Event::Failed(error) => self.ready.push_back(ChatEvent::Failed(error)),
        }
    }

    fn token(&mut self, id: u32) {
        self.generated += 1;
        if self.stop.found() || self.tokenizer.is_eog(id) {
            return;
        }
        let text = self.detokenizer.push(id);
        if text.is_empty() {
            return;
        }
        let delta = match &mut self.splitter {
            Some(splitter) => splitter.push(&text),
            None => ReasoningDelta { content: text, ..ReasoningDelta::default() },
        };
        self.deliver(delta);
    }

    fn deliver(&mut self, delta: ReasoningDelta) {
        if !delta.reasoning.is_empty() {
            self.ready.push_back(ChatEvent::Reasoning(delta.reasoning));
        }
        let content = self.stop.push(&(delta.content + &delta.calls));
        if !content.is_empty() {
            self.ready.push_back(ChatEvent::Content(content));
        }
        if self.stop.found() {
            self.events.cancel();
        }
    }

    fn finish_text(&mut self) {
        if self.stop.found() {
            return;
        }
        let rest = self.detokenizer.finish();
        let delta = match &mut self.splitter {
            Some(splitter) => {
                let mut delta = splitter.push(&rest);
                let last = splitter.finish();
                delta.reasoning += &last.reasoning;
                delta.content += &last.content;
                delta.calls += &last.calls;
                delta
            }
            None => ReasoningDelta { content: rest, ..ReasoningDelta::default() },
        };
        self.deliver(delta);
        let held = self.stop.finish();
        if !held.is_empty() {
            self.ready.push_back(ChatEvent::Content(held));
        }
    }
}

impl Iterator for ChatStream {
    type Item = ChatEvent;

    fn next(&mut self) -> Option<ChatEvent> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            let event = self.events.recv()?;
            self.take(event);
        }
    }
}

impl std::fmt::Debug for ChatStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ChatStream")
    }
}
