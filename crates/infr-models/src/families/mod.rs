//! One file per family.

pub(crate) mod gemma3;
pub(crate) mod llama;
pub(crate) mod qwen2;
pub(crate) mod qwen3;
