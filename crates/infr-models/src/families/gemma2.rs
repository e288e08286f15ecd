//! Gemma 2: sandwich norms, windows in every other layer, bounded scores and logits.

use infr_graph::GateAct;

use crate::families::gemma3::score_scale;
use crate::hparams::MAX_CONTEXT;
use crate::prelude::*;

/// The family.
pub(crate) struct Gemma2;

struct Gemma2Model {
    info: ModelInfo,
    common: Common,
    rope: Rope,
    /// What each layer sees.
    reach: Vec<Reach>,
    score_scale: f32,
    score_softcap: Option<f32>,
    softcap: Option<f32>,
}

impl Family for Gemma2 {
    fn archs(&self) -> &'static [&'static str] {
        &["gemma2"]
    }

    fn parse(&self, gguf: &Gguf) -> Result<Box<dyn Model>, ModelError> {
        let h = Hparams::new(gguf.metadata())?;
        let common = Common::parse(&h)?;
        let rope = Rope::parse(&h, &common, RopeStyle::Halves)?;
        let window = h.u32("attention.sliding_window", 1..=MAX_CONTEXT)?.unwrap_or(4096);
        let reach = h
            .window_layers(common.layers, 2)?
            .into_iter()
            .map(|windowed| if windowed { Reach::Window(window) } else { Reach::Full })
            .collect();
        let cap = |key, default| match h.f32(key) {
            Ok(None) => Ok(Some(default)),
            Ok(Some(_)) => h.factor(key),
            Err(e) => Err(e),
        };
        Ok(Box::new(Gemma2Model {
            info: common.info(&h, gguf, sampling::GEMMA)?,
            score_scale: score_scale(&common, 46),
            score_softcap: cap("attn_logit_softcapping", 50.0)?,
            softcap: cap("final_logit_softcapping", 30.0)?,
            common,
            rope,
            reach,
        }))
    }

    fn tiny(&self, unit: u32) -> Vec<Recipe> {
        let recipe = Recipe::tiny("gemma2", "gemma2", unit)
            .key(".attention.sliding_window", 5u32)
            .key(".attn_logit_softcapping", 2.0f32)
            .key(".final_logit_softcapping", 6.0f32)
            .spread(0.2);
        vec![recipe]
    }
}

impl Model for Gemma2Model {
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
        let rotation = Rotation { rope: self.rope, factors: None };
        let scores = Scores { scale: self.score_scale, softcap: self.score_softcap, sinks: None };
        let x = embed::tokens(&mut net, c)?;
        let mut x = net.b.scale(x, (c.embedding as f32).sqrt());
        for layer in 0..c.layers {
            net.enter(layer);
            let rotated = SelfAttention::new(c.heads(layer), rotation, self.score_scale);
            let reach = self.reach[layer as usize];
            let attention = SelfAttention { reach, scores, ..rotated };
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
        let matrix = OutputMatrix::Tied;
        head::finish(&mut net, c, x, Head { matrix, softcap: self.softcap, ..Head::default() })?;
        net.finish()
    }
}
