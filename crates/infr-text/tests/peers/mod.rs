//! Material of other projects: a directory named by INFR_PEERS that holds `llama/bin/*` (programs
//! of llama.cpp) and `vocabs/vocabs/ggml-vocab-*.gguf` (its test vocabularies, with `.inp` texts
//! and `.out` tokens) and `models/*.gguf`. Tests that miss it say so and pass.

use std::path::{Path, PathBuf};

use infr_gguf::Gguf;
use infr_text::tokenizer::{Tokenizer, TokenizerError};

/// The directory, or a line that says what is skipped.
#[allow(clippy::disallowed_methods)]
pub(crate) fn peers(test: &str) -> Option<PathBuf> {
    let dir = std::env::var_os("INFR_PEERS").map(PathBuf::from).filter(|dir| dir.is_dir());
    if dir.is_none() {
        println!("skipped: {test} needs INFR_PEERS, a directory with llama/bin and vocabs/vocabs");
    }
    dir
}

/// The vocabularies, by name, in alphabetic order.
pub(crate) fn vocabularies(peers: &Path) -> Vec<(String, PathBuf)> {
    files(&peers.join("vocabs/vocabs"), "ggml-vocab-")
}

/// The models, by name, in alphabetic order.
#[allow(dead_code)] // Not every test that shares this file reads models.
pub(crate) fn models(peers: &Path) -> Vec<(String, PathBuf)> {
    files(&peers.join("models"), "")
}

fn files(dir: &Path, prefix: &str) -> Vec<(String, PathBuf)> {
    let mut found: Vec<(String, PathBuf)> = std::fs::read_dir(dir)
        .unwrap_or_else(|e| panic!("{}: {e}", dir.display()))
        .map(|entry| entry.unwrap().path())
        .filter_map(|path| {
            let file = path.file_name()?.to_str()?;
            let name = file.strip_prefix(prefix)?.strip_suffix(".gguf")?;
            Some((name.to_owned(), path.clone()))
        })
        .collect();
    found.sort();
    found
}

/// The tokenizer of a file; nothing for algorithms that are not supported, after naming them.
pub(crate) fn tokenizer(name: &str, path: &Path) -> Option<Tokenizer> {
    let gguf = Gguf::open(path).unwrap_or_else(|e| panic!("{name}: {e}"));
    match Tokenizer::from_metadata(gguf.metadata()) {
        Ok(tokenizer) => Some(tokenizer),
        Err(error @ TokenizerError::UnsupportedModel { .. }) => {
            println!("{name}: {error}");
            None
        }
        Err(error) => panic!("{name}: {error}"),
    }
}
