//! Chat messages in, text deltas out: joins the engine, which knows tokens, and the text crate,
//! which knows templates and tokenizers.
//!
//! Level 5: stands on `infr-engine`, `infr-text`, `infr-models`, `infr-backend` and `infr-gguf`.
//!
//! Invariants: no HTTP and no terminal here; nothing of a conversation is kept between requests
//! (the engine's cache finds what it has computed before).
//!
//! Reading order: [`load`], [`request`], [`service`], [`stream`], [`stop`].

pub mod error;
pub mod load;
pub mod request;
pub mod service;
pub mod stop;
pub mod stream;

pub use error::ChatError;
pub use load::{ChatModel, LoadOptions};
pub use request::{ChatRequest, Prompt, SamplingOverrides};
pub use stream::{ChatEvent, ChatStream};
