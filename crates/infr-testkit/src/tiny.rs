//! Tiny random models of every family, through the real loader.

use std::sync::Arc;

use infr_backend::Backend;
use infr_cpu::{CpuBackend, CpuOptions};
use infr_gguf::Gguf;
use infr_graph::Op;
use infr_models::{BuildOptions, DecodeStyle, synth};
use infr_tensor::DType;

use crate::driver::Driver;
use crate::rng::Rng;
use crate::subject::Subject;
use crate::tolerance::Tolerance;

/// Every tiny model that makes tokens, in the file type `mix` (`F32`, `Q4_K_M`), with a cache of type
/// `cache`.
///
/// # Panics
/// When a model cannot be made, loaded or built: a bug of `infr-models`.
pub fn subjects(mix: &str, cache: DType) -> Vec<Subject> {
    let recipes = synth::tiny_recipes(mix);
    recipes.iter().filter_map(|recipe| subject(&recipe.name, mix, cache)).collect()
}

/// One tiny model by name; `None` when it makes vectors.
///
/// # Panics
/// As [`subjects`].
pub fn subject(name: &str, mix: &str, cache: DType) -> Option<Subject> {
    let fail = |e: &dyn std::fmt::Display| -> ! { panic!("{name} in {mix}: {e}") };
    let bytes = synth::tiny(name, 7, mix).unwrap_or_else(|e| fail(&e));
    let gguf = Arc::new(Gguf::from_bytes(name, bytes).unwrap_or_else(|e| fail(&e)));
    let loaded = infr_models::from_gguf(gguf).unwrap_or_else(|e| fail(&e));
    let info = loaded.model.info();
    if matches!(info.style, DecodeStyle::Embedding { .. }) {
        return None;
    }
    let options =
        BuildOptions { cache_k: cache, cache_v: cache, context: 256, ..BuildOptions::default() };
    let program = loaded.model.program(&loaded.gguf, &options).unwrap_or_else(|e| fail(&e));
    Some(Subject {
        name: format!("{name} in {mix}"),
        program,
        weights: Arc::new(loaded.weights()),
        vocab: info.vocab,
    })
}

/// A backend's logits of some tokens, prefilled in two chunks and then fed one by one, against the
/// reference's.
///
/// Every row is compared, but of models with experts the better half only: where two experts are about
/// as good, a rounding decides between them, and the row is another one.
///
/// # Panics
/// When they differ by more than `tolerance`.
pub fn check(backend: &dyn Backend, subject: &Subject, tolerance: Tolerance) {
    let mut rng = Rng::new(5);
    let tokens: Vec<u32> = (0..29).map(|_| rng.below(subject.vocab)).collect();
    let logits = |backend: &dyn Backend| {
        let mut driver = Driver::new(backend, subject, 16, 3);
        let mut seq = driver.start();
        let mut rows = Vec::new();
        for cut in [0..13, 13..26, 26..27, 27..28, 28..29] {
            rows.extend(driver.logits(&mut seq, &tokens[cut]));
        }
        rows
    };
    let expected = logits(&CpuBackend::new(CpuOptions::reference()));
    let found = logits(backend);
    assert_eq!(expected.len(), found.len(), "{}", subject.name);
    let routed = subject
        .program
        .graphs
        .iter()
        .any(|(_, g)| g.nodes.iter().any(|node| matches!(node.op, Op::Route(_))));
    let pairs = expected.iter().zip(&found).enumerate();
    let faults: Vec<String> = pairs
        .filter_map(|(row, (e, f))| {
            tolerance.check(e, f).err().map(|what| format!("row {row}: {what}"))
        })
        .collect();
    let allowed = if routed { expected.len() / 2 } else { 0 };
    if faults.len() > allowed {
        panic!("{}: {} rows are off\n{}", subject.name, faults.len(), faults.join("\n"));
    }
}

/// Tests that a backend computes what the reference does for the tiny models of every family.
///
/// `models!(name, expression, mix, tolerance)` makes a test `name` in which `expression` is an `Option`
/// of a backend; `None` reports that the device is absent.
#[macro_export]
macro_rules! models {
    ($name:ident, $backend:expr, $mix:expr, $tolerance:expr) => {
        #[test]
        fn $name() {
            match $backend {
                Some(backend) => {
                    for subject in $crate::tiny::subjects($mix, $crate::DType::F16) {
                        $crate::tiny::check(&backend, &subject, $tolerance);
                    }
                }
                None => println!("skipped: {} has no device here", stringify!($name)),
            }
        }
    };
}
