//! Rotary embedding as metadata describes it.

use infr_graph::{RopeSpec, RopeStyle, ValueId, WeightId, Yarn};

use crate::common::Common;
use crate::error::ModelError;
use crate::hparams::{Hparams, MAX_CONTEXT, MAX_HEAD_DIM};
use crate::net::Net;

/// How positions turn queries and keys.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rope {
    /// How elements are paired.
    pub style: RopeStyle,
    /// Rotated elements of a head.
    pub n_rot: u32,
    /// First rotated element of a head.
    pub start: u32,
    /// Base of the frequencies.
    pub base: f32,
    /// Multiplies every angle.
    pub freq_scale: f32,
    /// Length extrapolation.
    pub yarn: Option<Yarn>,
    /// Multiplies cosine and sine.
    pub magnitude: f32,
    /// Whether the file's scaling type is LongRoPE.
    pub long: bool,
    /// Context length of the original training.
    pub original_context: u32,
}

/// `1 + 0.1·k·ln f`, YaRN's magnitude for a scaling factor `f` (1 where nothing is stretched).
pub(crate) fn yarn_magnitude(k: f32, f: f32) -> f32 {
    if f <= 1.0 { 1.0 } else { 1.0 + 0.1 * k * f.ln() }
}

impl Rope {
    /// Reads the keys that all families share.
    pub(crate) fn parse(
        h: &Hparams<'_>,
        common: &Common,
        style: RopeStyle,
    ) -> Result<Rope, ModelError> {
        const DIM: &str = "rope.dimension_count";
        let n_rot = h.u32(DIM, 0..=MAX_HEAD_DIM)?.unwrap_or(common.key_dim);
        if n_rot % 2 != 0 || n_rot > common.key_dim {
            let allowed = format!("an even number up to the head's {} is allowed", common.key_dim);
            return Err(h.wrong(DIM, n_rot, allowed));
        }
        let original_context = h
            .u32("rope.scaling.original_context_length", 1..=MAX_CONTEXT)?
            .unwrap_or(common.context);
        let kind = h.str("rope.scaling.type")?.unwrap_or("linear");
        let factor = match h.factor("rope.scaling.factor")? {
            Some(factor) => Some(factor),
            None => h.factor("rope.scale_linear")?,
        };
        let freq_scale = match kind {
            "none" => 1.0,
            "linear" | "yarn" | "longrope" => factor.unwrap_or(1.0).recip(),
            other => {
                let allowed = "none, linear, yarn and longrope are allowed";
                return Err(h.wrong("rope.scaling.type", format!("{other:?}"), allowed));
            }
        };
        let attn_factor = h.positive("rope.scaling.attn_factor")?.unwrap_or(1.0);
        let yarn =
            (kind == "yarn").then_some(Yarn { original_context, beta_fast: 32.0, beta_slow: 1.0 });
        let magnitude = match yarn {
            Some(_) => attn_factor * yarn_magnitude(1.0, freq_scale.recip()),
            None => attn_factor,
        };
        Ok(Rope {
            style,
            n_rot,
            start: 0,
            base: h.positive("rope.freq_base")?.unwrap_or(10_000.0),
            freq_scale,
            yarn,
            magnitude,
            long: kind == "longrope",
            original_context,
        })
    }

    /// The same rotation without any stretching, at another base.
    pub(crate) fn plain(self, base: f32) -> Rope {
        Rope { base, freq_scale: 1.0, yarn: None, magnitude: 1.0, ..self }
    }

    /// Frequency factors of the whole model: `rope_freqs`, or one of LongRoPE's two tables.
    pub(crate) fn factors(&self, net: &mut Net<'_>) -> Result<Option<WeightId>, ModelError> {
        let len = self.n_rot / 2;
        if !self.long {
            return net.vector_opt("rope_freqs.weight", len);
        }
        self.long_factors(net)
    }

    /// LongRoPE's table for the configured context, if the file has it.
    pub(crate) fn long_factors(&self, net: &mut Net<'_>) -> Result<Option<WeightId>, ModelError> {
        let name = if net.options().context > self.original_context {
            "rope_factors_long.weight"
        } else {
            "rope_factors_short.weight"
        };
        net.vector_opt(name, self.n_rot / 2)
    }
}

/// A rotation with its frequency factors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rotation {
    /// The rotation.
    pub rope: Rope,
    /// Divides the angles.
    pub factors: Option<WeightId>,
}

impl Rotation {
    /// Rotates every head of `x`.
    pub(crate) fn apply(&self, net: &mut Net<'_>, x: ValueId, heads: u32) -> ValueId {
        let positions = net.positions();
        let spec = RopeSpec {
            heads,
            head_dim: net.b.width(x) / heads,
            start: self.rope.start,
            n_rot: self.rope.n_rot,
            style: self.rope.style,
            base: self.rope.base,
            freq_scale: self.rope.freq_scale,
            yarn: self.rope.yarn,
            magnitude: self.rope.magnitude,
        };
        net.b.rope(x, positions, spec, self.factors)
    }
}
