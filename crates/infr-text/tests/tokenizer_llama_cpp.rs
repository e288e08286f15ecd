//! Random texts give the tokens that llama.cpp's `llama-tokenize` gives, for every vocabulary.
//!
//! One process serves a whole vocabulary: the texts stand in one file with the text of a control
//! token between them. Special tokens split a text before anything else happens, so what lies
//! between two separators is tokenised as it would be alone (with the space that SentencePiece
//! vocabularies put before a text, because they also put it after a special token).

#![allow(clippy::unwrap_used)] // Helpers of tests are tests too.

mod peers;

use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::Command;

use fancy_regex::Regex;
use infr_gguf::{Gguf, Writer};
use infr_text::tokenizer::{EncodeOptions, TokenKind, Tokenizer, pre_tokenizer_names};

const TEXTS: usize = 2000;
/// Texts for each pre-tokenizer that is put into a vocabulary not its own.
const TEXTS_PER_NAME: usize = 400;

#[test]
fn random_texts() {
    let Some(peers) = peers::peers("random_texts") else { return };
    let mut files = peers::vocabularies(&peers);
    files.extend(peers::models(&peers));
    let work = WorkDir::new("texts");
    let mut wrong = 0;
    for (name, path) in files {
        let Some(tokenizer) = peers::tokenizer(&name, &path) else { continue };
        for parse_special in [true, false] {
            let options = EncodeOptions { add_special: false, parse_special };
            let Some(separator) = separator(&tokenizer, options) else { continue };
            let texts = texts(&tokenizer, separator, TEXTS);
            let run = Run { peers: &peers, model: &path, work: &work, options, separator };
            let what =
                format!("{name}, special tokens {}", ["literal", "read"][parse_special as usize]);
            wrong += run.compare(&what, &tokenizer, &texts, excuse(&name));
        }
    }
    assert_eq!(wrong, 0);
}

/// Every pre-tokenizer by name, in a vocabulary of another model.
#[test]
fn pre_tokenizers() {
    let Some(peers) = peers::peers("pre_tokenizers") else { return };
    let work = WorkDir::new("names");
    let gguf = Gguf::open(&peers.join("vocabs/vocabs/ggml-vocab-qwen2.gguf")).unwrap();
    let mut wrong = 0;
    for name in pre_tokenizer_names() {
        let mut writer = Writer::new();
        for (key, value) in gguf.metadata().iter() {
            writer.set(key, value.clone());
        }
        writer.set("tokenizer.ggml.pre", name);
        let path = work.0.join("vocabulary.gguf");
        let file = BufWriter::new(std::fs::File::create(&path).unwrap());
        writer.begin(file).unwrap().finish().unwrap();
        let tokenizer = peers::tokenizer(name, &path).unwrap();
        let options = EncodeOptions { add_special: false, parse_special: true };
        let separator = separator(&tokenizer, options).unwrap();
        let texts = texts(&tokenizer, separator, TEXTS_PER_NAME);
        let run = Run { peers: &peers, model: &path, work: &work, options, separator };
        wrong += run.compare(name, &tokenizer, &texts, excuse(name));
    }
    assert_eq!(wrong, 0);
}

/// The tokens that end a generation are those that llama.cpp lists when it loads a file.
#[test]
fn ends_of_generation() {
    let Some(peers) = peers::peers("ends_of_generation") else { return };
    for (name, path) in peers::vocabularies(&peers) {
        let Some(tokenizer) = peers::tokenizer(&name, &path) else { continue };
        let mut command = Command::new(peers.join("llama/bin/llama-tokenize"));
        let output = command.arg("-m").arg(&path).args(["-p", "x", "-lv", "5"]).output().unwrap();
        let log = String::from_utf8_lossy(&output.stderr).into_owned()
            + &String::from_utf8_lossy(&output.stdout);
        // Lines such as "load:   - 1 ('<eos>')", then "'</s>' is a normal token here, …".
        let mut listed: Vec<(u32, String)> = log
            .lines()
            .filter_map(|line| {
                let (id, text) = line.split_once("load:   - ")?.1.split_once(" ('")?;
                Some((id.parse().ok()?, text.trim_end().strip_suffix("')")?.to_owned()))
            })
            .collect();
        let removed = |text: &str| log.contains(&format!("'{text}' is a normal token here"));
        listed.retain(|(_, text)| !removed(text));
        let listed: Vec<u32> = listed.into_iter().map(|(id, _)| id).collect();
        assert!(!listed.is_empty(), "{name}: llama.cpp lists nothing");
        assert_eq!(tokenizer.eog_ids(), listed, "{name}");
        println!("{name}: ends {listed:?}");
    }
}

/// Texts on which llama.cpp departs from the model's own pattern, by vocabulary or pre-tokenizer.
fn excuse(name: &str) -> Option<Regex> {
    let pattern = match name {
        // Its regex engine knows no classes of case or marks, so a-z and A-Z stand in for them.
        "tekken" | "gpt-4o" | "llama4" | "kanana2" | "minimax-m2" | "kimi-k2" => {
            r"[\p{Lu}\p{Ll}\p{Lt}&&[^A-Za-z]]|\p{M}"
        }
        // It turns whitespace outside ASCII into a tab before it matches, and so loses that these
        // patterns count some of it as punctuation or as Asian script.
        "deepseek-llm" | "deepseek-coder" => r"[\s&&[\x{800}-\x{4E00}]]",
        _ => return None,
    };
    Some(Regex::new(pattern).unwrap())
}

/// A directory of its own, gone afterwards.
struct WorkDir(PathBuf);

impl WorkDir {
    fn new(name: &str) -> WorkDir {
        let dir = std::env::temp_dir().join(format!("infr-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        WorkDir(dir)
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Run<'a> {
    peers: &'a Path,
    model: &'a Path,
    work: &'a WorkDir,
    options: EncodeOptions,
    separator: u32,
}

impl Run<'_> {
    /// The number of texts that differ without an excuse.
    fn compare(
        &self,
        what: &str,
        tokenizer: &Tokenizer,
        texts: &[String],
        excuse: Option<Regex>,
    ) -> usize {
        let separator = text_of(tokenizer, self.separator);
        let file = self.work.0.join("texts");
        let joined: String = texts.iter().flat_map(|t| [separator.as_str(), t]).collect();
        std::fs::write(&file, joined + &separator).unwrap();
        let Some(ids) = self.llama_tokenize(&file) else {
            println!("{what}: llama.cpp does not load it");
            return 0;
        };
        let theirs: Vec<&[u32]> = ids.split(|&id| id == self.separator).collect();
        // Nothing stands before the first separator and after the last.
        assert_eq!(theirs.len(), texts.len() + 2, "{what}: separators");
        let (mut wrong, mut excused) = (0, 0);
        for (text, &wanted) in texts.iter().zip(&theirs[1..]) {
            let found = tokenizer.encode(text, self.options);
            if found == wanted {
                continue;
            }
            if excuse.as_ref().is_some_and(|e| e.is_match(text).unwrap()) {
                excused += 1;
                continue;
            }
            wrong += 1;
            if wrong <= 5 {
                println!("{what}: {text:?}\n  wanted {wanted:?}\n  found  {found:?}");
            }
        }
        let count = texts.len();
        println!("{what}: {count} texts, {} tokens; {wrong} differ, {excused} excused", ids.len());
        wrong
    }

    /// The tokens of a whole file; nothing when llama.cpp refuses the vocabulary.
    fn llama_tokenize(&self, file: &Path) -> Option<Vec<u32>> {
        let mut command = Command::new(self.peers.join("llama/bin/llama-tokenize"));
        command.arg("-m").arg(self.model).arg("-bf").arg(file);
        command.args(["--ids", "--log-disable", "--no-bos", "--no-escape"]);
        if !self.options.parse_special {
            command.arg("--no-parse-special");
        }
        let output = command.output().expect("llama-tokenize starts");
        if !output.status.success() {
            return None;
        }
        let text = String::from_utf8(output.stdout).unwrap();
        let list = text.trim().strip_prefix('[').and_then(|t| t.strip_suffix(']'));
        let list =
            list.unwrap_or_else(|| panic!("no list of ids: {}", &text[..text.len().min(99)]));
        Some(list.split(", ").map(|id| id.parse().unwrap()).collect())
    }
}

fn text_of(tokenizer: &Tokenizer, id: u32) -> String {
    tokenizer.piece(id).unwrap().into_owned()
}

/// A special token that these options find, takes no whitespace along, and has a telling text.
fn separator(tokenizer: &Tokenizer, options: EncodeOptions) -> Option<u32> {
    let kind = if options.parse_special { TokenKind::Control } else { TokenKind::UserDefined };
    let fits = |&id: &u32| {
        let text = text_of(tokenizer, id);
        tokenizer.kind(id) == kind && text.len() > 2 && text.chars().any(|c| !c.is_whitespace())
    };
    tokenizer.bos().filter(fits).or_else(|| (0..tokenizer.vocab_size() as u32).find(fits))
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        // SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators").
        self.0 = self.0.wrapping_add(0x9E3779B97F4A7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58476D1CE4E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D049BB133111EB);
        ((z ^ (z >> 31)) % n as u64) as usize
    }

    fn of<'a, T: ?Sized>(&mut self, list: &[&'a T]) -> &'a T {
        list[self.below(list.len())]
    }

    fn char(&mut self, low: u32, high: u32) -> char {
        let code = low + self.below((high - low + 1) as usize) as u32;
        char::from_u32(code).unwrap_or('\u{D7FF}')
    }
}

const WORDS: &[&str] = &[
    "the",
    "Hello",
    "world",
    "HTTPServer",
    "camelCase",
    "don't",
    "I'VE",
    "we'll",
    "x'S",
    "naïve",
    "Straße",
    "ΑΒΓδ",
    "Привет",
    "мир",
    "שלום",
    "مرحبا",
    "नमस्ते",
    "สวัสดี",
    "កាន់តែ",
    "你好",
    "世界",
    "日本語",
    "カタカナ",
    "한국어",
    "fn main() {",
    "return",
    "==",
    "!=",
    "->",
    "/*",
    "*/",
    "://",
    "<br/>",
    "</s>",
    "…",
    "“quoted”",
    "’s",
    "1234567",
    "3.14",
    "٣٤٥",
    "½",
    "Ⅷ",
    "😀",
    "👩‍👩‍👧",
    "🏳️‍🌈",
    "e\u{301}",
    "\u{fe0f}",
    "&amp;",
];
const SPACES: &[&str] = &[
    " ", "  ", "   ", "    ", "        ", "\n", "\n\n", "\n\n\n", "\r\n", "\t", "\t\t", " \n",
    "\n ", "\u{a0}", "\u{3000}", "\u{2003}", "\u{2028}", "\u{85}", "\u{b}", "\u{c}", "\u{1680}",
    "\u{200b}", "\u{feff}",
];
/// Looks like special tokens, of this vocabulary or another.
const MARKUP: &[&str] = &[
    "<s>",
    "</s>",
    "<unk>",
    "<|im_start|>",
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "[INST]",
    "<bos>",
    "<start_of_turn>",
    "<|",
    "|>",
    "<pad>",
    "<0x0A>",
    "<|end|>",
    "<|user|>",
    "▁",
    "Ġ",
    "Ċ",
    "<fim_prefix>",
];
/// Ranges of code points around which classes change.
const RANGES: &[(u32, u32)] = &[
    (0x01, 0x1F),
    (0x20, 0x7E),
    (0x20, 0x7E),
    (0x7F, 0xFF),
    (0x100, 0x24F),
    (0x2B0, 0x36F),
    (0x370, 0x52F),
    (0x590, 0x6FF),
    (0x900, 0xDFF),
    (0xE00, 0x10FF),
    (0x1E00, 0x206F),
    (0x2070, 0x2BFF),
    (0x3000, 0x30FF),
    (0x4E00, 0x9FFF),
    (0xAC00, 0xD7A3),
    (0xD7F0, 0xD7FF),
    (0xE000, 0xE010),
    (0xF900, 0xFFFD),
    (0x10000, 0x100FF),
    (0x1D400, 0x1D7FF),
    (0x1F300, 0x1FAFF),
    (0x20000, 0x200FF),
    (0x10FFF0, 0x10FFFF),
];

/// Texts for a vocabulary, the same ones in every run.
fn texts(tokenizer: &Tokenizer, separator: u32, count: usize) -> Vec<String> {
    let own: Vec<String> = (0..tokenizer.vocab_size() as u32)
        .filter(|&id| tokenizer.is_control(id) || tokenizer.kind(id) == TokenKind::UserDefined)
        .map(|id| text_of(tokenizer, id))
        .collect();
    let own: Vec<&str> = own.iter().map(String::as_str).collect();
    let separator = text_of(tokenizer, separator);
    let mut random = Random(20);
    let mut texts = Vec::with_capacity(count);
    while texts.len() < count {
        let mut text = String::new();
        for _ in 0..random.below(12) {
            match random.below(16) {
                0..5 => text += random.of(WORDS),
                5..8 => text += random.of(SPACES),
                8 => {
                    let space = random.of(SPACES);
                    (0..random.below(40)).for_each(|_| text += space);
                }
                9 => text += random.of(MARKUP),
                10 => text += random.of(&own),
                11 => (0..random.below(9)).for_each(|_| text.push(random.char(0x30, 0x39))),
                12 => {
                    let c = random.char(0x21, 0x7E);
                    (0..random.below(20)).for_each(|_| text.push(c));
                }
                _ => {
                    let (low, high) = RANGES[random.below(RANGES.len())];
                    (0..1 + random.below(6)).for_each(|_| text.push(random.char(low, high)));
                }
            }
        }
        if !text.contains(&separator) {
            texts.push(text);
        }
    }
    texts
}
