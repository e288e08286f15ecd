//! Which type each tensor of a quantised file has, by the file's name for its mix (`Q4_K_M`).
//!
//! The rules are those that llama.cpp's quantiser follows without an importance matrix, so that random
//! files ask the same of an engine as public ones.

use infr_tensor::DType;

/// Facts about the model that the rules depend on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Facts {
    /// Layers.
    pub layers: u32,
    /// Query heads per KV head.
    pub gqa: u32,
    /// Experts.
    pub experts: u32,
    /// Whether `output` is a tensor of its own.
    pub untied: bool,
}

/// A file's mix of types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mix {
    /// Its name.
    pub name: &'static str,
    /// Value of `general.file_type`.
    pub file_type: u32,
    base: DType,
}

macro_rules! mixes {
    ($($name:literal $id:literal $base:ident;)*) => {
        /// All mixes.
        pub(crate) const MIXES: &[Mix] = &[$(
            Mix { name: $name, file_type: $id, base: DType::$base },
        )*];
    };
}

mixes! {
    "F32" 0 F32; "F16" 1 F16; "BF16" 32 BF16; "Q4_0" 2 Q4_0; "Q4_1" 3 Q4_1; "Q5_0" 8 Q5_0;
    "Q5_1" 9 Q5_1; "Q8_0" 7 Q8_0; "Q2_K" 10 Q2_K; "Q2_K_S" 21 Q2_K; "Q3_K_S" 11 Q3_K;
    "Q3_K_M" 12 Q3_K; "Q3_K_L" 13 Q3_K; "Q4_K_S" 14 Q4_K; "Q4_K_M" 15 Q4_K; "Q5_K_S" 16 Q5_K;
    "Q5_K_M" 17 Q5_K; "Q6_K" 18 Q6_K; "IQ2_XXS" 19 IQ2_XXS; "IQ2_XS" 20 IQ2_XS; "IQ3_XS" 22 IQ3_S;
    "IQ3_XXS" 23 IQ3_XXS; "IQ1_S" 24 IQ1_S; "IQ4_NL" 25 IQ4_NL; "IQ3_S" 26 IQ3_S; "IQ3_M" 27 IQ3_S;
    "IQ2_S" 28 IQ2_XS; "IQ2_M" 29 IQ2_XS; "IQ4_XS" 30 IQ4_XS; "IQ1_M" 31 IQ1_M; "TQ1_0" 36 TQ1_0;
    "TQ2_0" 37 TQ2_0; "MXFP4" 38 MXFP4; "NVFP4" 39 NVFP4; "Q1_0" 40 Q1_0; "Q2_0" 41 Q2_0;
}

/// The kinds of matrices that the rules tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// The head, or the table that also serves as head.
    Output,
    /// The embedding table beside a head of its own.
    Embedding,
    /// Values, or all three projections at once.
    Value,
    /// Queries and keys.
    QueryKey,
    /// The way back from the heads.
    AttnOutput,
    /// `ffn_down` in all its forms.
    Down,
    /// `ffn_gate` and `ffn_up` in all their forms.
    GateUp,
    /// Every other matrix.
    Other,
}

impl Kind {
    /// The kind of a matrix by name.
    pub(crate) fn of(name: &str, facts: Facts) -> Kind {
        let short = name.rsplit_once('.').map_or(name, |(front, _)| front);
        let short = short.rsplit('.').next().unwrap_or(short);
        match short {
            "output" => Kind::Output,
            "token_embd" if facts.untied => Kind::Embedding,
            "token_embd" => Kind::Output,
            "per_layer_token_embd" => Kind::Embedding,
            "attn_v" | "attn_qkv" | "attn_kv_b" | "attn_v_b" => Kind::Value,
            "attn_q" | "attn_k" => Kind::QueryKey,
            "attn_output" => Kind::AttnOutput,
            s if s.starts_with("ffn_down") => Kind::Down,
            s if s.starts_with("ffn_gate") || s.starts_with("ffn_up") => Kind::GateUp,
            _ => Kind::Other,
        }
    }
}

/// Whether a tensor stays as it is in every mix.
pub(crate) fn is_plain(name: &str, dims: &[u64]) -> bool {
    let matrix = dims.iter().filter(|&&d| d > 1).count() >= 2;
    let kept =
        ["_norm.weight", "ffn_gate_inp.weight", "ssm_conv1d.weight", "shortconv.conv.weight"];
    !matrix
        || !name.ends_with("weight")
        || kept.iter().any(|k| name.ends_with(k))
        || name == "per_layer_model_proj.weight"
}

impl Mix {
    /// Elements of the largest block that most of its matrices have.
    pub(crate) fn block_len(self) -> usize {
        self.base.block_len()
    }

    /// The mix of this name, in any case.
    pub(crate) fn by_name(name: &str) -> Option<Mix> {
        MIXES.iter().copied().find(|m| m.name.eq_ignore_ascii_case(name))
    }

    /// The type of a matrix: the `index`-th of its kind, with rows of `width` elements.
    pub(crate) fn dtype(self, kind: Kind, index: u32, width: u64, facts: Facts) -> DType {
        let mut wanted = self.rule(kind, index, facts);
        if self.base.is_quantised() && facts.experts == 8 && self.base.block_len() == 256 {
            wanted = match kind {
                Kind::Value => DType::Q8_0,
                Kind::AttnOutput => DType::Q5_K,
                _ => wanted,
            };
        }
        fallback(wanted, kind, width)
    }

    fn rule(self, kind: Kind, i: u32, facts: Facts) -> DType {
        use DType::*;
        let n = facts.layers;
        let more = i < n / 8 || i >= 7 * n / 8 || i.saturating_sub(n / 8) % 3 == 2;
        let (gqa4, base) = (facts.gqa >= 4, self.base);
        match (self.name, kind) {
            ("F32" | "F16" | "BF16" | "Q8_0", _) => base,
            ("MXFP4", Kind::Down | Kind::GateUp) => base,
            ("MXFP4", _) => Q8_0,
            ("NVFP4" | "Q1_0", Kind::Output | Kind::Embedding) => Q8_0,
            (
                "IQ3_XXS" | "IQ2_XXS" | "IQ2_XS" | "IQ1_S" | "IQ1_M" | "IQ2_S" | "IQ2_M",
                Kind::Output,
            ) => Q5_K,
            (_, Kind::Output) => Q6_K,
            ("IQ3_XXS" | "IQ2_S" | "IQ2_M", Kind::Embedding) => IQ3_S,
            ("IQ2_XXS" | "IQ2_XS" | "IQ1_S" | "IQ1_M", Kind::Embedding) => Q2_K,
            ("TQ1_0" | "TQ2_0" | "Q2_0", Kind::Embedding) => Q4_K,
            ("Q2_K", Kind::Value) => {
                if gqa4 {
                    Q4_K
                } else {
                    Q3_K
                }
            }
            ("Q2_K", Kind::Down | Kind::AttnOutput) => Q3_K,
            ("Q2_K_S", Kind::Value) if gqa4 => Q4_K,
            ("Q2_K_S", Kind::Down) if i < n / 8 => Q4_K,
            ("Q3_K_M", Kind::Value) => {
                if i < 2 {
                    Q5_K
                } else {
                    Q4_K
                }
            }
            ("Q3_K_M", Kind::Down) => {
                if i < n / 16 {
                    Q5_K
                } else {
                    Q4_K
                }
            }
            ("Q3_K_M", Kind::AttnOutput) => Q4_K,
            ("Q3_K_L", Kind::Value | Kind::Down | Kind::AttnOutput) => Q5_K,
            ("Q4_K_S", Kind::Value) if i < 4 => Q5_K,
            ("Q4_K_S", Kind::Down) if i < n / 8 => Q5_K,
            ("Q4_K_M" | "Q5_K_M", Kind::Value | Kind::Down) if more => Q6_K,
            ("IQ4_NL" | "IQ4_XS", Kind::Value) if gqa4 => Q5_K,
            ("IQ4_NL" | "IQ4_XS", Kind::Down) if i < n / 8 => Q5_K,
            ("IQ3_XXS", Kind::Value) => {
                if gqa4 {
                    Q4_K
                } else {
                    IQ3_S
                }
            }
            ("IQ3_XXS", Kind::Down) => {
                if i < n / 8 {
                    Q4_K
                } else {
                    Q3_K
                }
            }
            ("IQ3_XXS", Kind::AttnOutput) => IQ3_S,
            ("IQ3_XXS", Kind::QueryKey) => IQ2_S,
            ("IQ3_S" | "IQ3_XS", Kind::Value) if gqa4 => Q4_K,
            ("IQ3_XS", Kind::QueryKey) => IQ3_XXS,
            ("IQ3_XS", Kind::GateUp) if i >= n / 8 && i < 7 * n / 8 => IQ3_XXS,
            ("IQ3_M", Kind::Value | Kind::AttnOutput) => Q4_K,
            ("IQ3_M", Kind::Down) if i < n / 8 => Q4_K,
            ("IQ2_XXS" | "IQ2_XS" | "IQ1_S" | "IQ1_M", Kind::Value) => {
                if gqa4 || facts.experts >= 4 { Q4_K } else { Q2_K }
            }
            ("IQ2_XXS" | "IQ2_XS" | "IQ1_S" | "IQ1_M", Kind::Down) if i < n / 8 => Q2_K,
            ("IQ1_S" | "IQ1_M", Kind::AttnOutput) => IQ2_XXS,
            ("IQ2_S" | "IQ2_M", Kind::Value) => {
                if gqa4 || facts.experts >= 4 {
                    Q4_K
                } else {
                    IQ3_S
                }
            }
            ("IQ2_S" | "IQ2_M", Kind::Down) if i < n / 8 => IQ3_S,
            ("IQ2_S" | "IQ2_M", Kind::AttnOutput) => IQ3_S,
            _ => base,
        }
    }
}

/// The type that stands in where rows are no whole number of blocks.
fn fallback(wanted: DType, kind: Kind, width: u64) -> DType {
    let fits = |d: DType| width.is_multiple_of(d.block_len() as u64);
    if fits(wanted) {
        return wanted;
    }
    let second = match wanted {
        _ if kind == Kind::Output => DType::Q8_0,
        DType::Q2_K | DType::Q3_K | DType::TQ1_0 | DType::TQ2_0 | DType::Q2_0 | DType::Q1_0 => {
            DType::Q4_0
        }
        DType::Q4_K | DType::NVFP4 => DType::Q5_0,
        DType::Q5_K => DType::Q5_1,
        DType::Q6_K => DType::Q8_0,
        _ => DType::IQ4_NL,
    };
    if fits(second) { second } else { DType::F16 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q4_k_m_mixes_as_public_files_do() {
        let facts = Facts { layers: 36, gqa: 4, experts: 0, untied: true };
        let mix = Mix::by_name("q4_k_m").unwrap();
        let down: String = (0..36)
            .map(|i| match mix.dtype(Kind::Down, i, 12288, facts) {
                DType::Q6_K => '6',
                DType::Q4_K => '4',
                other => panic!("{other}"),
            })
            .collect();
        assert_eq!(down.matches('6').count(), 18);
        assert_eq!(mix.dtype(Kind::Output, 0, 4096, facts), DType::Q6_K);
        assert_eq!(mix.dtype(Kind::Embedding, 0, 4096, facts), DType::Q4_K);
    }

    #[test]
    fn rows_that_do_not_fit_fall_back() {
        let facts = Facts { layers: 18, gqa: 4, experts: 0, untied: false };
        let mix = Mix::by_name("Q4_K_M").unwrap();
        // Gemma 3 270M, whose rows have 640 elements.
        assert_eq!(mix.dtype(Kind::QueryKey, 0, 640, facts), DType::Q5_0);
        assert_eq!(mix.dtype(Kind::Output, 0, 640, facts), DType::Q8_0);
        assert_eq!(mix.dtype(Kind::Other, 0, 20, facts), DType::F16);
    }
}
