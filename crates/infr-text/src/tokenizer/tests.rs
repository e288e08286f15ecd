//! Whole tokenizers from small files.

use std::sync::Arc;

use infr_gguf::write::Writer;
use infr_gguf::{Gguf, Metadata, StringArray, Value};

use super::*;

/// A file of these keys under `tokenizer.ggml.`, or elsewhere where a key has a dot.
fn metadata(keys: Vec<(&str, Value)>) -> Metadata {
    let mut writer = Writer::new();
    writer.set("general.architecture", "llama");
    for (key, value) in keys {
        let key = if key.contains('.') { key.into() } else { format!("tokenizer.ggml.{key}") };
        writer.set(&key, value);
    }
    let bytes = writer.begin(Vec::new()).unwrap().finish().unwrap();
    Gguf::from_bytes("test.gguf", bytes).unwrap().metadata().clone()
}

fn strings(texts: &[&str]) -> Value {
    texts.iter().collect::<StringArray>().into()
}

/// A byte-level vocabulary: 256 bytes, then these tokens with their types, and no merges.
fn byte_level(more: &[(&str, i32)], keys: Vec<(&str, Value)>) -> Result<Tokenizer, TokenizerError> {
    let map = ByteMap::new();
    let bytes: Vec<String> = (0..=255).map(|b| map.char(b).to_string()).collect();
    let texts = bytes.iter().map(String::as_str).chain(more.iter().map(|&(text, _)| text));
    let kinds: Vec<i32> = [1; 256].into_iter().chain(more.iter().map(|&(_, kind)| kind)).collect();
    let mut all = vec![
        ("model", "gpt2".into()),
        ("pre", "qwen2".into()),
        ("tokens", texts.collect::<StringArray>().into()),
        ("token_type", kinds.into()),
        ("merges", strings(&["l l"])),
    ];
    for (key, value) in keys {
        all.retain(|(k, _)| *k != key);
        all.push((key, value));
    }
    Tokenizer::from_metadata(&metadata(all))
}

fn sentence_piece(keys: Vec<(&str, Value)>) -> Tokenizer {
    let mut texts = vec!["<unk>".to_owned(), "<s>".to_owned(), "</s>".to_owned()];
    texts.extend((0..256).map(|b| format!("<0x{b:02X}>")));
    texts.extend(["▁", "h", "i", "▁h", "▁hi", "中", "<|user|>", "<|end|>"].map(str::to_owned));
    let mut kinds = vec![2, 3, 3];
    kinds.extend([6; 256]);
    kinds.extend([1, 1, 1, 1, 1, 1, 4, 3]);
    let scores: Vec<f32> = (0..texts.len()).map(|id| id as f32).collect();
    let mut all = vec![
        ("model", "llama".into()),
        ("tokens", texts.into()),
        ("token_type", kinds.into()),
        ("scores", scores.into()),
    ];
    all.extend(keys);
    Tokenizer::from_metadata(&metadata(all)).unwrap()
}

const PLAIN: EncodeOptions = EncodeOptions { add_special: false, parse_special: false };
const PARSED: EncodeOptions = EncodeOptions { add_special: false, parse_special: true };
const ADDED: EncodeOptions = EncodeOptions { add_special: true, parse_special: true };

#[test]
fn special_tokens_split_longest_first() {
    // `bcd` is longer than `ab`, so it takes `b` although `ab` begins earlier.
    let t = byte_level(&[("ab", 3), ("bcd", 3), ("a", 1)], vec![]).unwrap();
    assert_eq!(t.encode("xabcdab", PARSED), [b'x'.into(), b'a'.into(), 257, 256]);
    assert_eq!(t.encode("ab", PLAIN), [u32::from(b'a'), u32::from(b'b')]);
}

#[test]
fn user_defined_tokens_split_always() {
    let t = byte_level(&[("  ", 4), ("   ", 4), ("<c>", 3)], vec![]).unwrap();
    // Seven spaces: two of three from the left, one left over.
    assert_eq!(t.encode("       ", PLAIN), [257, 257, u32::from(b' ')]);
    assert_eq!(t.encode("        <c>", PARSED), [257, 257, 256, 258]);
}

/// The rule taken literally: one pass over the text per token.
fn split_by_definition(text: &str, tokens: &[(&str, u32)]) -> Vec<Fragment> {
    let mut order = tokens.to_vec();
    order.sort_by_key(|&(token, id)| (std::cmp::Reverse(token.len()), id));
    let mut fragments = vec![Fragment::Text(0..text.len())];
    for (token, id) in order {
        let mut next = Vec::new();
        for fragment in fragments {
            let Fragment::Text(range) = fragment else {
                next.push(fragment);
                continue;
            };
            let mut at = range.start;
            while let Some(found) = text[at..range.end].find(token) {
                next.push(Fragment::Text(at..at + found));
                next.push(Fragment::Token(id));
                at += found + token.len();
            }
            next.push(Fragment::Text(at..range.end));
        }
        fragments =
            next.into_iter().filter(|f| *f != Fragment::Text(f_start(f)..f_start(f))).collect();
    }
    fragments
}

fn f_start(fragment: &Fragment) -> usize {
    match fragment {
        Fragment::Text(range) => range.start,
        Fragment::Token(_) => 0,
    }
}

#[test]
fn splitting_equals_the_definition() {
    let tokens = ["a", "aa", "aaaa", "ab", "bab", "abba", "ca", "bcb", "ccc"];
    let typed: Vec<(&str, i32)> = tokens.iter().map(|&t| (t, 4)).collect();
    // The single byte keeps the id that is found by text, so it is no special token here.
    let typed = &typed[1..];
    let t = byte_level(typed, vec![]).unwrap();
    let by_id: Vec<(&str, u32)> = typed.iter().map(|&(s, _)| s).zip(256..).collect();
    let mut state = 3u64;
    for _ in 0..3000 {
        let mut text = String::new();
        for _ in 0..state % 30 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            text.push(['a', 'b', 'c'][(state >> 35) as usize % 3]);
        }
        state ^= state >> 31;
        state = state.wrapping_add(0x9E3779B97F4A7C15);
        assert_eq!(t.specials.split(&text, false), split_by_definition(&text, &by_id), "{text}");
    }
}

#[test]
fn sentence_piece_prefixes_texts_and_not_pieces() {
    let t = sentence_piece(vec![]);
    let (hi, user, end) = (263, 265, 266);
    assert_eq!(t.encode("hi", ADDED), [1, hi]);
    assert_eq!(t.encode("", ADDED), [1]);
    assert_eq!(t.encode("hi<|end|>hi", PARSED), [hi, end, hi]);
    assert_eq!(t.encode("<|user|>hi", PLAIN), [user, hi]);
    assert_eq!(t.encode("中é", PLAIN), [259, 264, 3 + 0xC3, 3 + 0xA9]);
    let bare = sentence_piece(vec![("add_space_prefix", false.into())]);
    assert_eq!(bare.encode("hi", PLAIN), [260, 261]);
    assert_eq!(bare.encode_bytes(b"h\xFF", PLAIN), [260, 3 + 0xEF, 3 + 0xBF, 3 + 0xBD]);
}

#[test]
fn phi3_tokens_take_the_whitespace_after_them() {
    let name = ("general.name", Value::from("Phi3 mini"));
    let t = sentence_piece(vec![name, ("add_space_prefix", false.into())]);
    assert_eq!(t.encode("<|end|> \n hi", PARSED), [266, 260, 261]);
    assert_eq!(t.encode("<s> hi", PARSED), [1, 263], "except after <s>");
}

#[test]
fn beginning_and_end_as_the_file_says() {
    let ends = vec![("eos_token_id", 2u32.into()), ("add_eos_token", true.into())];
    let t = sentence_piece(ends);
    assert_eq!(t.encode("hi", ADDED), [1, 263, 2]);
    assert_eq!(t.encode("hi", PARSED), [263]);
    assert!(t.adds_bos() && t.adds_eos());
    let t = byte_level(&[], vec![]).unwrap();
    assert_eq!((t.bos(), t.eos()), (None, None), "no defaults that mean something else here");
    assert_eq!(t.encode("a", ADDED), [u32::from(b'a')]);
}

#[test]
fn ends_of_generation() {
    let t =
        byte_level(&[("<|im_end|>", 1), ("<|endoftext|>", 3), ("<|fim_pad|>", 3)], vec![]).unwrap();
    assert_eq!(t.eog_ids(), [256, 257, 258]);
    assert_eq!(t.special_ids().eot, Some(256));
    assert!(t.is_control(256), "known by its text, whatever the file says");
    assert!(t.is_eog(257) && !t.is_eog(255));

    let harmony = [("<|end|>", 3), ("<|return|>", 3), ("<|call|>", 3), ("<|channel|>", 3)];
    let t = byte_level(&harmony, vec![]).unwrap();
    assert_eq!(t.eog_ids(), [257, 258]);
    assert_eq!(t.kind(256), TokenKind::UserDefined);
    assert_eq!(t.kind(259), TokenKind::UserDefined);

    let t = byte_level(&[("</s>", 3), ("<|tool_response>", 3), ("<turn|>", 3)], vec![]).unwrap();
    assert_eq!(t.eog_ids(), [257, 258]);
    assert_eq!(t.kind(256), TokenKind::Normal);

    let keys = vec![("eot_token_id", 5u32.into()), ("eos_token_id", 9999u32.into())];
    let t = byte_level(&[("<|eot_id|>", 3)], keys).unwrap();
    assert_eq!(t.eog_ids(), [5, 256]);
    assert_eq!(t.eos(), None, "out of range");
}

#[test]
fn suppressed_tokens_are_those_in_range() {
    let t = byte_level(&[], vec![("suppress_tokens", vec![3i32, -1, 255, 256].into())]).unwrap();
    assert_eq!(t.suppressed_ids(), [3, 255]);
}

#[test]
fn errors_name_what_is_known() {
    let fails = |keys| byte_level(&[], keys).unwrap_err().to_string();
    let bert = fails(vec![("model", "bert".into())]);
    assert!(bert.contains("\"bert\"") && bert.contains("llama, gpt2, gemma4"), "{bert}");
    let pre = fails(vec![("pre", "brand-new".into())]);
    assert!(pre.contains("\"brand-new\"") && pre.contains("qwen35"), "{pre}");
    let short = fails(vec![("token_type", vec![1i32; 9].into())]);
    assert!(short.contains("has 9 elements for 256 tokens"), "{short}");
    let bos = fails(vec![("add_bos_token", true.into())]);
    assert!(bos.contains("bos_token_id"), "{bos}");
    let tokens = Tokenizer::from_metadata(&metadata(vec![("model", "gpt2".into())])).unwrap_err();
    assert!(tokens.to_string().contains("tokenizer.ggml.tokens"), "{tokens}");
}

#[test]
fn tokens_as_bytes_and_as_text() {
    let t = byte_level(&[("<|im_end|>", 3), ("a b", 4), ("Ġx", 1)], vec![]).unwrap();
    assert_eq!(&*t.token_bytes(0xC3), [0xC3]);
    assert_eq!(&*t.token_bytes(256), b"<|im_end|>");
    assert_eq!(&*t.token_bytes(257), b"a b");
    assert_eq!(&*t.token_bytes(258), b" x");
    assert_eq!(&*t.token_bytes(259), b"");
    assert_eq!(t.piece(258).as_deref(), Some("Ġx"));
    assert_eq!(t.piece(259), None);
    assert_eq!(t.token_id("Ġx"), Some(258));
    assert_eq!(t.vocab_size(), 259);
    let ids = [0xC3, 0xA9, 256, 258];
    assert_eq!(t.decode(&ids, DecodeOptions::default()), "é x");
    let shown = DecodeOptions { render_special: true, ..DecodeOptions::default() };
    assert_eq!(t.decode(&ids, shown), "é<|im_end|> x");
    assert_eq!(t.decode(&[0xC3], shown), "\u{FFFD}");

    let t = sentence_piece(vec![]);
    let trim = DecodeOptions { trim_space_prefix: true, ..DecodeOptions::default() };
    assert_eq!(t.decode(&[1, 263, 263], trim), "hi hi");
    assert_eq!(t.decode(&[1, 263], DecodeOptions::default()), " hi");
    assert_eq!(t.decode(&[3 + 0xE4, 3 + 0xB8, 3 + 0xAD], trim), "中");
}

#[test]
fn a_stream_gives_the_text_of_the_whole() {
    let byte_level = byte_level(&[("<|im_end|>", 3), ("Ġ中", 1), ("\u{2028}", 4)], vec![]).unwrap();
    let mut state = 11u64;
    for tokenizer in [Arc::new(byte_level), Arc::new(sentence_piece(vec![]))] {
        for round in 0..4000 {
            let options =
                DecodeOptions { render_special: round % 2 == 0, trim_space_prefix: round % 3 == 0 };
            let mut random = |n: u64| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (state >> 33) % n
            };
            let mut ids: Vec<u32> = Vec::new();
            for _ in 0..random(12) {
                match random(3) {
                    0 => ids.push(random(tokenizer.vocab_size() as u64 + 1) as u32),
                    1 => ids.extend(
                        tokenizer.encode(["é", "😀", "中文", " a"][random(4) as usize], PLAIN),
                    ),
                    // Lead and continuation bytes, at random.
                    _ => ids.push(3 + 0x80 + random(0x80) as u32),
                }
            }
            let mut stream = Detokenizer::new(tokenizer.clone(), options);
            let mut text = String::new();
            for &id in &ids {
                let piece = stream.push(id);
                assert!(stream.held().len() <= 3);
                text += &piece;
            }
            text += &stream.finish();
            assert_eq!(text, tokenizer.decode(&ids, options), "{ids:?}");
            let whole: Vec<u8> = (ids.iter())
                .filter(|&&id| options.render_special || !tokenizer.is_control(id))
                .flat_map(|&id| tokenizer.token_bytes(id).into_owned())
                .collect();
            let trimmed = options.trim_space_prefix && tokenizer.adds_space_prefix();
            let whole = if trimmed { whole.strip_prefix(b" ").unwrap_or(&whole) } else { &whole };
            assert_eq!(text, String::from_utf8_lossy(whole), "{ids:?}");
        }
    }
}

#[test]
fn one_tokenizer_serves_many_threads() {
    fn assert_shared<T: Send + Sync + 'static>(_: &T) {}
    assert_shared(&sentence_piece(vec![]));
    assert_shared(&byte_level(&[], vec![]).unwrap());
}
