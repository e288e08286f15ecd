//! Reads, validates and writes GGUF files. Every byte of a file is untrusted.
//!
//! Level 1: depends on `infr-tensor` for the table of data types and on nothing else of infr.
//!
//! Invariants:
//! - Reading never panics and never reserves memory from a count that the file merely claims: each
//!   count is first bounded by the bytes that remain. Arithmetic on sizes is checked.
//! - A [`Gguf`] that opened is consistent: tensor names are unique, every tensor lies inside its
//!   part of the file, ranges are aligned and do not overlap.
//! - Errors name the file, the key or tensor, the offset, what was wanted and what was found;
//!   text that comes from the file is escaped and shortened in them.
//! - `unsafe` stands in `map.rs` only.
//!
//! Reading order: [`file`] (the entry point), [`value`] and [`metadata`] (the key-value section),
//! [`tensors`] (the directory of tensors), `header` (the parser) on `cursor`, `split`, `sniff`, `map`,
//! [`write`], [`error`].

mod cursor;
pub mod error;
pub mod file;
mod header;
mod map;
pub mod metadata;
mod sniff;
mod split;
pub mod tensors;
pub mod value;
pub mod write;

pub use error::GgufError;
pub use file::{Access, Gguf};
pub use metadata::Metadata;
pub use tensors::{TensorInfo, TensorType};
pub use value::{Array, StringArray, Text, Value};
pub use write::{DataWriter, Writer};
