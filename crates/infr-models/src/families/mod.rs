//! One file per family.

pub(crate) mod bitnet;
pub(crate) mod deepseek2;
pub(crate) mod diffusion_gemma;
pub(crate) mod gemma2;
pub(crate) mod gemma3;
pub(crate) mod gemma4;
pub(crate) mod glm4moe;
pub(crate) mod gpt_oss;
pub(crate) mod granite;
pub(crate) mod lfm2;
pub(crate) mod llama;
pub(crate) mod llama4;
pub(crate) mod mistral3;
pub(crate) mod olmo2;
pub(crate) mod phi3;
pub(crate) mod qwen2;
pub(crate) mod qwen3;
pub(crate) mod qwen35;
pub(crate) mod smollm3;
