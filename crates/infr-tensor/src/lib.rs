//! Data types, shapes and block codecs: the vocabulary that every other crate speaks.
//!
//! Level 0: depends on no other infr crate, does no I/O, knows no device.
//! Reading order: [`dtype`] (the one table), [`shape`], then [`quant`] (one file per block format).

pub mod dtype;
pub mod quant;
pub mod shape;

pub use dtype::{DType, DTypeInfo};
pub use shape::{Dim, Shape, TensorDesc};
