//! Every vocabulary that llama.cpp ships with expected tokens gives these.

#![allow(clippy::unwrap_used)] // Helpers of tests are tests too.

mod peers;

use infr_text::tokenizer::EncodeOptions;

const SEPARATOR: &str = "\n__ggml_vocab_test__\n";

/// Vocabularies of this project's algorithms that come with expected tokens.
const WANTED: [&str; 13] = [
    "command-r",
    "deepseek-coder",
    "deepseek-llm",
    "falcon",
    "gemma-4",
    "gpt-2",
    "llama-bpe",
    "llama-spm",
    "phi-3",
    "qwen2",
    "qwen35",
    "refact",
    "starcoder",
];

#[test]
fn expected_tokens() {
    let Some(peers) = peers::peers("expected_tokens") else { return };
    let mut done = Vec::new();
    for (name, path) in peers::vocabularies(&peers) {
        let beside = |ext: &str| std::fs::read_to_string(format!("{}.{ext}", path.display()));
        let (Ok(texts), Ok(tokens)) = (beside("inp"), beside("out")) else { continue };
        let Some(tokenizer) = peers::tokenizer(&name, &path) else { continue };
        let texts: Vec<&str> = texts.split(SEPARATOR).collect();
        let tokens: Vec<&str> = tokens.strip_suffix('\n').unwrap_or(&tokens).split('\n').collect();
        // The last text ends with the separator's own line end in the file.
        assert!(texts.len() <= tokens.len() + 1 && tokens.len() > 40, "{name}");
        for (text, wanted) in texts.iter().zip(&tokens) {
            let wanted: Vec<u32> = wanted.split_whitespace().map(|t| t.parse().unwrap()).collect();
            assert_eq!(tokenizer.encode(text, EncodeOptions::default()), wanted, "{name} {text:?}");
        }
        println!("{name}: {} texts", tokens.len());
        done.push(name);
    }
    let missing: Vec<_> = WANTED.iter().filter(|w| !done.iter().any(|d| d == *w)).collect();
    assert!(missing.is_empty(), "not tested: {missing:?}");
}
