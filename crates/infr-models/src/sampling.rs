//! How tokens are drawn when neither user nor file says so, by family.

use crate::family::SamplingDefaults;

const fn defaults(temperature: f32, top_k: u32, top_p: f32) -> SamplingDefaults {
    SamplingDefaults {
        temperature: Some(temperature),
        top_k: Some(top_k),
        top_p: Some(top_p),
        min_p: None,
        repeat_penalty: None,
    }
}

/// Llama and its relatives.
pub(crate) const LLAMA: SamplingDefaults = defaults(0.6, 0, 0.9);
/// Qwen 2.
pub(crate) const QWEN2: SamplingDefaults = defaults(0.7, 20, 0.8);
/// Gemma.
pub(crate) const GEMMA: SamplingDefaults = defaults(1.0, 64, 0.95);
/// Qwen 3 and everything else.
pub(crate) const OTHER: SamplingDefaults = defaults(0.6, 20, 0.95);
