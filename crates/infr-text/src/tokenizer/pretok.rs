//! The named pre-tokenizers of byte-level BPE: how a text is cut into words before merging.
//!
//! A pre-tokenizer is a list of patterns. Each one cuts the pieces that the ones before it left:
//! every match is a piece, and so is every stretch between matches. The patterns are those of the
//! models' own `tokenizer.json`.
//!
//! Their one look-ahead, `\s+(?!\S)`, says that a run of whitespace leaves its last character to
//! the word after it. It always stands last, or before a last `\s+`, so it is expressed without
//! look-ahead: the automaton has `\s+` as a pattern of its own, and a match of that pattern which
//! is followed by more text gives one character back. That keeps matching linear in the text and
//! free of a backtracking limit. The tests hold this against the patterns as published.
//!
//! Case: the patterns tell upper from lower case by Unicode category, as the models' own do.
//! llama.cpp has no such classes and tells a-z from A-Z only, so for `tekken` and `gpt-4o` it cuts
//! words with case changes outside ASCII elsewhere.

use std::ops::Range;

use regex_automata::meta::Regex;
use regex_automata::{Anchored, Input};

use super::error::TokenizerError;

/// A row of the table.
struct Row {
    names: &'static [&'static str],
    /// Patterns, applied one inside the pieces of the other.
    patterns: &'static [&'static str],
    /// A word that is a token is not merged.
    ignore_merges: bool,
    /// Whether a beginning-of-text token is added unless the file says otherwise.
    add_bos: bool,
}

/// English contractions, in any case.
macro_rules! con {
    () => {
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
    };
}
/// Letters with an optional character before them.
macro_rules! letters {
    () => {
        r"[^\r\n\p{L}\p{N}]?\p{L}+"
    };
}
/// Everything that is neither letter, number nor whitespace, with the line ends after it.
macro_rules! symbols {
    () => {
        r" ?[^\s\p{L}\p{N}]+[\r\n]*"
    };
}
/// Line ends with the whitespace before them, then other whitespace.
macro_rules! tail {
    () => {
        r"\s*[\r\n]+|\s+(?!\S)|\s+"
    };
}
/// A capitalised or lower-case word, then an upper-case one; `$suffix` may follow either.
macro_rules! cased {
    ($suffix:expr) => {
        concat!(
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
            $suffix,
            r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
            $suffix
        )
    };
}

const LLAMA3: &str = concat!(con!(), "|", letters!(), r"|\p{N}{1,3}|", symbols!(), "|", tail!());
const QWEN2: &str = concat!(con!(), "|", letters!(), r"|\p{N}|", symbols!(), "|", tail!());
const QWEN35: &str = concat!(
    con!(),
    r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|",
    tail!()
);
const TEKKEN: &str = concat!(cased!(""), r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|", tail!());
const GPT4O: &str = concat!(
    cased!("(?i:'s|'t|'re|'ve|'m|'ll|'d)?"),
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|",
    tail!()
);
const KIMI_K2: &str = concat!(
    r"\p{Han}+",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*",
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+",
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|",
    tail!()
);
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)";
/// Punctuation with ASCII letters after it; letters with marks; punctuation and symbols.
const DEEPSEEK3: &str = concat!(
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"##,
    r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|",
    tail!()
);
const KANA_AND_HAN: &str = r"[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+";
/// The alphabets with case that DeepSeek LLM counts as letters.
const DEEPSEEK_LETTERS: &str = concat!(
    r"\s?[",
    r"\x{41}-\x{5A}\x{61}-\x{7A}\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}",
    r"\x{1C4}-\x{293}\x{295}-\x{2AF}\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}",
    r"\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}",
    r"\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}",
    r"\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}",
    r"\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}",
    r"\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}",
    r"\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}",
    r"\x{1FF6}-\x{1FFC}\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}",
    r"\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}",
    r"\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}",
    r"\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F}",
    r"\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}",
    r"\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}\x{104B0}-\x{104D3}",
    r"\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}",
    r"\x{1E900}-\x{1E943}",
    "]+"
);
const DEEPSEEK_CJK: &str = r"[\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+";

const TABLE: &[Row] = &[
    Row {
        names: &[
            "llama-bpe",
            "llama3",
            "llama-v3",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
            "lfm2",
        ],
        patterns: &[LLAMA3],
        ignore_merges: true,
        add_bos: true,
    },
    Row {
        names: &[
            "qwen2",
            "deepseek-r1-qwen",
            "megrez",
            "hunyuan",
            "solar-open",
            "stablelm2",
            "grok-2",
        ],
        patterns: &[QWEN2],
        ignore_merges: false,
        add_bos: false,
    },
    Row { names: &["qwen35"], patterns: &[QWEN35], ignore_merges: false, add_bos: false },
    Row {
        names: &["glm4", "chatglm-bpe", "glm5"],
        patterns: &[LLAMA3],
        ignore_merges: true,
        add_bos: false,
    },
    Row {
        names: &["dbrx", "smaug-bpe"],
        patterns: &[LLAMA3],
        ignore_merges: false,
        add_bos: false,
    },
    Row { names: &["tekken"], patterns: &[TEKKEN], ignore_merges: true, add_bos: true },
    Row {
        names: &["gpt-4o", "llama4", "kanana2", "minimax-m2"],
        patterns: &[GPT4O],
        ignore_merges: false,
        add_bos: false,
    },
    Row { names: &["kimi-k2"], patterns: &[KIMI_K2], ignore_merges: false, add_bos: false },
    Row {
        names: &[
            "gpt-2",
            "phi-2",
            "mpt",
            "olmo",
            "jais",
            "exaone4",
            "trillion",
            "granite-docling",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "modern-bert",
        ],
        patterns: &[GPT2],
        ignore_merges: false,
        add_bos: false,
    },
    Row {
        names: &[
            "starcoder",
            "refact",
            "command-r",
            "smollm",
            "codeshell",
            "exaone",
            "minerva-7b",
            "mellum2",
        ],
        patterns: &[r"\p{N}", GPT2],
        ignore_merges: false,
        add_bos: false,
    },
    Row {
        names: &["falcon"],
        patterns: &[r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"],
        ignore_merges: false,
        add_bos: false,
    },
    Row {
        names: &["deepseek-v3", "hunyuan-dense", "joyai-llm"],
        patterns: &[r"\p{N}{1,3}", KANA_AND_HAN, DEEPSEEK3],
        ignore_merges: false,
        add_bos: false,
    },
    Row {
        names: &["deepseek-llm"],
        patterns: &[
            r"[\r\n]",
            DEEPSEEK_LETTERS,
            r"\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+",
            r"\s+$",
            DEEPSEEK_CJK,
            r"\p{N}+",
        ],
        ignore_merges: false,
        add_bos: false,
    },
    Row {
        names: &["deepseek-coder"],
        patterns: &[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", DEEPSEEK_CJK, r"\p{N}"],
        ignore_merges: false,
        add_bos: false,
    },
    Row {
        names: &["bailingmoe", "bailingmoe2", "llada-moe"],
        patterns: &[concat!(
            r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*",
            r"|\s*[\r\n]|\s+(?!\S)|\s+"
        )],
        ignore_merges: false,
        add_bos: false,
    },
    Row {
        names: &["seed-coder"],
        patterns: &[concat!(con!(), "|", letters!(), r"|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|", tail!())],
        ignore_merges: false,
        add_bos: false,
    },
    Row {
        names: &["minicpm5"],
        patterns: &[
            r"\p{N}{1,3}",
            concat!(con!(), "|", letters!(), r"|\p{N}+|", symbols!(), "|", tail!()),
        ],
        ignore_merges: true,
        add_bos: false,
    },
    Row {
        names: &[DEFAULT],
        patterns: &[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
        ignore_merges: false,
        add_bos: false,
    },
];

/// What a file without a name gets.
pub(crate) const DEFAULT: &str = "default";

/// All names in the table, for messages.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    TABLE.iter().flat_map(|row| row.names.iter().copied())
}

/// The end of a pattern that stands for whitespace which leaves its last character.
const LOOK_AHEAD: [&str; 2] = [r"|\s+(?!\S)|\s+", r"|\s+(?!\S)"];

/// The place of the whitespace pattern in a stage that has one.
const SPACES: usize = 1;

/// One pattern, compiled.
#[derive(Debug, Clone)]
struct Stage {
    regex: Regex,
    /// Matches leave nothing out, so a search begins where the one before ended.
    dense: bool,
}

impl Stage {
    /// Compiles a pattern of the table.
    fn new(pattern: &str) -> Stage {
        let words = LOOK_AHEAD.iter().find_map(|end| pattern.strip_suffix(end));
        let regex = match words {
            Some(words) => Regex::new_many(&[words, r"\s+"]),
            None => Regex::new(pattern),
        };
        let regex = regex.expect("the table's patterns compile, as a test checks");
        Stage { regex, dense: words.is_some() }
    }

    /// The next match at or after `from`.
    fn find(&self, text: &str, from: usize) -> Option<Range<usize>> {
        let input = Input::new(text).range(from..);
        let at_once = self.dense.then(|| self.regex.find(input.clone().anchored(Anchored::Yes)));
        let found = at_once.flatten().or_else(|| self.regex.find(input))?;
        let mut range = found.range();
        if found.pattern().as_usize() == SPACES && range.end < text.len() {
            let mut chars = text[range.clone()].char_indices();
            match chars.next_back() {
                Some((last, _)) if last > 0 => range.end = range.start + last,
                // A lone space goes with what follows, or is a piece of its own.
                _ => {}
            }
        }
        Some(range)
    }
}

/// A pre-tokenizer, ready for use.
#[derive(Debug, Clone)]
pub(crate) struct PreTokenizer {
    stages: Vec<Stage>,
    pub(crate) ignore_merges: bool,
    pub(crate) add_bos: bool,
}

impl PreTokenizer {
    /// The pre-tokenizer of this name.
    pub(crate) fn named(name: &str) -> Result<PreTokenizer, TokenizerError> {
        let row = TABLE.iter().find(|row| row.names.contains(&name)).ok_or_else(|| {
            let known = names().collect::<Vec<_>>().join(", ");
            TokenizerError::UnknownPreTokenizer { found: name.to_owned(), known }
        })?;
        let stages = row.patterns.iter().map(|pattern| Stage::new(pattern)).collect();
        Ok(PreTokenizer { stages, ignore_merges: row.ignore_merges, add_bos: row.add_bos })
    }

    /// Calls `word` with each word of `text`, in order.
    pub(crate) fn split<'t>(&self, text: &'t str, word: &mut impl FnMut(&'t str)) {
        split_by(&self.stages, text, word);
    }
}

fn split_by<'t>(stages: &[Stage], text: &'t str, word: &mut impl FnMut(&'t str)) {
    let Some((stage, rest)) = stages.split_first() else { return word(text) };
    let mut at = 0;
    while let Some(found) = stage.find(text, at) {
        if at < found.start {
            split_by(rest, &text[at..found.start], word);
        }
        split_by(rest, &text[found.clone()], word);
        at = found.end;
    }
    if at < text.len() {
        split_by(rest, &text[at..], word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Splits with the published patterns, look-ahead and all.
    fn split_by_definition(patterns: &[&str], text: &str) -> Vec<String> {
        let mut pieces = vec![text.to_owned()];
        for pattern in patterns {
            let regex = fancy_regex::Regex::new(pattern).unwrap();
            let mut next = Vec::new();
            for piece in &pieces {
                let mut at = 0;
                for found in regex.find_iter(piece) {
                    let found = found.unwrap();
                    next.extend([&piece[at..found.start()], found.as_str()].map(str::to_owned));
                    at = found.end();
                }
                next.push(piece[at..].to_owned());
            }
            pieces = next.into_iter().filter(|p| !p.is_empty()).collect();
        }
        pieces
    }

    fn split(name: &str, text: &str) -> Vec<String> {
        let mut words = Vec::new();
        PreTokenizer::named(name).unwrap().split(text, &mut |w| words.push(w.to_owned()));
        words
    }

    #[test]
    fn unknown_names_list_the_known_ones() {
        let error = PreTokenizer::named("no-such").unwrap_err().to_string();
        assert!(error.contains("no-such") && error.contains("llama-bpe, llama3"), "{error}");
    }

    #[test]
    fn words_as_published() {
        assert_eq!(
            split("llama-bpe", "I'VE 12345  two"),
            ["I", "'VE", " ", "123", "45", " ", " two"]
        );
        assert_eq!(split("qwen2", "12 \n\n x"), ["1", "2", " \n\n", " x"]);
        assert_eq!(split("gpt-2", "a\n\n\nb \t c"), ["a", "\n\n", "\n", "b", " \t", " c"]);
        assert_eq!(split("tekken", "HelloWORLD Été"), ["Hello", "WORLD", " Été"]);
        assert_eq!(split("gpt-4o", "CAN'T don't ÀB"), ["CAN'T", " don't", " ÀB"]);
        assert_eq!(split("kimi-k2", "abc中文def"), ["abc", "中文", "def"]);
        assert_eq!(split("smollm", "v12 x"), ["v", "1", "2", " x"]);
        assert_eq!(split("default", "$5,00 1234"), ["$", "5", ",", "00", " ", "123", "4"]);
    }

    #[test]
    fn equals_the_published_patterns() {
        let alphabet: Vec<char> =
            " \t\n\r  　aZéÉßſǅʰ中あ한ก́ा9½Ⅷ٣'’stdrevml/$.-_=!\"<|>😀\u{200d}\u{fe0f}\0\u{85}~`"
                .chars()
                .collect();
        let mut state = 1u64;
        let mut random = move |n: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize % n
        };
        for row in TABLE {
            let pre = PreTokenizer::named(row.names[0]).unwrap();
            assert_eq!(pre.stages.len(), row.patterns.len());
            for _ in 0..200 {
                let mut text = String::new();
                for _ in 0..random(24) {
                    let c = alphabet[random(alphabet.len())];
                    (0..1 + random(8) / 6 * random(5)).for_each(|_| text.push(c));
                }
                let mut words = Vec::new();
                pre.split(&text, &mut |w| words.push(w.to_owned()));
                let wanted = split_by_definition(row.patterns, &text);
                assert_eq!(words, wanted, "{} {text:?}", row.names[0]);
            }
        }
    }

    #[test]
    fn names_are_unique() {
        let mut all: Vec<&str> = names().collect();
        all.sort_unstable();
        all.windows(2).for_each(|w| assert_ne!(w[0], w[1]));
    }
}
