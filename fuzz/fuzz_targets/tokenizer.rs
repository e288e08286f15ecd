//! Any text goes through a byte-level vocabulary and comes back the same; splitting at special
//! tokens, streaming and the other algorithms do not panic.
//!
//! The first byte picks the pre-tokenizer; the rest is the text.
#![no_main]

use std::sync::{Arc, OnceLock};

use infr_gguf::{Gguf, StringArray, Writer};
use infr_text::tokenizer::{
    DecodeOptions, Detokenizer, EncodeOptions, Tokenizer, pre_tokenizer_names,
};
use libfuzzer_sys::fuzz_target;

const SHOWN: DecodeOptions = DecodeOptions { render_special: true, trim_space_prefix: false };
const PARSED: EncodeOptions = EncodeOptions { add_special: false, parse_special: true };

fuzz_target!(|bytes: &[u8]| {
    static BYTE_LEVEL: OnceLock<Vec<Arc<Tokenizer>>> = OnceLock::new();
    static OTHERS: OnceLock<[Arc<Tokenizer>; 2]> = OnceLock::new();
    let Some((&pick, text)) = bytes.split_first() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };

    let all = BYTE_LEVEL.get_or_init(|| pre_tokenizer_names().map(byte_level).collect());
    let tokenizer = &all[usize::from(pick) % all.len()];
    for parse_special in [true, false] {
        let options = EncodeOptions { add_special: false, parse_special };
        let ids = tokenizer.encode(text, options);
        assert_eq!(tokenizer.decode(&ids, SHOWN), text);
        assert_eq!(streamed(tokenizer, &ids), text);
    }

    for tokenizer in OTHERS.get_or_init(|| [characters("llama"), characters("gemma4")]) {
        let ids = tokenizer.encode(text, PARSED);
        assert_eq!(streamed(tokenizer, &ids), tokenizer.decode(&ids, SHOWN));
    }
});

fn streamed(tokenizer: &Arc<Tokenizer>, ids: &[u32]) -> String {
    let mut stream = Detokenizer::new(tokenizer.clone(), SHOWN);
    let mut text: String = ids.iter().map(|&id| stream.push(id)).collect();
    text += &stream.finish();
    text
}

/// All bytes, some merges of them, and special tokens that overlap.
fn byte_level(pre: &str) -> Arc<Tokenizer> {
    // The stand-ins of GPT-2: bytes that print stand for themselves, the others for U+0100 and up.
    let mut next = 0x100;
    let mut texts: Vec<String> = Vec::new();
    for byte in 0..=255u32 {
        let prints = matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF);
        let code = if prints { byte } else { next };
        next += u32::from(!prints);
        texts.push(char::from_u32(code).expect("below the surrogates").into());
    }
    let mut kinds = vec![1i32; 256];
    let merges = ["a b", "ab a", "Ġ a", "Ġ Ġ", "ĠĠ ĠĠ", "Ċ Ċ", "Ã ©", "1 2", "12 3"];
    texts.extend(merges.map(|merge| merge.replace(' ', "")));
    kinds.extend([1; 9]);
    texts.extend(["<s>", "<s><t>", "t>x", "  ", "\n\n\n", "é", "s><"].map(str::to_owned));
    kinds.extend([3, 3, 3, 4, 4, 4, 4]);
    let mut writer = Writer::new();
    writer.set("tokenizer.ggml.model", "gpt2").set("tokenizer.ggml.pre", pre);
    writer.set("tokenizer.ggml.tokens", texts).set("tokenizer.ggml.token_type", kinds);
    writer.set("tokenizer.ggml.merges", merges.iter().collect::<StringArray>());
    writer.set("tokenizer.ggml.bos_token_id", 265u32);
    load(writer)
}

/// A vocabulary of characters with byte fallback.
fn characters(model: &str) -> Arc<Tokenizer> {
    let mut texts = ["<unk>", "<s>", "</s>"].map(str::to_owned).to_vec();
    let mut kinds = vec![2i32, 3, 3];
    texts.extend((0..256).map(|byte| format!("<0x{byte:02X}>")));
    kinds.extend([6; 256]);
    let words = ["▁", "a", "b", "ab", "▁a", "▁▁", "▁▁▁▁", "é", "中", "\n", "\n\n", "<x>"];
    texts.extend(words.map(str::to_owned));
    kinds.extend([1; 11]);
    kinds.push(4);
    let scores: Vec<f32> = (0..texts.len()).map(|id| (id % 7) as f32).collect();
    let merges = ["a b", "▁ a", "▁ ▁", "▁▁ ▁▁"];
    let mut writer = Writer::new();
    writer.set("tokenizer.ggml.model", model).set("tokenizer.ggml.scores", scores);
    writer.set("tokenizer.ggml.tokens", texts).set("tokenizer.ggml.token_type", kinds);
    writer.set("tokenizer.ggml.merges", merges.iter().collect::<StringArray>());
    writer.set("tokenizer.ggml.bos_token_id", 1u32);
    load(writer)
}

fn load(writer: Writer) -> Arc<Tokenizer> {
    let data = writer.begin(Vec::new()).and_then(|data| data.finish());
    let gguf = Gguf::from_bytes("fuzz.gguf", data.expect("metadata can be written"));
    let gguf = gguf.expect("what was written opens");
    Arc::new(Tokenizer::from_metadata(gguf.metadata()).expect("the vocabulary is valid"))
}
