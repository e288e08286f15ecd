//! Granite 3 and 4 without Mamba layers, dense and with experts: the Llama block with scaled embedding,
//! branches and logits.

use infr_graph::{GateAct, ValueId};

use crate::hparams::MAX_WIDTH;
use crate::prelude::*;

/// The family.
pub(crate) struct Granite;

struct GraniteModel {
    info: ModelInfo,
    common: Common,
    rope: Rope,
    /// Whether positions turn queries and keys at all.
    rotated: bool,
    /// Experts with the shared expert's width.
    experts: Option<(Experts, Option<u32>)>,
    score_scale: f32,
    embedding_scale: Option<f32>,
    residual_scale: Option<f32>,
    logit_scale: f32,
}

impl Family for Granite {
    fn archs(&self) -> &'static [&'static str] {
        &["granite", "granitemoe"]
    }

    fn parse(&self, gguf: &Gguf) -> Result<Box<dyn Model>, ModelError> {
        let h = Hparams::new(gguf.metadata())?;
        let common = Common::parse(&h)?;
        let rope = Rope::parse(&h, &common, RopeStyle::Interleaved)?;
        let info = common.info(&h, gguf, sampling::OTHER)?;
        let experts = match h.architecture() {
            "granitemoe" => {
                let experts = Experts::parse(&h, |_| Some(1))?;
                let shared = h.u32("expert_shared_feed_forward_length", 0..=MAX_WIDTH)?;
                let width = common.ffn(0);
                Some((Experts { width, ..experts }, shared.filter(|&w| w > 0)))
            }
            _ => None,
        };
        Ok(Box::new(GraniteModel {
            rotated: h.bool("rope.scaling.finetuned")?.unwrap_or(true),
            experts,
            score_scale: h.factor("attention.scale")?.unwrap_or(common.score_scale()),
            embedding_scale: h.factor("embedding_scale")?,
            residual_scale: h.factor("residual_scale")?,
            logit_scale: h.positive("logit_scale")?.ok_or_else(|| h.missing("logit_scale"))?,
            info,
            common,
            rope,
        }))
    }

    fn tiny(&self, unit: u32) -> Vec<Recipe> {
        let scaled = |name, arch| {
            Recipe::tiny(name, arch, unit)
                .key(".logit_scale", 4.0f32)
                .key(".residual_scale", 0.22f32)
                .key(".embedding_scale", 3.0f32)
                .key(".attention.scale", 0.1f32)
                .spread(1.0)
        };
        let moe = scaled("granite_moe", "granitemoe")
            .key(".expert_count", 8u32)
            .key(".expert_used_count", 2u32)
            .key(".expert_shared_feed_forward_length", unit);
        vec![scaled("granite", "granite"), moe]
    }
}

impl Model for GraniteModel {
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
        let rotation = Rotation { rope: self.rope, factors: self.rope.factors(&mut net)? };
        let branch = |net: &mut Net<'_>, y| match self.residual_scale {
            Some(by) => net.b.scale(y, by),
            None => y,
        };
        let mut x = embed::tokens(&mut net, c)?;
        if let Some(by) = self.embedding_scale {
            x = net.b.scale(x, by);
        }
        for layer in 0..c.layers {
            net.enter(layer);
            let rotated = SelfAttention::new(c.heads(layer), rotation, self.score_scale);
            let rotation = if self.rotated { Some(rotation) } else { None };
            let attention = SelfAttention { rotation, ..rotated };
            let h = norm::rms(&mut net, x, "attn_norm")?;
            let o = attention.run(&mut net, h)?;
            let o = attention::project(&mut net, o, c.embedding)?;
            let o = branch(&mut net, o);
            x = net.b.add(x, o);
            let h = norm::rms(&mut net, x, "ffn_norm")?;
            let f = self.ffn(&mut net, h, layer)?;
            let f = branch(&mut net, f);
            x = net.b.add(x, f);
        }
        let head = Head { scale: Some(self.logit_scale.recip()), ..Head::default() };
        head::finish(&mut net, c, x, head)?;
        net.finish()
    }
}

impl GraniteModel {
    fn ffn(&self, net: &mut Net<'_>, h: ValueId, layer: u32) -> Result<ValueId, ModelError> {
        let Some((experts, shared)) = &self.experts else {
            return ffn::swiglu(net, h, self.common.ffn(layer));
        };
        let y = moe::moe(net, h, experts)?;
        let Some(width) = *shared else { return Ok(y) };
        let s = moe::shared(net, h, width, GateAct::Silu)?;
        Ok(net.b.add(y, s))
    }
}
