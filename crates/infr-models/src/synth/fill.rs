//! Random contents of tensors, by what their names say they are.

use infr_tensor::{DType, quant};

use crate::synth::recipe::Recipe;

/// A small fast generator (SplitMix64; Steele et al., 2014).
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    /// A stream of its own per seed and name.
    pub(crate) fn new(seed: u64, name: &str) -> Random {
        // FNV-1a over the name.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |h, b| {
            (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)
        });
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ hash)
    }

    /// 64 uniform bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Roughly normal with mean 0 and deviation 1: a sum of twelve uniform numbers.
    pub(crate) fn normal(&mut self) -> f32 {
        let mut sum = -6.0;
        for _ in 0..3 {
            let bits = self.bits();
            sum += (0..4).map(|i| (bits >> (16 * i) & 0xffff) as f32 / 65536.0).sum::<f32>();
        }
        sum
    }
}

/// How the elements of a tensor are distributed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Fill {
    /// Normal around a mean.
    Normal { mean: f32, spread: f32 },
    /// `−exp(n/2)`: the decay of a DeltaNet head.
    Decay,
    /// Frequency factors of a long context: 1 for fast pairs, growing for slow ones.
    Factors,
}

impl Fill {
    /// The distribution of a tensor; `width` is its fastest extent.
    pub(crate) fn of(name: &str, width: u64, recipe: &Recipe) -> Fill {
        let normal = |mean, spread| Fill::Normal { mean, spread };
        let short = match name.strip_prefix("blk.") {
            Some(rest) => rest.split_once('.').map_or(rest, |(_, short)| short),
            None => name,
        };
        match short {
            "ssm_a" => Fill::Decay,
            "rope_freqs.weight" | "rope_factors_long.weight" | "rope_factors_short.weight" => {
                Fill::Factors
            }
            "token_embd.weight" => normal(0.0, recipe.embedding_spread),
            "attn_q_norm.weight" => normal(recipe.query_gain, 0.2 * recipe.query_gain),
            "per_layer_token_embd.weight" | "nextn.embed_tokens.weight" => normal(0.0, 0.3),
            "attn_sinks.weight" => normal(0.0, 1.0),
            "layer_output_scale.weight" | "enc_layer_output_scale.weight" => normal(0.8, 0.05),
            "ssm_conv1d.weight" | "shortconv.conv.weight" => normal(0.0, 0.5),
            s if s.ends_with("norm.weight") || s.contains("_norm_") => normal(1.0, 0.2),
            s if s.contains("enorm.") || s.contains("hnorm.") => normal(1.0, 0.2),
            s if s.ends_with(".scale") => normal(1.0, 0.1),
            s if s.ends_with(".bias") => normal(0.0, 0.3),
            _ => normal(0.0, 1.0 / (width as f32).sqrt()),
        }
    }

    /// Fills `out`, whole blocks of `dtype`.
    pub(crate) fn write(self, dtype: DType, random: &mut Random, out: &mut [u8]) {
        if let (Fill::Normal { mean: 0.0, spread }, true) = (self, dtype.is_quantised()) {
            // Only integer types have no random blocks, and no tensor here has one.
            let filled = quant::random_blocks(dtype, &mut || random.bits(), spread, out);
            debug_assert!(filled, "{dtype} has no codec");
            return;
        }
        let count = out.len() / dtype.block_bytes() * dtype.block_len();
        let values: Vec<f32> = match self {
            Fill::Normal { mean, spread } => {
                (0..count).map(|_| mean + spread * random.normal()).collect()
            }
            Fill::Decay => (0..count).map(|_| -(0.5 * random.normal()).exp()).collect(),
            Fill::Factors => {
                (0..count).map(|i| 1.0 + 7.0 * i as f32 / count.max(2) as f32).collect()
            }
        };
        let encoded = quant::encode_row(dtype, &values, out);
        debug_assert!(encoded, "{dtype} has no encoder");
    }
}
