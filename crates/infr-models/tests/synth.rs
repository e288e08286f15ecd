//! Random models: they load through the real loader, and public shapes have their public sizes.

// A helper that fails fails its test.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;

use infr_backend::WeightSource;
use infr_gguf::{Gguf, TensorType};
use infr_models::{BuildOptions, DecodeStyle, from_gguf, synth};
use infr_tensor::DType;

#[test]
fn every_weight_has_the_bytes_of_its_declaration() {
    for mix in ["F32", "Q4_K_M", "Q2_0", "MXFP4"] {
        for recipe in synth::tiny_recipes(mix) {
            let bytes = synth::tiny(&recipe.name, 3, mix).unwrap();
            let loaded = from_gguf(Arc::new(Gguf::from_bytes("m", bytes).unwrap())).unwrap();
            let draft = loaded.model.info().draft;
            let options = BuildOptions { draft, ..BuildOptions::default() };
            let program = loaded.model.program(&loaded.gguf, &options).unwrap();
            let weights = loaded.weights();
            for weight in &program.weights {
                let found = weights.load(weight).unwrap().len() as u64;
                let wanted = weight.desc.dtype.bytes_for(weight.desc.shape.elements().unwrap());
                assert_eq!(Some(found), wanted, "{} {}", recipe.name, weight.name);
            }
            let named = program.weights.len();
            assert!(named <= loaded.gguf.tensors().len(), "{}: {named}", recipe.name);
        }
    }
}

#[test]
fn a_seed_gives_the_same_file() {
    let file = |seed| synth::tiny("qwen3moe", seed, "Q4_K_M").unwrap();
    assert!(file(1) == file(1));
    assert!(file(1) != file(2));
}

#[test]
fn every_mix_makes_a_file() {
    for mix in ["Q3_K_M", "IQ2_XXS", "IQ4_XS", "Q8_0", "TQ2_0", "NVFP4", "Q1_0", "BF16", "Q5_0"] {
        let gguf = Gguf::from_bytes("m", synth::tiny("llama", 3, mix).unwrap()).unwrap();
        let tensor = gguf.tensor("blk.2.ffn_up.weight").unwrap();
        let TensorType::Known(dtype) = tensor.dtype else { panic!("{mix}") };
        let base = DType::from_name(mix.trim_end_matches("_M")).unwrap();
        assert_eq!(dtype, base, "{mix}");
    }
    assert!(synth::tiny("llama", 3, "Q9_K").is_err());
}

/// Parameters of a public shape, in billions.
fn billions(name: &str) -> f64 {
    let shape = synth::shapes::find(name).unwrap();
    let plan = synth::plan(&(shape.recipe)(), shape.mix).unwrap();
    plan.tensors().iter().map(|t| t.elements()).sum::<u64>() as f64 / 1e9
}

#[test]
fn public_shapes_have_public_sizes() {
    let sizes = [
        ("qwen3-0.6b", 0.596),
        ("qwen3-1.7b", 1.72),
        ("qwen3-8b", 8.19),
        ("qwen3-14b", 14.77),
        ("qwen3-30b-a3b", 30.53),
        ("llama-3.2-1b", 1.236),
        ("llama-3.1-8b", 8.03),
        ("llama-4-scout", 107.8),
        ("gemma-3-1b", 1.0),
        ("gemma-3-12b", 11.77),
        ("gemma-4-e2b", 4.65),
        ("gemma-4-26b-a4b", 25.2),
        ("qwen3.5-0.8b", 0.75),
        ("qwen3.5-9b", 8.95),
        ("qwen3.5-35b-a3b", 34.7),
        ("gpt-oss-20b", 20.9),
        ("bonsai-8b", 8.19),
    ];
    for (name, wanted) in sizes {
        let found = billions(name);
        assert!((found / wanted - 1.0).abs() < 0.02, "{name}: {found:.3} billion, not {wanted}");
    }
    for shape in synth::shapes::SHAPES {
        assert!(billions(shape.name) > 0.1, "{}", shape.name);
    }
}

#[test]
fn a_q4_k_m_file_has_its_public_size() {
    let shape = synth::shapes::find("qwen3-8b").unwrap();
    let plan = synth::plan(&(shape.recipe)(), "Q4_K_M").unwrap();
    let bytes: u64 = plan.tensors().iter().map(|t| t.bytes).sum();
    // Qwen3-8B-Q4_K_M.gguf has 5,027,783,488 bytes with its header.
    assert!((5_020_000_000..5_028_000_000).contains(&bytes), "{bytes}");
}

#[test]
fn styles_and_defaults() {
    let info = |name: &str| {
        let gguf = Gguf::from_bytes("m", synth::tiny(name, 3, "F32").unwrap()).unwrap();
        from_gguf(Arc::new(gguf)).unwrap().model.info().clone()
    };
    assert_eq!(info("qwen3").sampling.top_k, Some(20));
    assert_eq!(info("gemma3").sampling.temperature, Some(1.0));
    assert_eq!(info("llama").style, DecodeStyle::Autoregressive);
    assert!(
        matches!(info("diffusion_gemma").style, DecodeStyle::BlockDiffusion(d) if d.canvas == 12)
    );
    assert!(matches!(info("gemma_embedding").style, DecodeStyle::Embedding { causal: false, .. }));
    let mtp = info("qwen35_mtp");
    assert_eq!((mtp.layers, mtp.draft), (8, true));
    assert_eq!(info("qwen3moe").experts, Some((8, 2)));
    let recipe = common::recipe("qwen3").key("general.sampling.temp", 0.25f32);
    let mut bytes = Vec::new();
    synth::write(&recipe, "F32", 1, &mut bytes, &mut |_, _| {}).unwrap();
    let loaded = from_gguf(Arc::new(Gguf::from_bytes("m", bytes).unwrap())).unwrap();
    assert_eq!(loaded.model.info().sampling.temperature, Some(0.25));
    assert_eq!(loaded.model.info().sampling.top_p, Some(0.95));
}

/// llama.cpp loads and runs the tiny files of every architecture that it knows.
///
/// Needs `INFR_PEERS`, a folder that holds `llama/bin/llama-bench`.
#[test]
#[allow(clippy::disallowed_methods)]
fn llama_cpp_loads_what_is_written() {
    let Some(peers) = std::env::var_os("INFR_PEERS") else {
        println!("skipped: INFR_PEERS is not set");
        return;
    };
    let bench = std::path::Path::new(&peers).join("llama/bin/llama-bench");
    let file = std::env::temp_dir().join(format!("infr-synth-{}.gguf", std::process::id()));
    for recipe in synth::tiny_recipes("F32") {
        if matches!(recipe.arch, "bitnet-b1.58" | "diffusion-gemma") {
            continue;
        }
        std::fs::write(&file, synth::tiny(&recipe.name, 3, "F32").unwrap()).unwrap();
        let out = std::process::Command::new(&bench)
            .arg("-m")
            .arg(&file)
            .args(["-p", "8", "-n", "4", "-r", "1"])
            .output()
            .unwrap();
        let log = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{}: {log}", recipe.name);
    }
    let _ = std::fs::remove_file(&file);
}
