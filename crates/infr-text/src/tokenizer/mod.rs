//! Text to tokens and back, from a file's own metadata.
//!
//! A text is first split at special tokens ([`special`]); the stretches between go through the
//! file's algorithm: byte-pair encoding over bytes or characters ([`bpe`], with [`pretok`] cutting
//! words) or SentencePiece merges ([`spm`]). Both share one merge loop ([`merge`]).
//!
//! Why not the `tokenizers` crate: a file that has to agree with llama.cpp needs its rule for
//! special tokens (longest first over the whole text, some of them taking whitespace along), its
//! SentencePiece merges from scores without a merge list, its byte fallback, and text that is
//! literal on request; each of those would be our code around the crate. What would remain of it
//! is the merge loop, and building its maps of owned strings costs more than the whole load does
//! here, where texts stay in one arena and maps hold numbers.
//!
//! Reading order: `vocab`, `special`, `pretok`, `merge`, `bpe`, `spm`, `detok`.

mod bpe;
mod byte_map;
mod detok;
mod error;
mod merge;
mod pretok;
mod special;
mod spm;
mod table;
#[cfg(test)]
mod tests;
mod vocab;
mod wellknown;

use std::borrow::Cow;

use infr_gguf::Metadata;

use self::bpe::{Alphabet, Bpe, Scratch};
use self::byte_map::ByteMap;
use self::pretok::PreTokenizer;
use self::special::{Fragment, SpecialSplitter};
use self::spm::Spm;
use self::vocab::{Defaults, Vocab, long_enough};

pub use self::detok::{DecodeOptions, Detokenizer};
pub use self::error::TokenizerError;
pub use self::vocab::{SpecialIds, TokenKind};

/// How a text is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EncodeOptions {
    /// Add the beginning and the end that the file asks for.
    pub add_special: bool,
    /// Read the text of control tokens as those tokens. Off, such text is literal; that is right
    /// for text from users. User-defined tokens are always read.
    pub parse_special: bool,
}

#[derive(Debug, Clone)]
enum Algorithm {
    Bpe(Box<Bpe>),
    Spm(Box<Spm>),
}

/// How a normal token's text spells what it stands for.
#[derive(Debug, Clone)]
enum Spelling {
    /// By GPT-2's stand-ins for bytes.
    StandIns(Box<ByteMap>),
    /// With ▁ for spaces.
    Underscores,
}

/// A vocabulary with its algorithm.
///
/// Immutable, so one serves any number of threads.
#[derive(Debug, Clone)]
pub struct Tokenizer {
    vocab: Vocab,
    specials: SpecialSplitter,
    algorithm: Algorithm,
    spelling: Spelling,
}

/// Texts above this size are read in pieces, so that positions fit 32 bits.
const MAX_PIECE: usize = 1 << 30;

const SUPPORTED: [&str; 3] = ["llama", "gpt2", "gemma4"];

impl Tokenizer {
    /// Builds the tokenizer that a file describes.
    pub fn from_metadata(meta: &Metadata) -> Result<Tokenizer, TokenizerError> {
        match meta.require_str("tokenizer.ggml.model")? {
            "llama" => Tokenizer::sentence_piece(meta),
            "gpt2" => match meta.str("tokenizer.ggml.pre")? {
                // Such files spell their vocabulary as Gemma 4 does.
                Some("gemma4") => Tokenizer::character_bpe(meta),
                Some(name) => Tokenizer::byte_bpe(meta, name),
                None => {
                    tracing::warn!("tokenizer.ggml.pre is missing; words are cut by a guess");
                    Tokenizer::byte_bpe(meta, pretok::DEFAULT)
                }
            },
            "gemma4" => Tokenizer::character_bpe(meta),
            found => Err(TokenizerError::UnsupportedModel {
                found: found.to_owned(),
                known: SUPPORTED.join(", "),
            }),
        }
    }

    fn sentence_piece(meta: &Metadata) -> Result<Tokenizer, TokenizerError> {
        let defaults = Defaults {
            bos: Some(1),
            eos: Some(2),
            unknown: Some(0),
            add_bos: true,
            ..Defaults::default()
        };
        let vocab = Vocab::new(meta, defaults)?;
        let scores = meta.f32s("tokenizer.ggml.scores")?;
        if let Some(scores) = &scores {
            long_enough("tokenizer.ggml.scores", scores.len(), vocab.tokens.len())?;
        }
        let space_prefix = meta.bool("tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
        let spm = Spm::new(&vocab.tokens, scores.as_deref(), vocab.ids.unknown, space_prefix);
        let specials = specials(meta, &vocab);
        let (algorithm, spelling) = (Algorithm::Spm(spm.into()), Spelling::Underscores);
        Ok(Tokenizer { vocab, specials, algorithm, spelling })
    }

    fn byte_bpe(meta: &Metadata, pre: &str) -> Result<Tokenizer, TokenizerError> {
        let pre = PreTokenizer::named(pre)?;
        let vocab = Vocab::new(meta, Defaults { add_bos: pre.add_bos, ..Defaults::default() })?;
        let map = Box::new(ByteMap::new());
        let alphabet = Alphabet::Bytes(pre.into(), map.clone());
        let merges = meta.require_strings("tokenizer.ggml.merges")?;
        let bpe = Bpe::new(&vocab.tokens, merges, alphabet);
        let specials = specials(meta, &vocab);
        let (algorithm, spelling) = (Algorithm::Bpe(bpe.into()), Spelling::StandIns(map));
        Ok(Tokenizer { vocab, specials, algorithm, spelling })
    }

    fn character_bpe(meta: &Metadata) -> Result<Tokenizer, TokenizerError> {
        let defaults = Defaults { force_bos: true, ..Defaults::default() };
        let vocab = Vocab::new(meta, defaults)?;
        let merges = meta.require_strings("tokenizer.ggml.merges")?;
        let bpe = Bpe::new(&vocab.tokens, merges, Alphabet::Characters);
        let specials = specials(meta, &vocab);
        let (algorithm, spelling) = (Algorithm::Bpe(bpe.into()), Spelling::Underscores);
        Ok(Tokenizer { vocab, specials, algorithm, spelling })
    }

    /// The tokens of a text.
    pub fn encode(&self, text: &str, options: EncodeOptions) -> Vec<u32> {
        let mut out = Vec::new();
        if options.add_special && self.vocab.add_bos {
            out.extend(self.bos());
        }
        let mut scratch = Scratch::default();
        let mut after_special = true;
        for fragment in self.specials.split(text, options.parse_special) {
            match fragment {
                Fragment::Token(id) => out.push(id),
                Fragment::Text(ref range) => {
                    self.encode_plain(&text[range.clone()], after_special, &mut scratch, &mut out);
                }
            }
            after_special = matches!(fragment, Fragment::Token(_));
        }
        if options.add_special && self.vocab.add_eos {
            out.extend(self.eos());
        }
        out
    }

    /// The tokens of bytes that should be UTF-8; what is not becomes U+FFFD.
    pub fn encode_bytes(&self, text: &[u8], options: EncodeOptions) -> Vec<u32> {
        self.encode(&String::from_utf8_lossy(text), options)
    }

    fn encode_plain(
        &self,
        text: &str,
        after_special: bool,
        scratch: &mut Scratch,
        out: &mut Vec<u32>,
    ) {
        let table = &self.vocab.tokens;
        let mut rest = text;
        let mut prefix = after_special;
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rest.floor_char_boundary(MAX_PIECE));
            match &self.algorithm {
                Algorithm::Bpe(bpe) => bpe.encode(table, piece, scratch, out),
                Algorithm::Spm(spm) if prefix && spm.space_prefix => {
                    spm.encode(table, &format!(" {piece}"), &mut scratch.merger, out);
                }
                Algorithm::Spm(spm) => spm.encode(table, piece, &mut scratch.merger, out),
            }
            (rest, prefix) = (after, false);
        }
    }

    /// The text of some tokens. What is not UTF-8 in the end becomes U+FFFD.
    pub fn decode(&self, ids: &[u32], options: DecodeOptions) -> String {
        let mut text = String::new();
        let mut state = detok::State::default();
        for &id in ids {
            state.push(self, options, id, &mut text);
        }
        state.finish(&mut text);
        text
    }

    /// The bytes that a token contributes to a text; for control tokens, their name. Empty for an
    /// id outside the vocabulary.
    pub fn token_bytes(&self, id: u32) -> Cow<'_, [u8]> {
        let text = self.vocab.tokens.text(id).unwrap_or_default();
        match self.vocab.kind(id) {
            TokenKind::Control | TokenKind::Unknown | TokenKind::UserDefined => text.into(),
            TokenKind::Byte => match byte_of(text) {
                Some(byte) => vec![byte].into(),
                None => text.into(),
            },
            TokenKind::Normal | TokenKind::Unused => match &self.spelling {
                Spelling::StandIns(map) => map.decode(text).into(),
                Spelling::Underscores => with_spaces(text),
            },
        }
    }

    /// The bytes of a token in a text, nothing for those that are hidden.
    fn rendered(&self, id: u32, options: DecodeOptions) -> Cow<'_, [u8]> {
        if self.is_control(id) && !options.render_special {
            return Cow::Borrowed(&[]);
        }
        self.token_bytes(id)
    }

    /// A token's entry in the vocabulary as it is spelt there, for people to read.
    pub fn piece(&self, id: u32) -> Option<Cow<'_, str>> {
        self.vocab.tokens.text(id).map(String::from_utf8_lossy)
    }

    /// The token with this entry in the vocabulary.
    pub fn token_id(&self, piece: &str) -> Option<u32> {
        self.vocab.tokens.id(piece.as_bytes())
    }

    /// Number of tokens; ids run from 0.
    pub fn vocab_size(&self) -> usize {
        self.vocab.tokens.len()
    }

    /// A token's kind.
    pub fn kind(&self, id: u32) -> TokenKind {
        self.vocab.kind(id)
    }

    /// Whether a token is structure, not text: hidden unless rendering it is asked for.
    pub fn is_control(&self, id: u32) -> bool {
        matches!(self.vocab.kind(id), TokenKind::Control | TokenKind::Unknown)
    }

    /// The tokens with a part to play.
    pub fn special_ids(&self) -> &SpecialIds {
        &self.vocab.ids
    }

    /// Beginning of a text.
    pub fn bos(&self) -> Option<u32> {
        self.vocab.ids.bos
    }

    /// End of a text.
    pub fn eos(&self) -> Option<u32> {
        self.vocab.ids.eos
    }

    /// Whether a generation ends with this token.
    pub fn is_eog(&self, id: u32) -> bool {
        self.vocab.eog().binary_search(&id).is_ok()
    }

    /// The tokens that end a generation, in ascending order.
    pub fn eog_ids(&self) -> &[u32] {
        self.vocab.eog()
    }

    /// Tokens that the file asks never to generate.
    pub fn suppressed_ids(&self) -> &[u32] {
        &self.vocab.suppressed
    }

    /// Whether `add_special` puts a beginning before a text.
    pub fn adds_bos(&self) -> bool {
        self.vocab.add_bos
    }

    /// Whether `add_special` puts an end after a text.
    pub fn adds_eos(&self) -> bool {
        self.vocab.add_eos
    }

    /// Whether encoding puts a space before a text.
    pub fn adds_space_prefix(&self) -> bool {
        matches!(&self.algorithm, Algorithm::Spm(spm) if spm.space_prefix)
    }
}

/// The values of `tokenizer.ggml.pre` that are known.
pub fn pre_tokenizer_names() -> impl Iterator<Item = &'static str> {
    pretok::names()
}

/// The splitter at special tokens, with the habits that go by a model's name.
fn specials(meta: &Metadata, vocab: &Vocab) -> SpecialSplitter {
    let mut splitter = SpecialSplitter::new(vocab);
    let name = meta.str("general.name").ok().flatten().unwrap_or_default().to_lowercase();
    if name.contains("phi-3") || name.contains("phi3") {
        splitter.strip_right_except(&vocab.tokens, &["<unk>", "<s>", "<|endoftext|>"]);
    } else if name.contains("modern-bert") {
        splitter.strip_left("[MASK]");
    }
    splitter
}

/// The byte that `<0xXX>` stands for.
fn byte_of(text: &[u8]) -> Option<u8> {
    let digits = text.strip_prefix(b"<0x")?.strip_suffix(b">")?;
    let digits = std::str::from_utf8(digits).ok().filter(|d| d.len() == 2)?;
    u8::from_str_radix(digits, 16).ok()
}

/// A text with spaces in the place of ▁.
fn with_spaces(text: &[u8]) -> Cow<'_, [u8]> {
    const UNDERSCORE: &[u8] = "▁".as_bytes();
    if !text.windows(UNDERSCORE.len()).any(|w| w == UNDERSCORE) {
        return text.into();
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        rest = match rest.strip_prefix(UNDERSCORE) {
            Some(after) => {
                out.push(b' ');
                after
            }
            None => {
                out.push(first);
                after
            }
        };
    }
    out.into()
}
