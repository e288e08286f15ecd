//! Qwen 3, dense and with experts: queries and keys are normalised per head.

use crate::prelude::*;

/// The family.
pub(crate) struct Qwen3;

struct Qwen3Model {
    info: ModelInfo,
    common: Common,
    rope: Rope,
    experts: Option<Experts>,
}

impl Family for Qwen3 {
    fn archs(&self) -> &'static [&'static str] {
        &["qwen3", "qwen3moe"]
    }

    fn parse(&self, gguf: &Gguf) -> Result<Box<dyn Model>, ModelError> {
        let h = Hparams::new(gguf.metadata())?;
        let common = Common::parse(&h)?;
        let rope = Rope::parse(&h, &common, RopeStyle::Halves)?;
        let info = common.info(&h, gguf, sampling::OTHER)?;
        let experts = match h.architecture() {
            "qwen3moe" => {
                let ffn = common.ffn(0);
                // Older files give the width of all chosen experts together.
                Some(Experts::parse(&h, |used| Some(ffn / used))?)
            }
            _ => None,
        };
        Ok(Box::new(Qwen3Model { info, common, rope, experts }))
    }

    fn tiny(&self, unit: u32) -> Vec<Recipe> {
        let plain = |name, arch| Recipe::tiny(name, arch, unit).context(4096, 1e6);
        let reranker = plain("qwen3_reranker", "qwen3")
            .key(".pooling_type", 4u32)
            .key(".classifier.output_labels", vec!["yes", "no"]);
        vec![
            reranker,
            plain("qwen3", "qwen3"),
            plain("qwen3moe", "qwen3moe").experts(8, 2, unit).with(&["output.weight"]),
        ]
    }
}

impl Model for Qwen3Model {
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
            let attention = SelfAttention { norm_heads: true, ..rotated };
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
