//! A file's vocabulary: texts, kinds, scores, and the tokens with a part to play.

use infr_gguf::{GgufError, Metadata};

use super::error::TokenizerError;
use super::table::TokenTable;
use super::wellknown as known;

/// What a token is for (`tokenizer.ggml.token_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// Text.
    Normal,
    /// Stands for what the vocabulary cannot spell.
    Unknown,
    /// Structure: matched only where special tokens are asked for, and hidden when rendered.
    Control,
    /// Added text that is matched before anything else and always rendered.
    UserDefined,
    /// Reserved.
    Unused,
    /// One byte, spelt `<0xXX>`.
    Byte,
}

impl TokenKind {
    fn from_code(code: i32) -> TokenKind {
        match code {
            2 => TokenKind::Unknown,
            3 => TokenKind::Control,
            4 => TokenKind::UserDefined,
            5 => TokenKind::Unused,
            6 => TokenKind::Byte,
            _ => TokenKind::Normal,
        }
    }
}

/// The tokens that a file, or its conventions, give a part to play.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpecialIds {
    /// Beginning of a text.
    pub bos: Option<u32>,
    /// End of a text.
    pub eos: Option<u32>,
    /// End of a turn.
    pub eot: Option<u32>,
    /// End of a message.
    pub eom: Option<u32>,
    /// What the vocabulary cannot spell.
    pub unknown: Option<u32>,
    /// Separator.
    pub separator: Option<u32>,
    /// Padding.
    pub padding: Option<u32>,
    /// Mask.
    pub mask: Option<u32>,
    /// Fill-in-the-middle: before the text that precedes the gap.
    pub fim_prefix: Option<u32>,
    /// Fill-in-the-middle: before the text that follows the gap.
    pub fim_suffix: Option<u32>,
    /// Fill-in-the-middle: where the gap's text goes.
    pub fim_middle: Option<u32>,
    /// Fill-in-the-middle: padding.
    pub fim_pad: Option<u32>,
    /// Fill-in-the-middle: before a repository's name.
    pub fim_repo: Option<u32>,
    /// Fill-in-the-middle: between files.
    pub fim_file: Option<u32>,
}

/// What the algorithm decides about special tokens where the file says nothing.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Defaults {
    pub(crate) bos: Option<u32>,
    pub(crate) eos: Option<u32>,
    pub(crate) unknown: Option<u32>,
    pub(crate) add_bos: bool,
    /// The file's own wish not to add a beginning is overruled.
    pub(crate) force_bos: bool,
}

/// Texts, kinds and special tokens.
#[derive(Debug, Clone)]
pub(crate) struct Vocab {
    pub(crate) tokens: TokenTable,
    kinds: Vec<TokenKind>,
    pub(crate) ids: SpecialIds,
    /// Sorted.
    eog: Vec<u32>,
    pub(crate) suppressed: Vec<u32>,
    pub(crate) add_bos: bool,
    pub(crate) add_eos: bool,
}

impl Vocab {
    pub(crate) fn new(meta: &Metadata, defaults: Defaults) -> Result<Vocab, TokenizerError> {
        let texts = meta.require_strings("tokenizer.ggml.tokens")?;
        // Ids beyond the vocabulary serve the merge loop, and the largest one is reserved there.
        let limit = i32::MAX as usize;
        if texts.len() > limit {
            return Err(TokenizerError::TooManyTokens { found: texts.len(), limit });
        }
        let tokens = TokenTable::new(texts);
        let kinds = match meta.i32s("tokenizer.ggml.token_type")? {
            None => vec![TokenKind::Normal; tokens.len()],
            Some(codes) => {
                long_enough("tokenizer.ggml.token_type", codes.len(), tokens.len())?;
                codes[..tokens.len()].iter().map(|&c| TokenKind::from_code(c)).collect()
            }
        };
        let ids = named_ids(meta, tokens.len(), defaults)?;
        let add_bos = meta.bool("tokenizer.ggml.add_bos_token")?.unwrap_or(defaults.add_bos);
        let add_eos = meta.bool("tokenizer.ggml.add_eos_token")?.unwrap_or(false);
        let add_bos = add_bos || defaults.force_bos;
        if add_bos && ids.bos.is_none() {
            let (flag, id) = ("tokenizer.ggml.add_bos_token", "tokenizer.ggml.bos_token_id");
            return Err(TokenizerError::NoTokenToAdd { flag, id });
        }
        if add_eos && ids.eos.is_none() {
            let (flag, id) = ("tokenizer.ggml.add_eos_token", "tokenizer.ggml.eos_token_id");
            return Err(TokenizerError::NoTokenToAdd { flag, id });
        }
        let suppressed = meta.i32s("tokenizer.ggml.suppress_tokens")?.unwrap_or_default();
        let valid = |&id: &i32| id >= 0 && (id as usize) < tokens.len();
        let suppressed = suppressed.iter().filter(|id| valid(id)).map(|&id| id as u32).collect();
        let eog = Vec::new();
        let mut vocab = Vocab { tokens, kinds, ids, eog, suppressed, add_bos, add_eos };
        vocab.find_unnamed();
        vocab.find_ends();
        Ok(vocab)
    }

    /// A token's kind; ids outside the vocabulary count as unused.
    pub(crate) fn kind(&self, id: u32) -> TokenKind {
        self.kinds.get(id as usize).copied().unwrap_or(TokenKind::Unused)
    }

    /// The tokens that end a generation, sorted.
    pub(crate) fn eog(&self) -> &[u32] {
        &self.eog
    }

    fn set_kind(&mut self, id: u32, kind: TokenKind) {
        self.kinds[id as usize] = kind;
    }

    /// The first of some texts that is a token.
    fn first_of(&self, texts: &[&str]) -> Option<u32> {
        texts.iter().find_map(|text| self.tokens.id(text.as_bytes()))
    }

    /// Finds by text what the keys leave out. Tokens found so are control tokens, whatever the
    /// file says.
    fn find_unnamed(&mut self) {
        let mut ids = self.ids.clone();
        let lists = [
            (&mut ids.eot, known::EOT),
            (&mut ids.eom, known::EOM),
            (&mut ids.fim_prefix, known::FIM_PREFIX),
            (&mut ids.fim_suffix, known::FIM_SUFFIX),
            (&mut ids.fim_middle, known::FIM_MIDDLE),
            (&mut ids.fim_pad, known::FIM_PAD),
            (&mut ids.fim_repo, known::FIM_REPO),
            (&mut ids.fim_file, known::FIM_FILE),
        ];
        for (id, texts) in lists {
            if id.is_some() {
                continue;
            }
            *id = self.first_of(texts);
            if let Some(id) = *id {
                self.set_kind(id, TokenKind::Control);
            }
        }
        self.ids = ids;
    }

    /// Collects the tokens that end a generation.
    fn find_ends(&mut self) {
        let by_text: Vec<u32> = (known::EOT.iter().chain(known::EOG))
            .filter_map(|text| self.tokens.id(text.as_bytes()))
            .collect();
        for &id in &by_text {
            self.set_kind(id, TokenKind::Control);
        }
        for text in known::ALWAYS_RENDERED {
            if let Some(id) = self.tokens.id(text.as_bytes()) {
                self.set_kind(id, TokenKind::UserDefined);
            }
        }
        let ids = &self.ids;
        let by_key = [ids.eos, ids.eot, ids.eom, ids.fim_pad, ids.fim_repo, ids.fim_file];
        self.eog = by_key.into_iter().flatten().chain(by_text).collect();
        self.eog.sort_unstable();
        self.eog.dedup();

        // Vocabularies whose `<|end|>` ends a message, not the answer.
        let (returns, calls) = (self.ends("<|return|>"), self.ends("<|call|>"));
        let (flushes, many_calls) = (self.ends("<|flush|>"), self.ends("<|calls|>"));
        if (calls || many_calls) && (returns || flushes) {
            self.remove_end("<|end|>", TokenKind::UserDefined);
        }
        // Gemma 4 keeps `</s>` as plain text of markup.
        if self.ends("<|tool_response>") {
            self.remove_end("</s>", TokenKind::Normal);
        }
    }

    fn ends(&self, text: &str) -> bool {
        self.tokens.id(text.as_bytes()).is_some_and(|id| self.eog.binary_search(&id).is_ok())
    }

    fn remove_end(&mut self, text: &str, kind: TokenKind) {
        let Some(id) = self.tokens.id(text.as_bytes()) else { return };
        if let Ok(at) = self.eog.binary_search(&id) {
            self.eog.remove(at);
            self.set_kind(id, kind);
        }
    }
}

/// An array that runs parallel to the tokens has to cover them all.
pub(crate) fn long_enough(
    key: &'static str,
    found: usize,
    wanted: usize,
) -> Result<(), TokenizerError> {
    match found < wanted {
        true => Err(TokenizerError::ShortArray { key, wanted, found }),
        false => Ok(()),
    }
}

/// The ids that the file names; those out of range fall back to the defaults.
fn named_ids(meta: &Metadata, n_tokens: usize, d: Defaults) -> Result<SpecialIds, GgufError> {
    let in_range = |id: &u32| (*id as usize) < n_tokens;
    let named = |name: &str| -> Result<Option<u32>, GgufError> {
        let key = format!("tokenizer.ggml.{name}_token_id");
        let id = match meta.get(&key).and_then(infr_gguf::Value::as_int) {
            // Some files write -1 for "none".
            Some(v) if v < 0 => None,
            _ => meta.u32(&key)?,
        };
        if let Some(id) = id.filter(|id| !in_range(id)) {
            tracing::warn!(key, id, n_tokens, "special token out of range, ignored");
        }
        Ok(id.filter(in_range))
    };
    let or_default = |id: Option<u32>, default: Option<u32>| id.or(default.filter(in_range));
    let either = |new: &str, old: &str| Ok::<_, GgufError>(named(new)?.or(named(old)?));
    Ok(SpecialIds {
        bos: or_default(named("bos")?, d.bos),
        eos: or_default(named("eos")?, d.eos),
        eot: named("eot")?,
        eom: named("eom")?,
        unknown: or_default(named("unknown")?, d.unknown),
        // The format spells it so.
        separator: named("seperator")?,
        padding: named("padding")?,
        mask: named("mask")?,
        fim_prefix: either("fim_pre", "prefix")?,
        fim_suffix: either("fim_suf", "suffix")?,
        fim_middle: either("fim_mid", "middle")?,
        fim_pad: named("fim_pad")?,
        fim_repo: named("fim_rep")?,
        fim_file: named("fim_sep")?,
    })
}
