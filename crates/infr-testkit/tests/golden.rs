//! The tiny random models of `infr-models` on the reference: against values kept in `golden/models.txt`,
//! and against llama.cpp.
//!
//! The kept values guard against change where neither Python nor llama.cpp is at hand; `INFR_BLESS=1`
//! writes them. The comparison with llama.cpp needs `INFR_PEERS`, a folder that holds
//! `llama/bin/llama-server`; without it the test prints that it is skipped.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

#[path = "support/server.rs"]
mod server;
#[path = "support/spec.rs"]
#[allow(dead_code)]
mod spec;

use std::fmt::Write;

use infr_backend::Want;
use infr_models::{DecodeStyle, synth};
use spec::{Run, Session, log_softmax, tokens};

/// Tokens of a prompt.
const LEN: usize = 24;
/// Most likely tokens that are compared.
const TOP: usize = 5;

/// The last row's most likely tokens with log-probabilities, or a vector's first elements.
fn last_row(name: &str, bytes: &[u8]) -> Result<Vec<(u32, f32)>, String> {
    let run = Run::new(name, bytes)?;
    let vector = matches!(run.loaded.model.info().style, DecodeStyle::Embedding { .. });
    let want = if vector { Want::Hidden } else { Want::Logits };
    let step = Session::open(&run, LEN)?.step(&[(0, 0, &tokens(5, LEN))], want)?;
    let last = step.rows.last().ok_or("no rows")?;
    if vector {
        return Ok((0..).zip(last.hidden.iter().copied()).take(TOP).collect());
    }
    let mut all: Vec<(u32, f32)> = (0..).zip(log_softmax(&last.logits)).collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    all.truncate(TOP);
    Ok(all)
}

#[test]
fn values_stay_as_they_are() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/models.txt");
    let mut text = String::new();
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    let bless = std::env::var_os("INFR_BLESS").is_some();
    for mix in ["F32", "Q4_K_M"] {
        for recipe in synth::tiny_recipes(mix) {
            let found =
                last_row(&recipe.name, &synth::tiny(&recipe.name, 7, mix).unwrap()).unwrap();
            let key = format!("{}:{mix}", recipe.name);
            let _ = write!(text, "{key}");
            found.iter().for_each(|(id, p)| _ = write!(text, " {id}={p:.5}"));
            text.push('\n');
            if bless {
                continue;
            }
            let line = kept.lines().find(|l| l.split(' ').next() == Some(&key));
            let line = line.unwrap_or_else(|| panic!("{key} has no kept values: bless them"));
            for (pair, (id, p)) in line.split(' ').skip(1).zip(&found) {
                let (wanted_id, wanted) = pair.split_once('=').unwrap();
                let diff = (wanted.parse::<f32>().unwrap() - p).abs();
                assert!(diff < 2e-4, "{key}: {pair}, found {id}={p}");
                assert!(
                    wanted_id == id.to_string() || diff < 1e-5,
                    "{key}: {pair}, found {id}={p}"
                );
            }
        }
    }
    if bless {
        std::fs::create_dir_all(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden")).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

/// Largest difference to llama.cpp; its GELU goes through a table in half precision.
///
/// Only files of single precision are compared: for the others llama.cpp rounds activations to bytes.
fn bound(arch: &str) -> f32 {
    if arch.starts_with("gemma") { 1e-2 } else { 5e-5 }
}

#[test]
fn llama_cpp_agrees() {
    let Some(server) = server::LlamaServer::find() else { return };
    let mut failures = Vec::new();
    for recipe in synth::tiny_recipes("F32") {
        let known = !matches!(recipe.arch, "bitnet-b1.58" | "diffusion-gemma");
        let vector = recipe.keys.iter().any(|(k, _)| k == ".pooling_type");
        if !known || vector {
            continue;
        }
        let bytes = synth::tiny(&recipe.name, 7, "F32").unwrap();
        let wanted = server.last_row(&bytes, &tokens(5, LEN), TOP);
        let found = last_row(&recipe.name, &bytes).unwrap();
        let diffs = found.iter().zip(&wanted).map(|(f, w)| (f.1 - w.1).abs());
        let worst = diffs.fold(0.0, f32::max);
        println!("{}: {worst:.1e}", recipe.name);
        let best = wanted.first().map(|w| w.0) == Some(found[0].0);
        if wanted.len() != TOP || !best || worst > bound(recipe.arch) {
            failures.push(format!("{}: {found:?}, llama.cpp {wanted:?}", recipe.name));
        }
    }
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}
