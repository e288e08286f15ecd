//! Tiny models of every family whose ops have kernels, against the reference: prefill in tiles, single
//! rows, a ragged batch.

#![allow(clippy::unwrap_used)]

mod support;

use infr_backend::{BackendError, ExpertPlacement, Placement, TokenIn, Want};
use infr_gpu::GpuOptions;
use infr_graph::{Output, Phase};
use infr_models::synth::tiny_recipes;
use infr_tensor::DType;
use infr_testkit::driver::{Driver, Work};
use infr_testkit::ops::reference;
use infr_testkit::{Backend, Rng, Subject, Tolerance};

/// Single precision through all layers.
const CLOSE: Tolerance = Tolerance { max: 5e-4, rms: 1e-4 };
/// With halves in the cache, where a key may round to the neighbouring one.
const HALVES: Tolerance = Tolerance { max: 2e-2, rms: 5e-3 };

/// Whether the backend can open the program; the reason when not.
fn opens(backend: &dyn Backend, subject: &Subject) -> Result<(), String> {
    let placement = Placement {
        homes: Vec::new(),
        experts: ExpertPlacement::Resident,
        pages: vec![4; subject.program.cache_groups().len()],
        page_len: 4,
        slots: 1,
        max_rows: 4,
    };
    match backend.open(&subject.program, &*subject.weights, &placement) {
        Ok(_) => Ok(()),
        Err(BackendError::Unsupported(what)) => Err(what),
        Err(other) => panic!("{}: {other}", subject.name),
    }
}

/// Logits of every row, or hidden rows of models without a head.
fn rows(backend: &dyn Backend, subject: &Subject) -> Vec<Vec<f32>> {
    let graph = subject.program.graph(Phase::Forward).expect("a forward graph");
    let want = match graph.output(Output::Logits) {
        Some(_) => Want::Logits,
        None => Want::Hidden,
    };
    let mut rng = Rng::new(3);
    let mut driver = Driver::new(backend, subject, 4, 1);
    let (mut a, mut b) = (driver.start(), driver.start());
    let mut tokens = |n: usize| -> Vec<TokenIn> {
        (0..n).map(|_| TokenIn::Id(rng.below(subject.vocab))).collect()
    };
    let mut out = Vec::new();
    for (n_a, n_b) in [(19, 3), (1, 2), (1, 1), (2, 14), (1, 1)] {
        let (a_tokens, b_tokens) = (tokens(n_a), tokens(n_b));
        let rows = driver.step(&mut [
            Work { seq: &mut a, tokens: &a_tokens, want },
            Work { seq: &mut b, tokens: &b_tokens, want },
        ]);
        out.extend(rows.into_iter().map(|r| [r.logits, r.hidden].concat()));
    }
    out
}

fn compare(mix: &str, cache: DType, at_least: &[&str]) {
    let tolerance = if cache == DType::F32 { CLOSE } else { HALVES };
    let Some(backend) = support::backend(GpuOptions::default()) else { return };
    let (mut ran, mut refused, mut faults) = (Vec::new(), Vec::new(), Vec::new());
    for recipe in tiny_recipes(mix) {
        let subject = support::tiny(&recipe.name, mix, cache);
        if let Err(what) = opens(&backend, &subject) {
            refused.push(format!("{}: {what}", recipe.name));
            continue;
        }
        let (expected, found) = (rows(&reference(), &subject), rows(&backend, &subject));
        assert_eq!(expected.len(), found.len());
        for (row, (expected, found)) in expected.iter().zip(&found).enumerate() {
            if let Err(what) = tolerance.check(expected, found) {
                faults.push(format!("{} row {row}: {what}", recipe.name));
                break;
            }
        }
        ran.push(recipe.name);
    }
    println!("{mix}: ran {ran:?}\nrefused {refused:#?}");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    for name in at_least {
        assert!(ran.iter().any(|n| n == name), "{name} did not run: {refused:#?}");
    }
}

#[test]
fn f32_models() {
    compare("F32", DType::F32, &["llama", "llama_yarn", "qwen2", "qwen3"]);
}

#[test]
fn quantised_models() {
    compare("Q8_0", DType::F16, &["llama", "qwen3"]);
}

#[test]
fn k_quants() {
    compare("Q4_K_M", DType::F32, &["llama"]);
}
