//! Phi 3 and 4: fused projections, a partial rotation, LongRoPE.

use infr_graph::{GateAct, SliceSpec};

use crate::prelude::*;

/// The family.
pub(crate) struct Phi3;

struct Phi3Model {
    info: ModelInfo,
    common: Common,
    rope: Rope,
}

impl Family for Phi3 {
    fn archs(&self) -> &'static [&'static str] {
        &["phi3"]
    }

    fn parse(&self, gguf: &Gguf) -> Result<Box<dyn Model>, ModelError> {
        let h = Hparams::new(gguf.metadata())?;
        let common = Common::parse(&h)?;
        let rope = Rope::parse(&h, &common, RopeStyle::Halves)?;
        let info = common.info(&h, gguf, sampling::OTHER)?;
        Ok(Box::new(Phi3Model { info, common, rope }))
    }

    fn tiny(&self, unit: u32) -> Vec<Recipe> {
        let recipe = Recipe::tiny("phi3", "phi3", unit)
            // Tokenizers treat special tokens in another way where the name says Phi-3.
            .key("general.name", "random weights")
            .key(".rope.dimension_count", unit * 3 / 16)
            .key(".rope.scaling.type", "longrope")
            .key(".rope.scaling.attn_factor", 1.19f32)
            .key(".rope.scaling.original_context_length", 512u32)
            .with(&[
                "attn_qkv.weight",
                "output.weight",
                "rope_factors_long.weight",
                "rope_factors_short.weight",
            ]);
        vec![recipe]
    }
}

impl Model for Phi3Model {
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
        let rotation = Rotation { rope: self.rope, factors: self.rope.long_factors(&mut net)? };
        let mut x = embed::tokens(&mut net, c)?;
        for layer in 0..c.layers {
            net.enter(layer);
            let attention = SelfAttention::new(c.heads(layer), rotation, c.score_scale());
            let h = norm::rms(&mut net, x, "attn_norm")?;
            let o = attention.run(&mut net, h)?;
            let o = attention::project(&mut net, o, c.embedding)?;
            x = net.b.add(x, o);
            let h = norm::rms(&mut net, x, "ffn_norm")?;
            // Gates stand in front of the other half.
            let width = c.ffn(layer);
            let both = net.linear(h, "ffn_up", 2 * width)?;
            let gate = net.b.slice(both, SliceSpec { groups: 1, start: 0, len: width });
            let up = net.b.slice(both, SliceSpec { groups: 1, start: width, len: width });
            let y = net.b.gated(GateAct::Silu, gate, up);
            let y = net.linear(y, "ffn_down", c.embedding)?;
            x = net.b.add(x, y);
        }
        head::finish(&mut net, c, x, Head::default())?;
        net.finish()
    }
}
