//! What makes a random model: the keys of its file, and which optional tensors it has.

use infr_gguf::Value;

/// A random model to be made.
#[derive(Debug, Clone, PartialEq)]
pub struct Recipe {
    /// What users and tests call it.
    pub name: String,
    /// Value of `general.architecture`.
    pub arch: &'static str,
    /// Keys of the file; those that start with a dot get the architecture's prefix.
    pub keys: Vec<(String, Value)>,
    /// Optional tensors that it has: full names, or names inside a layer without `blk.N.`.
    pub tensors: Vec<String>,
    /// Optional tensors among those that some layer lacks, by full name.
    pub without: Vec<String>,
    /// Tokens in the vocabulary.
    pub vocab: u32,
    /// Standard deviation of the embedding table's elements.
    pub embedding_spread: f32,
    /// Mean of the weights that normalised queries are multiplied by.
    pub query_gain: f32,
}

impl Recipe {
    /// An empty recipe.
    pub fn new(name: &str, arch: &'static str, vocab: u32) -> Recipe {
        Recipe {
            name: name.to_owned(),
            arch,
            keys: Vec::new(),
            tensors: Vec::new(),
            without: Vec::new(),
            vocab,
            embedding_spread: 0.3,
            query_gain: 1.0,
        }
    }

    /// A tiny decoder of four layers: `unit` (a multiple of 64) is the embedding width, four query
    /// and two KV heads, an FFN of `2·unit`.
    pub fn tiny(name: &str, arch: &'static str, unit: u32) -> Recipe {
        Recipe::new(name, arch, 320).decoder(4, unit, 2 * unit).attention(4, 2, unit / 4)
    }

    /// Sets a key.
    #[must_use]
    pub fn key(mut self, key: &str, value: impl Into<Value>) -> Recipe {
        let value = value.into();
        match self.keys.iter_mut().find(|(k, _)| k == key) {
            Some(entry) => entry.1 = value,
            None => self.keys.push((key.to_owned(), value)),
        }
        self
    }

    /// Adds optional tensors.
    #[must_use]
    pub fn with(mut self, tensors: &[&str]) -> Recipe {
        self.tensors.extend(tensors.iter().map(|&t| t.to_owned()));
        self
    }

    /// Takes one layer's optional tensor away.
    #[must_use]
    pub fn lacking(mut self, name: String) -> Recipe {
        self.without.push(name);
        self
    }

    /// Sets the spread of the embedding table.
    #[must_use]
    pub fn spread(mut self, spread: f32) -> Recipe {
        self.embedding_spread = spread;
        self
    }

    /// Sets the gain of normalised queries, for models that do not scale scores.
    #[must_use]
    pub fn gain(mut self, gain: f32) -> Recipe {
        self.query_gain = gain;
        self
    }

    /// Layers, embedding and FFN width, with a context of 4096 and an epsilon of 1e-6.
    #[must_use]
    pub fn decoder(self, layers: u32, embedding: u32, ffn: u32) -> Recipe {
        self.key(".context_length", 4096u32)
            .key(".block_count", layers)
            .key(".embedding_length", embedding)
            .key(".feed_forward_length", ffn)
            .key(".attention.layer_norm_rms_epsilon", 1e-6f32)
    }

    /// Query heads, KV heads and elements of a head, all of them rotated.
    #[must_use]
    pub fn attention(self, heads: u32, kv_heads: u32, dim: u32) -> Recipe {
        self.key(".attention.head_count", heads)
            .key(".attention.head_count_kv", kv_heads)
            .key(".attention.key_length", dim)
            .key(".attention.value_length", dim)
            .key(".rope.dimension_count", dim)
    }

    /// Trained context and base of the rotation.
    #[must_use]
    pub fn context(self, length: u32, base: f32) -> Recipe {
        self.key(".context_length", length).key(".rope.freq_base", base)
    }

    /// Experts, experts used and the width of one.
    #[must_use]
    pub fn experts(self, count: u32, used: u32, width: u32) -> Recipe {
        self.key(".expert_count", count)
            .key(".expert_used_count", used)
            .key(".expert_feed_forward_length", width)
    }

    /// Whether it has an optional tensor.
    pub(crate) fn has(&self, name: &str) -> bool {
        if self.without.iter().any(|n| n == name) {
            return false;
        }
        let short = match name.strip_prefix("blk.") {
            Some(rest) => rest.split_once('.').map_or(rest, |(_, short)| short),
            None => name,
        };
        self.tensors.iter().any(|n| n == name || n == short)
    }

    /// An integer key of the recipe, its largest element when it is an array.
    pub(crate) fn number(&self, key: &str) -> Option<u32> {
        let value = &self.keys.iter().find(|(k, _)| k == key)?.1;
        match value {
            Value::Array(infr_gguf::Array::U32(v)) => v.iter().copied().max(),
            other => other.as_int().and_then(|v| u32::try_from(v).ok()),
        }
    }
}
