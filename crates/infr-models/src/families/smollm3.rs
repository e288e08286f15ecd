//! SmolLM3: the Llama block; every fourth layer has no positions.

use crate::prelude::*;

/// The family.
pub(crate) struct Smollm3;

struct Smollm3Model {
    info: ModelInfo,
    common: Common,
    rope: Rope,
}

impl Family for Smollm3 {
    fn archs(&self) -> &'static [&'static str] {
        &["smollm3"]
    }

    fn parse(&self, gguf: &Gguf) -> Result<Box<dyn Model>, ModelError> {
        let h = Hparams::new(gguf.metadata())?;
        let common = Common::parse(&h)?;
        let rope = Rope::parse(&h, &common, RopeStyle::Interleaved)?;
        let info = common.info(&h, gguf, sampling::OTHER)?;
        Ok(Box::new(Smollm3Model { info, common, rope }))
    }

    fn tiny(&self, unit: u32) -> Vec<Recipe> {
        vec![Recipe::tiny("smollm3", "smollm3", unit).context(4096, 1e6)]
    }
}

impl Model for Smollm3Model {
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
            let rotated = SelfAttention::new(c.heads(layer), rotation, c.score_scale());
            let rotation = if (layer + 1).is_multiple_of(4) { None } else { rotated.rotation };
            let attention = SelfAttention { rotation, ..rotated };
            let h = norm::rms(&mut net, x, "attn_norm")?;
            let o = attention.run(&mut net, h)?;
            let o = attention::project(&mut net, o, c.embedding)?;
            x = net.b.add(x, o);
            let h = norm::rms(&mut net, x, "ffn_norm")?;
            let f = ffn::swiglu(&mut net, h, c.ffn(layer))?;
            x = net.b.add(x, f);
        }
        head::finish(&mut net, c, x, Head::default())?;
        net.finish()
    }
}
