//! What a caller asks for.

use std::time::Instant;

use infr_backend::SampleParams;

/// What a request is to give back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Wanted {
    /// New tokens.
    #[default]
    Generate,
    /// The logits of every prompt position, in chunks of [`Event::Logits`](crate::Event::Logits).
    Logits,
    /// The hidden row of every prompt position, in chunks of
    /// [`Event::Hidden`](crate::Event::Hidden).
    Hidden,
    /// The hidden row of the last prompt position.
    LastHidden,
    /// The logits of the last prompt position (classes of a ranking model, next-token scores).
    LastLogits,
}

/// Tokens in, and how the answer is made.
pub struct Request {
    /// The prompt.
    pub prompt: Vec<u32>,
    /// How tokens are drawn.
    pub sample: SampleParams,
    /// The most new tokens; `u32::MAX` means until the context is full.
    pub max_tokens: u32,
    /// Tokens that end the answer. The one that does is delivered as its last token.
    pub stop_tokens: Vec<u32>,
    /// Restricts the tokens, for structured output.
    pub constraint: Option<Box<dyn TokenConstraint>>,
    /// The request ends at this time, queued or running.
    pub deadline: Option<Instant>,
    /// Deliver this many of the most likely tokens with each token.
    pub logprobs: Option<u8>,
    /// What is wanted.
    pub want: Wanted,
    /// Prompt lengths where a later request will probably go on from (ends of messages), ascending.
    /// Models with recurrent layers keep a snapshot there.
    pub marks: Vec<u32>,
    /// Requests with different salts share no cached page.
    pub cache_salt: u64,
}

impl Request {
    /// A greedy request for up to `max_tokens` tokens.
    pub fn new(prompt: Vec<u32>, max_tokens: u32) -> Request {
        Request {
            prompt,
            sample: SampleParams::default(),
            max_tokens,
            stop_tokens: Vec::new(),
            constraint: None,
            deadline: None,
            logprobs: None,
            want: Wanted::Generate,
            marks: Vec::new(),
            cache_salt: 0,
        }
    }
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request")
            .field("prompt", &self.prompt.len())
            .field("sample", &self.sample)
            .field("max_tokens", &self.max_tokens)
            .field("stop_tokens", &self.stop_tokens)
            .field("constraint", &self.constraint.is_some())
            .field("want", &self.want)
            .finish_non_exhaustive()
    }
}

/// Which tokens may come next: a grammar over tokens.
pub trait TokenConstraint: Send {
    /// Sets the bit of every allowed token in `bits` (bit `t % 32` of word `t / 32`), which comes
    /// zeroed and holds the whole vocabulary. A complete text allows only tokens that end it; a
    /// mask without any bit fails the request.
    fn mask(&mut self, bits: &mut [u32]);

    /// Takes the token that was drawn; `false` when it is not allowed. Stop tokens of the request
    /// are not given here.
    fn accept(&mut self, token: u32) -> bool;

    /// Takes back the last `tokens` tokens.
    fn rollback(&mut self, tokens: u32);
}
