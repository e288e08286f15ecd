//! What is wrong with a file is said with names and values.

// A helper that fails fails its test.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;

use common::{edited, recipe};
use infr_gguf::Value;
use infr_models::{BuildOptions, from_gguf, synth};
use infr_tensor::DType;

/// The message for a tiny model with one key changed.
fn message(name: &str, key: &str, value: impl Into<Value>) -> String {
    let recipe = recipe(name).key(key, value);
    match synth::plan(&recipe, "F32") {
        Ok(_) => panic!("{name} with another {key} is accepted"),
        Err(e) => e.to_string(),
    }
}

/// The message for a tiny file with tensors edited.
fn tensor_message(name: &str, edit: impl Fn(&infr_gguf::TensorInfo) -> Option<Vec<u64>>) -> String {
    let loaded = from_gguf(Arc::new(edited(name, edit))).unwrap();
    let built = loaded.model.program(&loaded.gguf, &BuildOptions::default());
    built.unwrap_err().to_string()
}

#[test]
fn keys_out_of_range() {
    let cases: &[(&str, &str, Value, &str)] = &[
        ("llama", ".block_count", 0u32.into(), "llama.block_count"),
        ("llama", ".block_count", 513u32.into(), "1 to 512"),
        ("llama", ".embedding_length", 0u32.into(), "llama.embedding_length"),
        ("llama", ".attention.head_count_kv", 3u32.into(), "it must divide the 4 query heads"),
        ("llama", ".attention.head_count_kv", vec![2u32; 3].into(), "one per block is needed: 4"),
        ("llama", ".rope.dimension_count", 14u32.into(), "the whole head of 16"),
        ("llama", ".rope.freq_base", 0.0f32.into(), "above 0"),
        ("llama", ".rope.freq_base", f32::NAN.into(), "finite"),
        ("llama", ".rope.scaling.type", "ntk".into(), "none, linear, yarn and longrope"),
        ("llama", ".attention.layer_norm_rms_epsilon", 0.0f32.into(), "above 0"),
        ("llama", ".attention.key_length", (1u32 << 13).into(), "1 to 4096"),
        ("llama", ".context_length", 0u32.into(), "llama.context_length"),
        ("llama", ".block_count", "four".into(), "integer"),
        ("qwen3", ".rope.dimension_count", 15u32.into(), "an even number up to the head's 16"),
        ("qwen3moe", ".expert_used_count", 9u32.into(), "1 to 8"),
        ("qwen3moe", ".expert_used_count", 0u32.into(), "1 to 8"),
        ("qwen3moe", ".expert_feed_forward_length", vec![64u32, 0, 32].into(), "one value for all"),
        ("qwen35", ".ssm.inner_size", 60u32.into(), "64"),
        ("qwen35", ".ssm.group_count", 3u32.into(), "it must divide the 4 value heads"),
        ("qwen35", ".full_attention_interval", 0u32.into(), "1 to 512"),
        ("deepseek2", ".expert_group_count", 3u32.into(), "groups must divide 8 experts"),
        ("deepseek2", ".attention.key_length_mla", 16u32.into(), "more than the 16 rotated"),
        ("gemma4_e2b", ".attention.shared_kv_layers", 3u32.into(), "right before the borrowers"),
        ("gemma4", ".attention.sliding_window", 0u32.into(), "sliding_window"),
        ("llama4", ".interleave_moe_layer_step", 0u32.into(), "1 to 512"),
        ("llama4", ".attention.sliding_window", 0u32.into(), "without chunks"),
        ("lfm2", ".shortconv.l_cache", 1u32.into(), "2 to 64"),
        ("lfm2", ".attention.causal", false.into(), "causal order only"),
        ("diffusion_gemma", "diffusion.canvas_length", 0u32.into(), "diffusion.canvas_length"),
    ];
    for (name, key, value, wanted) in cases {
        let found = message(name, key, value.clone());
        let last = key.rsplit('.').next().unwrap();
        assert!(found.contains(wanted), "{name} {key}: {found}");
        assert!(found.contains(last) || found.contains("head_count"), "{name} {key}: {found}");
    }
}

#[test]
fn missing_keys() {
    for key in [".block_count", ".attention.head_count", ".attention.layer_norm_rms_epsilon"] {
        let mut recipe = recipe("llama");
        recipe.keys.retain(|(k, _)| k != key);
        let found = synth::plan(&recipe, "F32").unwrap_err().to_string();
        assert!(found.contains(&format!("llama{key}")) && found.contains("missing"), "{found}");
    }
}

#[test]
fn unknown_architectures_get_the_list() {
    let mut recipe = recipe("llama");
    recipe.arch = "rwkv7";
    let found = synth::plan(&recipe, "F32").unwrap_err().to_string();
    assert!(found.contains("rwkv7") && found.contains("qwen35moe") && found.contains("llama4"));
}

#[test]
fn tensors_missing_or_misshapen() {
    let found =
        tensor_message("llama", |t| (t.name != "blk.2.ffn_up.weight").then(|| t.dims.clone()));
    assert_eq!(found, "tensor \"blk.2.ffn_up.weight\" of shape [64, 128] is missing");
    let found = tensor_message("llama", |t| match t.name.as_str() {
        "blk.1.attn_k.weight" => Some(vec![64, 64]),
        _ => Some(t.dims.clone()),
    });
    assert_eq!(found, "tensor \"blk.1.attn_k.weight\" should have shape [64, 32] but has [64, 64]");
    let found = tensor_message("qwen3moe", |t| match t.name.as_str() {
        "blk.0.ffn_down_exps.weight" => Some(vec![64, 64, 7]),
        _ => Some(t.dims.clone()),
    });
    assert!(found.contains("[64, 64, 8] but has [64, 64, 7]"), "{found}");
    let found = tensor_message("llama", |t| match t.name.as_str() {
        "blk.0.attn_norm.weight" => Some(vec![65]),
        _ => Some(t.dims.clone()),
    });
    assert!(found.contains("attn_norm"), "{found}");
}

#[test]
fn caches_of_two_types_are_refused() {
    let loaded = from_gguf(Arc::new(edited("llama", |t| Some(t.dims.clone())))).unwrap();
    let options = BuildOptions { cache_v: DType::Q8_0, ..BuildOptions::default() };
    let found = loaded.model.program(&loaded.gguf, &options).unwrap_err().to_string();
    assert!(found.contains("F16 keys and Q8_0 values"), "{found}");
}
