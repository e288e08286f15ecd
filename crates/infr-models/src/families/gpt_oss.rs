//! gpt-oss: a window in every other layer, attention sinks, biases everywhere, experts with a clamped
//! activation.

use infr_graph::{GateAct, Gating};

use crate::hparams::MAX_CONTEXT;
use crate::prelude::*;

/// The family.
pub(crate) struct GptOss;

struct GptOssModel {
    info: ModelInfo,
    common: Common,
    rope: Rope,
    experts: Experts,
    /// What each layer sees.
    reach: Vec<Reach>,
}

impl Family for GptOss {
    fn archs(&self) -> &'static [&'static str] {
        &["gpt-oss"]
    }

    fn parse(&self, gguf: &Gguf) -> Result<Box<dyn Model>, ModelError> {
        let h = Hparams::new(gguf.metadata())?;
        let common = Common::parse(&h)?;
        let rope = Rope::parse(&h, &common, RopeStyle::Halves)?;
        let info = common.info(&h, gguf, sampling::OTHER)?;
        let window = h.require_u32("attention.sliding_window", 1..=MAX_CONTEXT)?;
        let reach = h
            .window_layers(common.layers, 2)?
            .into_iter()
            .map(|windowed| if windowed { Reach::Window(window) } else { Reach::Full })
            .collect();
        let experts = Experts {
            act: GateAct::OaiClamped,
            gating: Gating::SoftmaxSelected,
            normalise: false,
            ..Experts::parse(&h, |_| None)?
        };
        Ok(Box::new(GptOssModel { info, common, rope, experts, reach }))
    }

    fn tiny(&self, unit: u32) -> Vec<Recipe> {
        let recipe = Recipe::tiny("gpt_oss", "gpt-oss", unit)
            .key(".attention.sliding_window", 6u32)
            .context(4096, 150_000.0)
            .key(".rope.scaling.type", "yarn")
            .key(".rope.scaling.factor", 4.0f32)
            .key(".rope.scaling.original_context_length", 64u32)
            .experts(8, 2, unit)
            .with(BIASES);
        vec![recipe]
    }
}

impl Model for GptOssModel {
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
            let sinks = Some(net.vector("attn_sinks.weight", heads.query)?);
            let scores = Scores { scale: c.score_scale(), softcap: None, sinks };
            let rotated = SelfAttention::new(heads, rotation, c.score_scale());
            let attention = SelfAttention { reach: self.reach[layer as usize], scores, ..rotated };
            let h = norm::rms(&mut net, x, "attn_norm")?;
            let o = attention.run(&mut net, h)?;
            let o = attention::project(&mut net, o, c.embedding)?;
            x = net.b.add(x, o);
            let h = norm::rms(&mut net, x, "post_attention_norm")?;
            let f = moe::moe(&mut net, h, &self.experts)?;
            x = net.b.add(x, f);
        }
        let head = Head { matrix: OutputMatrix::Own, ..Head::default() };
        head::finish(&mut net, c, x, head)?;
        net.finish()
    }
}

/// Every projection has a bias.
pub(crate) const BIASES: &[&str] = &[
    "attn_q.bias",
    "attn_k.bias",
    "attn_v.bias",
    "attn_output.bias",
    "ffn_gate_inp.bias",
    "ffn_gate_exps.bias",
    "ffn_up_exps.bias",
    "ffn_down_exps.bias",
];
