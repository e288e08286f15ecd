//! Files that other programs wrote open. INFR_PEERS names a folder that holds `models/*.gguf` and
//! `vocabs/vocabs/*.gguf`; without it the tests are skipped.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::fs;
use std::path::PathBuf;

use infr_gguf::{Access, Gguf};

fn files(folder: &str) -> Option<Vec<PathBuf>> {
    #[allow(clippy::disallowed_methods, reason = "tests find outside material by it")]
    let Some(peers) = std::env::var_os("INFR_PEERS") else {
        println!("skipped: INFR_PEERS is not set");
        return None;
    };
    let folder = PathBuf::from(peers).join(folder);
    let Ok(list) = fs::read_dir(&folder) else {
        println!("skipped: {} is not there", folder.display());
        return None;
    };
    let mut files: Vec<_> = list.map(|e| e.unwrap().path()).collect();
    files.retain(|p| p.extension().is_some_and(|e| e == "gguf"));
    assert!(!files.is_empty(), "no GGUF files in {}", folder.display());
    Some(files)
}

#[test]
fn models_open() {
    for path in files("models").unwrap_or_default() {
        let gguf = Gguf::open(&path).unwrap();
        assert_eq!(gguf.file_size(), fs::metadata(&path).unwrap().len());
        let arch = gguf.metadata().architecture().unwrap();
        let width = gguf.metadata().require_u64(&format!("{arch}.embedding_length")).unwrap();
        let embd = gguf.tensor("token_embd.weight").unwrap();
        assert_eq!(embd.dims[0], width);
        assert_eq!(gguf.data(embd).len() as u64, embd.bytes);
        assert!(gguf.data(embd).iter().any(|&b| b != 0));
        let layers = gguf.metadata().require_u32(&format!("{arch}.block_count")).unwrap();
        for layer in 0..layers {
            assert!(gguf.tensor(&format!("blk.{layer}.attn_q.weight")).is_some());
        }
        let tokens = gguf.metadata().require_strings("tokenizer.ggml.tokens").unwrap();
        assert_eq!(tokens.len() as u64, embd.dims[1]);
        println!(
            "{}: {arch}, {} tensors, {} tokens",
            path.display(),
            gguf.tensors().len(),
            tokens.len()
        );
    }
}

#[test]
fn vocabularies_open() {
    for path in files("vocabs/vocabs").unwrap_or_default() {
        let mapped = Gguf::open(&path).unwrap();
        let read = Gguf::open_with(&path, Access::Read).unwrap();
        assert!(mapped.metadata().iter().eq(read.metadata().iter()));
        let tokens = mapped.metadata().require_strings("tokenizer.ggml.tokens").unwrap();
        assert!(tokens.len() > 1000, "{}", path.display());
        assert!(tokens.iter().all(|t| std::str::from_utf8(t).is_ok()));
        assert_eq!(tokens.iter().last(), tokens.get(tokens.len() - 1));
        if let Some(types) = mapped.metadata().i32s("tokenizer.ggml.token_type").unwrap() {
            assert_eq!(types.len(), tokens.len());
        }
        mapped.metadata().require_str("tokenizer.ggml.model").unwrap();
    }
}
