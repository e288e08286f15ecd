//! Shapes of public models, from their published configurations.

use crate::synth::SynthError;
use crate::synth::recipe::Recipe;

/// A public model's shape.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// What users type.
    pub name: &'static str,
    /// The file type that people download most.
    pub mix: &'static str,
    /// Its recipe.
    pub recipe: fn() -> Recipe,
}

macro_rules! shapes {
    ($($name:literal $mix:literal $recipe:expr;)*) => {
        /// All shapes.
        pub const SHAPES: &[Shape] = &[$(
            Shape { name: $name, mix: $mix, recipe: || $recipe },
        )*];
    };
}

shapes! {
    "qwen3-0.6b" "Q8_0" qwen3("qwen3-0.6b", 28, 1024, 3072).attention(16, 8, 128);
    "qwen3-1.7b" "Q4_K_M" qwen3("qwen3-1.7b", 28, 2048, 6144).attention(16, 8, 128);
    "qwen3-8b" "Q4_K_M" qwen3("qwen3-8b", 36, 4096, 12288).attention(32, 8, 128).with(OWN_HEAD);
    "qwen3-14b" "Q4_K_M" qwen3("qwen3-14b", 40, 5120, 17408).attention(40, 8, 128).with(OWN_HEAD);
    "qwen3-30b-a3b" "Q4_K_M" Recipe { arch: "qwen3moe", ..qwen3("qwen3-30b-a3b", 48, 2048, 6144) }
        .attention(32, 4, 128).experts(128, 8, 768).with(OWN_HEAD);
    "bonsai-8b" "Q2_0" qwen3("bonsai-8b", 36, 4096, 12288).attention(32, 8, 128).with(OWN_HEAD);
    "llama-3.2-1b" "Q4_K_M" llama3("llama-3.2-1b", 16, 2048, 8192).attention(32, 8, 64);
    "llama-3.1-8b" "Q4_K_M" llama3("llama-3.1-8b", 32, 4096, 14336).attention(32, 8, 128)
        .with(OWN_HEAD);
    "gemma-3-1b" "Q4_K_M" gemma3("gemma-3-1b", 26, 1152, 6912).attention(4, 1, 256)
        .key(".attention.sliding_window", 512u32);
    "gemma-3-12b" "Q4_K_M" gemma3("gemma-3-12b", 48, 3840, 15360).attention(16, 8, 256)
        .key(".attention.sliding_window", 1024u32)
        .key(".rope.scaling.type", "linear").key(".rope.scaling.factor", 8.0f32);
}

/// A head of its own beside the embedding table.
const OWN_HEAD: &[&str] = &["output.weight"];

/// The shape of this name.
///
/// # Errors
/// When there is none.
pub fn find(name: &str) -> Result<Shape, SynthError> {
    SHAPES.iter().copied().find(|s| s.name.eq_ignore_ascii_case(name)).ok_or_else(|| {
        let known: Vec<&str> = SHAPES.iter().map(|s| s.name).collect();
        SynthError::Unknown { found: name.to_owned(), known: known.join(", ") }
    })
}

fn qwen3(name: &str, layers: u32, embedding: u32, ffn: u32) -> Recipe {
    Recipe::new(name, "qwen3", 151_936).decoder(layers, embedding, ffn).context(40_960, 1e6)
}

fn llama3(name: &str, layers: u32, embedding: u32, ffn: u32) -> Recipe {
    Recipe::new(name, "llama", 128_256)
        .decoder(layers, embedding, ffn)
        .context(131_072, 5e5)
        .key(".attention.layer_norm_rms_epsilon", 1e-5f32)
        .with(&["rope_freqs.weight"])
}

fn gemma3(name: &str, layers: u32, embedding: u32, ffn: u32) -> Recipe {
    // The embedding is multiplied by the root of its width.
    Recipe::new(name, "gemma3", 262_144)
        .decoder(layers, embedding, ffn)
        .context(131_072, 1e6)
        .spread(1.0 / (embedding as f32).sqrt())
}
