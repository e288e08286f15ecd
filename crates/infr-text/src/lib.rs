//! Text on both sides of a model: tokenizers, detokenisation and chat templates, each from a GGUF
//! file's own metadata.
//!
//! Level 2: depends on `infr-gguf` and on nothing else of infr. It knows text, not engines.
//!
//! Invariants:
//! - Everything here is a function of its arguments: no environment, no printing; the clock that
//!   templates read is passed in.
//! - Text from users never becomes a control token unless the caller asks for it.
//! - Costs grow in proportion to the text (tokenizer) or are bounded (templates), whatever the
//!   text and the file are.
//!
//! Reading order: [`tokenizer`], [`message`], [`template`], [`reasoning`].

pub mod tokenizer;

pub mod message;
pub mod reasoning;
pub mod template;
