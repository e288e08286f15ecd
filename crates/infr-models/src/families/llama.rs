//! Llama, and Mixtral under the same name: the plain decoder block.

use crate::prelude::*;

/// The family.
pub(crate) struct Llama;

struct LlamaModel {
    info: ModelInfo,
    common: Common,
    rope: Rope,
    experts: Option<Experts>,
}

impl Family for Llama {
    fn archs(&self) -> &'static [&'static str] {
        &["llama"]
    }

    fn parse(&self, gguf: &Gguf) -> Result<Box<dyn Model>, ModelError> {
        let h = Hparams::new(gguf.metadata())?;
        let common = Common::parse(&h)?;
        let rope = Rope::parse(&h, &common, RopeStyle::Interleaved)?;
        if rope.n_rot != common.key_dim {
            let allowed = format!("the whole head of {} must be rotated", common.key_dim);
            return Err(h.wrong("rope.dimension_count", rope.n_rot, allowed));
        }
        let info = common.info(&h, gguf, sampling::LLAMA)?;
        let experts = match info.experts {
            // Mixtral's experts have the width of the dense network.
            Some(_) => Some(Experts { width: common.ffn(0), ..Experts::parse(&h, |_| Some(1))? }),
            None => None,
        };
        Ok(Box::new(LlamaModel { info, common, rope, experts }))
    }

    fn tiny(&self, unit: u32) -> Vec<Recipe> {
        let mixtral = Recipe::tiny("mixtral", "llama", unit)
            .key(".expert_count", 8u32)
            .key(".expert_used_count", 2u32)
            .with(&["rope_freqs.weight", "output.weight"]);
        let yarn = Recipe::tiny("llama_yarn", "llama", unit)
            .context(4096, 1e3)
            .key(".rope.scaling.type", "yarn")
            .key(".rope.scaling.factor", 4.0f32)
            .key(".rope.scaling.original_context_length", 64u32)
            .key(".rope.scaling.attn_factor", 1.15f32);
        vec![Recipe::tiny("llama", "llama", unit).with(&["output.weight"]), mixtral, yarn]
    }
}

impl Model for LlamaModel {
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
        let mut x = embed::tokens(&mut net, c)?;
        for layer in 0..c.layers {
            net.enter(layer);
            let attention = SelfAttention::new(c.heads(layer), rotation, c.score_scale());
            let h = norm::rms(&mut net, x, "attn_norm")?;
            let o = attention.run(&mut net, h)?;
            let o = attention::project(&mut net, o, c.embedding)?;
            x = net.b.add(x, o);
            let h = norm::rms(&mut net, x, "ffn_norm")?;
            let f = match &self.experts {
                Some(experts) => moe::moe(&mut net, h, experts)?,
                None => ffn::swiglu(&mut net, h, c.ffn(layer))?,
            };
            x = net.b.add(x, f);
        }
        head::finish(&mut net, c, x, Head::default())?;
        net.finish()
    }
}
