//! BitNet (Ma et al., "The Era of 1-bit LLMs", 2024): ternary matrices, and norms on the heads' outputs
//! and inside the FFN. Microsoft's own files have the name `bitnet-b1.58` and a squared ReLU.

use infr_graph::GateAct;

use crate::prelude::*;

/// The family.
pub(crate) struct Bitnet;

struct BitnetModel {
    info: ModelInfo,
    common: Common,
    rope: Rope,
    act: GateAct,
}

impl Family for Bitnet {
    fn archs(&self) -> &'static [&'static str] {
        &["bitnet", "bitnet-b1.58"]
    }

    fn parse(&self, gguf: &Gguf) -> Result<Box<dyn Model>, ModelError> {
        let h = Hparams::new(gguf.metadata())?;
        let common = Common::parse(&h)?;
        let rope = Rope::parse(&h, &common, RopeStyle::Halves)?;
        let info = common.info(&h, gguf, sampling::OTHER)?;
        let act = match h.architecture() {
            "bitnet-b1.58" => GateAct::ReluSquared,
            _ => GateAct::Silu,
        };
        Ok(Box::new(BitnetModel { info, common, rope, act }))
    }

    fn tiny(&self, unit: u32) -> Vec<Recipe> {
        let scaled =
            Recipe::tiny("bitnet", "bitnet", unit).with(&["attn_q.scale", "ffn_down.scale"]);
        vec![scaled, Recipe::tiny("bitnet_b158", "bitnet-b1.58", unit).context(4096, 5e5)]
    }
}

impl Model for BitnetModel {
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
            let o = norm::rms(&mut net, o, "attn_sub_norm")?;
            let o = attention::project(&mut net, o, c.embedding)?;
            x = net.b.add(x, o);
            let h = norm::rms(&mut net, x, "ffn_norm")?;
            let gate = net.linear(h, "ffn_gate", c.ffn(layer))?;
            let up = net.linear(h, "ffn_up", c.ffn(layer))?;
            let y = net.b.gated(self.act, gate, up);
            let y = norm::rms(&mut net, y, "ffn_sub_norm")?;
            let y = net.linear(y, "ffn_down", c.embedding)?;
            x = net.b.add(x, y);
        }
        let head = Head { matrix: OutputMatrix::Tied, ..Head::default() };
        head::finish(&mut net, c, x, head)?;
        net.finish()
    }
}
