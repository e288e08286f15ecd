//! Qwen 2 and 2.5, dense and with experts: biased projections; the mixture has a gated shared expert.

use crate::prelude::*;

/// The family.
pub(crate) struct Qwen2;

struct Qwen2Model {
    info: ModelInfo,
    common: Common,
    rope: Rope,
    /// Experts with the shared expert's width.
    experts: Option<(Experts, u32)>,
}

impl Family for Qwen2 {
    fn archs(&self) -> &'static [&'static str] {
        &["qwen2", "qwen2moe"]
    }

    fn parse(&self, gguf: &Gguf) -> Result<Box<dyn Model>, ModelError> {
        let h = Hparams::new(gguf.metadata())?;
        let common = Common::parse(&h)?;
        let rope = Rope::parse(&h, &common, RopeStyle::Halves)?;
        let info = common.info(&h, gguf, sampling::QWEN2)?;
        let experts = match h.architecture() {
            "qwen2moe" => {
                let ffn = common.ffn(0);
                // Older files give the width of all chosen experts together.
                let experts = Experts::parse(&h, |used| Some(ffn / used))?;
                let experts = Experts { normalise: false, ..experts };
                Some((experts, moe::shared_width(&h, ffn)?))
            }
            _ => None,
        };
        Ok(Box::new(Qwen2Model { info, common, rope, experts }))
    }

    fn tiny(&self, unit: u32) -> Vec<Recipe> {
        let biased = |name, arch| {
            Recipe::tiny(name, arch, unit).context(4096, 1e6).with(&[
                "attn_q.bias",
                "attn_k.bias",
                "attn_v.bias",
                "output.weight",
            ])
        };
        let moe = biased("qwen2moe", "qwen2moe")
            .experts(8, 2, unit)
            .key(".expert_shared_feed_forward_length", unit);
        vec![biased("qwen2", "qwen2"), moe]
    }
}

impl Model for Qwen2Model {
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
            let attention = SelfAttention::new(c.heads(layer), rotation, c.score_scale());
            let h = norm::rms(&mut net, x, "attn_norm")?;
            let o = attention.run(&mut net, h)?;
            let o = attention::project(&mut net, o, c.embedding)?;
            x = net.b.add(x, o);
            let h = norm::rms(&mut net, x, "ffn_norm")?;
            let f = match &self.experts {
                Some((experts, shared)) => {
                    let y = moe::moe(&mut net, h, experts)?;
                    let s = moe::shared_gated(&mut net, h, *shared)?;
                    net.b.add(y, s)
                }
                None => ffn::swiglu(&mut net, h, c.ffn(layer))?,
            };
            x = net.b.add(x, f);
        }
        head::finish(&mut net, c, x, Head::default())?;
        net.finish()
    }
}
