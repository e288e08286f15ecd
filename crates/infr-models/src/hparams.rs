//! Reads hyper-parameters: typed, with the architecture's prefix, and within limits.
//!
//! Every number of a file is checked here before it is divided by, multiplied or used as a size, so
//! that products of two widths fit `u32` everywhere else.

use std::fmt::Display;
use std::ops::RangeInclusive;

use infr_gguf::{Metadata, Value};

use crate::error::ModelError;
use crate::family::{Pooling, SamplingDefaults};

/// Most elements of a row (embedding, FFN, all heads together).
pub(crate) const MAX_WIDTH: u32 = 1 << 20;
/// Most heads of a layer.
pub(crate) const MAX_HEADS: u32 = 1 << 12;
/// Most elements of a head.
pub(crate) const MAX_HEAD_DIM: u32 = 1 << 12;
/// Most experts of a layer.
pub(crate) const MAX_EXPERTS: u32 = 1024;
/// Most blocks of a model.
pub(crate) const MAX_BLOCKS: u32 = 512;
/// Most tokens of a vocabulary.
pub(crate) const MAX_VOCAB: u32 = 1 << 24;
/// Longest context.
pub(crate) const MAX_CONTEXT: u32 = 1 << 31;

/// Any width that is not zero.
pub(crate) const WIDTH: RangeInclusive<u32> = 1..=MAX_WIDTH;

/// Metadata of one architecture.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hparams<'a> {
    meta: &'a Metadata,
    arch: &'a str,
}

impl<'a> Hparams<'a> {
    /// The hyper-parameters of a file.
    pub(crate) fn new(meta: &'a Metadata) -> Result<Hparams<'a>, ModelError> {
        Ok(Hparams { meta, arch: meta.architecture()? })
    }

    /// Value of `general.architecture`.
    pub(crate) fn architecture(&self) -> &'a str {
        self.arch
    }

    /// All keys of the file.
    pub(crate) fn metadata(&self) -> &'a Metadata {
        self.meta
    }

    /// The key with the architecture's prefix.
    pub(crate) fn key(&self, suffix: &str) -> String {
        format!("{}.{suffix}", self.arch)
    }

    /// The error for a value that is not allowed.
    pub(crate) fn wrong(
        &self,
        suffix: &str,
        found: impl Display,
        allowed: impl Into<String>,
    ) -> ModelError {
        let (found, allowed) = (found.to_string(), allowed.into());
        ModelError::Value { key: self.key(suffix), found, allowed }
    }

    /// The error for a key that has to be there.
    pub(crate) fn missing(&self, suffix: &str) -> ModelError {
        self.meta.missing(&self.key(suffix)).into()
    }

    fn check(
        &self,
        suffix: &str,
        value: u32,
        range: &RangeInclusive<u32>,
    ) -> Result<u32, ModelError> {
        if range.contains(&value) {
            return Ok(value);
        }
        let allowed = format!("{} to {} is allowed", range.start(), range.end());
        Err(self.wrong(suffix, value, allowed))
    }

    /// An integer within `range`.
    pub(crate) fn u32(
        &self,
        suffix: &str,
        range: RangeInclusive<u32>,
    ) -> Result<Option<u32>, ModelError> {
        let value = self.meta.u32(&self.key(suffix))?;
        value.map(|v| self.check(suffix, v, &range)).transpose()
    }

    /// An integer within `range` that has to be there.
    pub(crate) fn require_u32(
        &self,
        suffix: &str,
        range: RangeInclusive<u32>,
    ) -> Result<u32, ModelError> {
        self.u32(suffix, range)?.ok_or_else(|| self.missing(suffix))
    }

    /// A finite number.
    pub(crate) fn f32(&self, suffix: &str) -> Result<Option<f32>, ModelError> {
        Ok(self.meta.f32(&self.key(suffix))?)
    }

    /// A number above zero.
    pub(crate) fn positive(&self, suffix: &str) -> Result<Option<f32>, ModelError> {
        match self.f32(suffix)? {
            Some(v) if v <= 0.0 => Err(self.wrong(suffix, v, "a number above 0 is allowed")),
            other => Ok(other),
        }
    }

    /// A number of at least zero, where zero and an absent key mean "off".
    pub(crate) fn factor(&self, suffix: &str) -> Result<Option<f32>, ModelError> {
        match self.f32(suffix)? {
            Some(v) if v < 0.0 => Err(self.wrong(suffix, v, "at least 0 is allowed")),
            other => Ok(other.filter(|&v| v != 0.0)),
        }
    }

    /// A truth value.
    pub(crate) fn bool(&self, suffix: &str) -> Result<Option<bool>, ModelError> {
        Ok(self.meta.bool(&self.key(suffix))?)
    }

    /// A string.
    pub(crate) fn str(&self, suffix: &str) -> Result<Option<&'a str>, ModelError> {
        Ok(self.meta.str(&self.key(suffix))?)
    }

    /// One integer per block: a scalar for all, or an array with `blocks` elements.
    pub(crate) fn per_block(
        &self,
        suffix: &str,
        blocks: u32,
        range: RangeInclusive<u32>,
    ) -> Result<Option<Vec<u32>>, ModelError> {
        let key = self.key(suffix);
        let values = match self.meta.get(&key) {
            None => return Ok(None),
            Some(Value::Array(_)) => self.meta.u32s(&key)?.unwrap_or_default(),
            Some(_) => vec![self.meta.require_u32(&key)?; blocks as usize],
        };
        self.check_len(suffix, values.len(), blocks)?;
        for &v in &values {
            self.check(suffix, v, &range)?;
        }
        Ok(Some(values))
    }

    /// An integer that is the same for all blocks: a scalar, or an array whose elements are equal where
    /// they are not 0.
    pub(crate) fn uniform(
        &self,
        suffix: &str,
        range: RangeInclusive<u32>,
    ) -> Result<Option<u32>, ModelError> {
        let key = self.key(suffix);
        let Some(Value::Array(_)) = self.meta.get(&key) else { return self.u32(suffix, range) };
        let values = self.meta.u32s(&key)?.unwrap_or_default();
        let mut set = values.iter().copied().filter(|&v| v != 0);
        let first = set.next().unwrap_or(0);
        if set.any(|v| v != first) {
            return Err(self.wrong(suffix, "an array", "one value for all blocks is supported"));
        }
        self.check(suffix, first, &range).map(Some)
    }

    /// One truth value per block, when the key is an array.
    pub(crate) fn flags(&self, suffix: &str, blocks: u32) -> Result<Option<Vec<bool>>, ModelError> {
        let key = self.key(suffix);
        let Some(Value::Array(_)) = self.meta.get(&key) else { return Ok(None) };
        let flags = self.meta.bools(&key)?.unwrap_or_default();
        self.check_len(suffix, flags.len(), blocks)?;
        Ok(Some(flags))
    }

    fn check_len(&self, suffix: &str, found: usize, blocks: u32) -> Result<(), ModelError> {
        if found == blocks as usize {
            return Ok(());
        }
        let allowed = format!("one per block is needed: {blocks}");
        Err(self.wrong(suffix, format!("an array of {found}"), allowed))
    }

    /// Which layers see a sliding window: an array of flags, or a period of which the last layer is
    /// full (1: no layer has a window, 0: all have).
    pub(crate) fn window_layers(&self, blocks: u32, period: u32) -> Result<Vec<bool>, ModelError> {
        const KEY: &str = "attention.sliding_window_pattern";
        if let Some(flags) = self.flags(KEY, blocks)? {
            return Ok(flags);
        }
        let period = self.u32(KEY, 0..=MAX_BLOCKS)?.unwrap_or(period);
        Ok((0..blocks).map(|i| period == 0 || i % period < period - 1).collect())
    }

    /// Number of tokens: the token list's length, or the key where there is no list.
    pub(crate) fn vocab(&self) -> Result<u32, ModelError> {
        let key = "tokenizer.ggml.tokens";
        let found = match self.meta.strings(key)? {
            Some(tokens) => tokens.len(),
            None => self.require_u32("vocab_size", 1..=MAX_VOCAB)? as usize,
        };
        match u32::try_from(found) {
            Ok(n @ 1..=MAX_VOCAB) => Ok(n),
            _ => Err(ModelError::Value {
                key: key.to_owned(),
                found: format!("a list of {found}"),
                allowed: format!("1 to {MAX_VOCAB} tokens are allowed"),
            }),
        }
    }

    /// Classes that a reranker's head tells apart.
    pub(crate) fn classes(&self) -> Result<u32, ModelError> {
        const KEY: &str = "classifier.output_labels";
        let labels = self.meta.strings(&self.key(KEY))?.map_or(1, |labels| labels.len());
        match u32::try_from(labels) {
            Ok(n @ 1..=MAX_HEADS) => Ok(n),
            _ => Err(self.wrong(KEY, labels, format!("1 to {MAX_HEADS} labels are allowed"))),
        }
    }

    /// How an embedding model makes one vector of a sequence; `None` for generators.
    pub(crate) fn pooling(&self) -> Result<Option<Pooling>, ModelError> {
        Ok(match self.u32("pooling_type", 0..=4)? {
            None | Some(0) => None,
            Some(1) => Some(Pooling::Mean),
            Some(2) => Some(Pooling::Cls),
            Some(3) => Some(Pooling::Last),
            Some(_) => Some(Pooling::Rank),
        })
    }

    /// The file's own sampling recommendation over the family's.
    pub(crate) fn sampling(
        &self,
        family: SamplingDefaults,
    ) -> Result<SamplingDefaults, ModelError> {
        let f = |name: &str| self.meta.f32(&format!("general.sampling.{name}"));
        let top_k = self.meta.i32("general.sampling.top_k")?;
        Ok(SamplingDefaults {
            temperature: f("temp")?.or(family.temperature),
            // A negative number is another way to say "all".
            top_k: top_k.map(|k| u32::try_from(k).unwrap_or(0)).or(family.top_k),
            top_p: f("top_p")?.or(family.top_p),
            min_p: f("min_p")?.or(family.min_p),
            repeat_penalty: f("penalty_repeat")?.or(family.repeat_penalty),
        })
    }
}
