//! Shapes of public models, from their published configurations.

use crate::families::gpt_oss::BIASES;
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
    "llama-4-scout" "Q4_K_M" llama4_scout();
    "gemma-4-e2b" "Q4_K_M" gemma4_e2b();
    "gemma-4-12b" "Q4_K_M" gemma4("gemma-4-12b", 48, 3840, (16, 8, 2)).key(".feed_forward_length", 15_360u32);
    "gemma-4-26b-a4b" "Q4_K_M" gemma4("gemma-4-26b-a4b", 30, 2816, (16, 8, 2))
        .key(".feed_forward_length", 2112u32).experts(128, 8, 704)
        .with(&["ffn_gate_inp.weight", "ffn_gate_up_exps.weight", "ffn_down_exps.scale"]);
    "qwen3.5-0.8b" "Q4_K_M" qwen35("qwen3.5-0.8b", "qwen35", (24, 1024, 3584)).hybrid((8, 2), (16, 16));
    "qwen3.5-9b" "Q4_K_M" qwen35("qwen3.5-9b", "qwen35", (32, 4096, 12_288)).hybrid((16, 4), (16, 32))
        .with(OWN_HEAD);
    "qwen3.5-35b-a3b" "Q4_K_M" qwen35("qwen3.5-35b-a3b", "qwen35moe", (40, 2048, 512))
        .hybrid((16, 2), (16, 32)).experts(256, 8, 512)
        .key(".expert_shared_feed_forward_length", 512u32).with(OWN_HEAD);
    "gpt-oss-20b" "MXFP4" gpt_oss_20b();
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

impl Recipe {
    /// Attention heads (all, KV) and DeltaNet heads (keys, values) of a Qwen hybrid.
    fn hybrid(self, heads: (u32, u32), delta_heads: (u32, u32)) -> Recipe {
        self.attention(heads.0, heads.1, 256)
            .key(".rope.dimension_count", 64u32)
            .key(".rope.dimension_sections", vec![11i32, 11, 10, 0])
            .key(".full_attention_interval", 4u32)
            .key(".ssm.conv_kernel", 4u32)
            .key(".ssm.state_size", 128u32)
            .key(".ssm.group_count", delta_heads.0)
            .key(".ssm.time_step_rank", delta_heads.1)
            .key(".ssm.inner_size", 128 * delta_heads.1)
    }
}

fn qwen35(name: &str, arch: &'static str, (layers, embedding, ffn): (u32, u32, u32)) -> Recipe {
    Recipe::new(name, arch, 248_320).decoder(layers, embedding, ffn).context(262_144, 1e7)
}

fn llama4_scout() -> Recipe {
    Recipe::new("llama-4-scout", "llama4", 202_048)
        .decoder(48, 5120, 16_384)
        .attention(40, 8, 128)
        .context(10_485_760, 5e5)
        .key(".attention.layer_norm_rms_epsilon", 1e-5f32)
        .experts(16, 1, 8192)
        .key(".interleave_moe_layer_step", 1u32)
        .with(&["output.weight", "rope_freqs.weight"])
}

fn gpt_oss_20b() -> Recipe {
    Recipe::new("gpt-oss-20b", "gpt-oss", 201_088)
        .decoder(24, 2880, 2880)
        .attention(64, 8, 64)
        .context(131_072, 150_000.0)
        .key(".attention.layer_norm_rms_epsilon", 1e-5f32)
        .key(".attention.sliding_window", 128u32)
        .key(".rope.scaling.type", "yarn")
        .key(".rope.scaling.factor", 32.0f32)
        .key(".rope.scaling.original_context_length", 4096u32)
        .experts(32, 4, 2880)
        .with(BIASES)
}

/// A Gemma 4 whose every sixth layer is full and makes values of its keys; heads are all, KV of
/// windowed layers, KV of full layers.
fn gemma4(name: &str, layers: u32, embedding: u32, heads: (u32, u32, u32)) -> Recipe {
    let windowed: Vec<bool> = (1..=layers).map(|i| i % 6 != 0).collect();
    let mut recipe = gemma4_block(name, embedding, &windowed, heads)
        .key(".attention.sliding_window", 1024u32)
        .key(".embedding_length_per_layer_input", 0u32);
    for layer in (0..layers).filter(|&i| !windowed[i as usize]) {
        recipe = recipe.lacking(format!("blk.{layer}.attn_v.weight"));
    }
    recipe
}

fn gemma4_e2b() -> Recipe {
    let windowed: Vec<bool> = (1..=35).map(|i| i % 5 != 0).collect();
    let ffn: Vec<u32> = (0..35).map(|i| if i < 15 { 6144 } else { 12_288 }).collect();
    gemma4_block("gemma-4-e2b", 1536, &windowed, (8, 1, 1))
        .key(".attention.sliding_window", 512u32)
        .key(".attention.shared_kv_layers", 20u32)
        .key(".embedding_length_per_layer_input", 256u32)
        .key(".feed_forward_length", ffn)
}

fn gemma4_block(
    name: &str,
    embedding: u32,
    windowed: &[bool],
    (heads, window_kv, full_kv): (u32, u32, u32),
) -> Recipe {
    let kv_heads: Vec<u32> =
        windowed.iter().map(|&w| if w { window_kv } else { full_kv }).collect();
    Recipe::new(name, "gemma4", 262_144)
        .decoder(windowed.len() as u32, embedding, 0)
        .attention(heads, window_kv, 512)
        .key(".attention.head_count_kv", kv_heads)
        .key(".attention.key_length_swa", 256u32)
        .key(".attention.value_length_swa", 256u32)
        .key(".rope.dimension_count_swa", 256u32)
        .context(262_144, 1e6)
        .key(".rope.freq_base_swa", 1e4f32)
        .key(".attention.sliding_window_pattern", windowed.to_vec())
        .key(".attention.shared_kv_layers", 0u32)
        .with(&["rope_freqs.weight", "attn_v.weight", "layer_output_scale.weight"])
        .spread(1.0 / (embedding as f32).sqrt())
        .gain(0.06)
}
