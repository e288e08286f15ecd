//! Data types, shapes and block codecs: the vocabulary that every other crate speaks.
//!
//! Level 0: depends on no other infr crate, does no I/O, knows no device.
//!
//! Invariants: a format's sizes stand in the table of [`dtype`] and nowhere else; decoders are exact to
//! the bit; sizes that callers pass come from validated tensors, so a wrong one panics.
//!
//! Reading order: [`dtype`] (the one table), [`shape`], then [`quant`] (one file per block format).

pub mod dtype;
pub mod quant;
pub mod shape;

pub use dtype::{DType, DTypeInfo};
pub use shape::{Dim, Shape, TensorDesc};
