//! Gemma 3 and EmbeddingGemma: sandwich norms, normalised heads, windows in five of six layers.
//!
//! The embedding model has the same block without a causal order: a row of a windowed layer sees half
//! a window on both sides. Its two dense layers are linear, so they commute with mean pooling and are
//! applied to every hidden row.

use infr_graph::{GateAct, Output, Phase};

use crate::family::{DecodeStyle, Pooling};
use crate::hparams::{MAX_CONTEXT, WIDTH};
use crate::prelude::*;

/// The family.
pub(crate) struct Gemma3;

struct Gemma3Model {
    info: ModelInfo,
    common: Common,
    /// Rotation of the layers that see everything.
    rope: Rope,
    /// Rotation of the windowed layers.
    window_rope: Rope,
    /// What each layer sees.
    reach: Vec<Reach>,
    score_scale: f32,
    softcap: Option<f32>,
    encoder: Option<Encoder>,
}

/// Widths between the embedding model's last norm and its vector.
struct Encoder {
    /// `dense_2`, from the embedding to this.
    second: Option<u32>,
    /// `dense_3`, from this to the embedding.
    third: Option<u32>,
}

impl Family for Gemma3 {
    fn archs(&self) -> &'static [&'static str] {
        &["gemma3", "gemma-embedding"]
    }

    fn parse(&self, gguf: &Gguf) -> Result<Box<dyn Model>, ModelError> {
        let h = Hparams::new(gguf.metadata())?;
        let mut common = Common::parse(&h)?;
        let is_encoder = h.architecture() == "gemma-embedding";
        if is_encoder {
            common.pooling = Some(common.pooling.unwrap_or(Pooling::Mean));
        }
        let rope = Rope::parse(&h, &common, RopeStyle::Halves)?;
        let window_base = h.positive("rope.freq_base_swa")?.unwrap_or(10_000.0);
        let window = h.u32("attention.sliding_window", 0..=MAX_CONTEXT)?.unwrap_or(0);
        let mut info = match is_encoder {
            true => common.info_of_any_order(&h, gguf, sampling::GEMMA)?,
            false => common.info(&h, gguf, sampling::GEMMA)?,
        };
        if let (Some(pooling), true) = (common.pooling, is_encoder) {
            info.style = DecodeStyle::Embedding { pooling, causal: false };
        }
        let encoder = match is_encoder {
            true => Some(Encoder {
                second: h.u32("dense_2_feat_out", WIDTH)?,
                third: h.u32("dense_3_feat_in", WIDTH)?,
            }),
            false => None,
        };
        let reach = h
            .window_layers(common.layers, 6)?
            .into_iter()
            .map(|windowed| match (is_encoder, windowed && window > 0) {
                (false, true) => Reach::Window(window),
                (false, false) => Reach::Full,
                (true, true) => Reach::Symmetric(window),
                (true, false) => Reach::Symmetric(u32::MAX),
            })
            .collect();
        Ok(Box::new(Gemma3Model {
            score_scale: score_scale(&common, 62),
            softcap: h.factor("final_logit_softcapping")?,
            window_rope: rope.plain(window_base),
            info,
            common,
            rope,
            reach,
            encoder,
        }))
    }

    fn tiny(&self, unit: u32) -> Vec<Recipe> {
        let block = |name, arch| {
            Recipe::tiny(name, arch, unit)
                .context(4096, 1e6)
                .key(".block_count", 7u32)
                .key(".attention.sliding_window", 6u32)
                .spread(0.2)
        };
        let encoder = block("gemma_embedding", "gemma-embedding")
            .key(".pooling_type", 1u32)
            .key(".dense_2_feat_in", unit)
            .key(".dense_2_feat_out", 2 * unit)
            .key(".dense_3_feat_in", 2 * unit)
            .key(".dense_3_feat_out", unit);
        vec![block("gemma3", "gemma3"), encoder]
    }
}

/// `1/√D`; the 27B size, known by its number of layers, divides by the root of E/H.
pub(crate) fn score_scale(common: &Common, layers_of_27b: u32) -> f32 {
    if common.layers == layers_of_27b {
        return (common.embedding as f32 / common.heads[0].max(1) as f32).sqrt().recip();
    }
    common.score_scale()
}

impl Model for Gemma3Model {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn build(
        &self,
        tensors: &dyn TensorTable,
        options: &BuildOptions,
    ) -> Result<Program, ModelError> {
        let c = &self.common;
        let mut net = Net::new(tensors, options, c.eps)?;
        let x = embed::tokens(&mut net, c)?;
        let mut x = net.b.scale(x, (c.embedding as f32).sqrt());
        for layer in 0..c.layers {
            net.enter(layer);
            let reach = self.reach[layer as usize];
            let rope = match reach {
                Reach::Full | Reach::Symmetric(u32::MAX) => self.rope,
                Reach::Window(_) | Reach::Chunk(_) | Reach::Symmetric(_) => self.window_rope,
            };
            let rotation = Rotation { rope, factors: None };
            let rotated = SelfAttention::new(c.heads(layer), rotation, self.score_scale);
            let attention = SelfAttention { norm_heads: true, reach, ..rotated };
            let h = norm::rms(&mut net, x, "attn_norm")?;
            let o = attention.run(&mut net, h)?;
            let o = attention::project(&mut net, o, c.embedding)?;
            let o = norm::rms(&mut net, o, "post_attention_norm")?;
            x = net.b.add(x, o);
            let h = norm::rms(&mut net, x, "ffn_norm")?;
            let f = ffn::gated(&mut net, h, GateAct::Gelu, c.ffn(layer), "")?;
            let f = norm::rms(&mut net, f, "post_ffw_norm")?;
            x = net.b.add(x, f);
        }
        match &self.encoder {
            Some(encoder) => encoder.finish(&mut net, c, x)?,
            None => {
                let head = Head { softcap: self.softcap, ..Head::default() };
                head::finish(&mut net, c, x, head)?;
            }
        }
        net.finish()
    }
}

impl Encoder {
    fn finish(
        &self,
        net: &mut Net<'_>,
        c: &Common,
        x: infr_graph::ValueId,
    ) -> Result<(), ModelError> {
        net.leave();
        let x = net.b.gather_out(x);
        let mut hidden = norm::rms(net, x, "output_norm")?;
        if let Some(width) = self.second {
            hidden = net.linear(hidden, "dense_2", width)?;
        }
        if let Some(width) = self.third {
            if net.b.width(hidden) != width {
                let what = format!("dense_3 of {width} behind {} elements", net.b.width(hidden));
                return Err(ModelError::Unsupported { what });
            }
            hidden = net.linear(hidden, "dense_3", c.embedding)?;
        }
        net.b.output(Output::Hidden, hidden);
        net.end_graph(Phase::Forward);
        Ok(())
    }
}
