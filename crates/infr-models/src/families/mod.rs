//! One file per family.

pub(crate) mod llama;
