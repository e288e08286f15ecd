//! GLM 4.5 and its successors with experts: a partial rotation, dense layers first, sigmoid gating with a
//! selection bias, a shared expert.

use infr_graph::Gating;

use crate::hparams::MAX_BLOCKS;
use crate::prelude::*;

/// The family.
pub(crate) struct Glm4Moe;

struct Glm4MoeModel {
    info: ModelInfo,
    common: Common,
    rope: Rope,
    experts: Experts,
    /// Width of the shared expert; 0 for none.
    shared: u32,
    dense_layers: u32,
}

impl Family for Glm4Moe {
    fn archs(&self) -> &'static [&'static str] {
        &["glm4moe"]
    }

    fn parse(&self, gguf: &Gguf) -> Result<Box<dyn Model>, ModelError> {
        let h = Hparams::new(gguf.metadata())?;
        let common = Common::parse(&h)?;
        let rope = Rope::parse(&h, &common, RopeStyle::Halves)?;
        let info = common.info(&h, gguf, sampling::OTHER)?;
        let experts = Experts::parse(&h, |_| None)?.with_keys(&h)?;
        let experts = Experts { gating: moe::gating(&h, Some(Gating::Sigmoid))?, ..experts };
        let shared = h.u32("expert_shared_count", 0..=64)?.unwrap_or(0) * experts.width;
        let dense_layers = h.u32("leading_dense_block_count", 0..=MAX_BLOCKS)?.unwrap_or(0);
        Ok(Box::new(Glm4MoeModel { info, common, rope, experts, shared, dense_layers }))
    }

    fn tiny(&self, unit: u32) -> Vec<Recipe> {
        let recipe = Recipe::tiny("glm4moe", "glm4moe", unit)
            .context(4096, 1e6)
            .key(".rope.dimension_count", unit / 8)
            .experts(8, 2, unit)
            .key(".expert_shared_count", 1u32)
            .key(".leading_dense_block_count", 1u32)
            .key(".expert_weights_scale", 1.5f32)
            .key(".expert_weights_norm", true)
            .with(&["attn_q.bias", "attn_k.bias", "attn_v.bias", "output.weight"])
            .with(&["attn_q_norm.weight", "exp_probs_b.bias"]);
        vec![recipe]
    }
}

impl Model for Glm4MoeModel {
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
        let mut x = embed::tokens(&mut net, c)?;
        for layer in 0..c.layers {
            net.enter(layer);
            let heads = c.heads(layer);
            let rotated = SelfAttention::new(heads, rotation, c.score_scale());
            let norm_heads = net.has("attn_q_norm.weight", &[heads.key_dim]);
            let attention = SelfAttention { norm_heads, ..rotated };
            let h = norm::rms(&mut net, x, "attn_norm")?;
            let o = attention.run(&mut net, h)?;
            let o = attention::project(&mut net, o, c.embedding)?;
            x = net.b.add(x, o);
            let h = norm::rms(&mut net, x, "post_attention_norm")?;
            let f = if layer < self.dense_layers {
                ffn::swiglu(&mut net, h, c.ffn(layer))?
            } else {
                moe::with_shared(&mut net, h, &self.experts, self.shared)?
            };
            x = net.b.add(x, f);
        }
        head::finish(&mut net, c, x, Head::default())?;
        net.finish()
    }
}
