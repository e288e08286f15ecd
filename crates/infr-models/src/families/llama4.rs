//! Llama 4: rotated layers that see their chunk alternate with full layers without positions, and
//! dense layers with layers of experts whose weights multiply their input.

use infr_graph::{GateAct, Gating, PositionScale, ValueId};

use crate::hparams::MAX_BLOCKS;
use crate::prelude::*;

/// The family.
pub(crate) struct Llama4;

struct Llama4Model {
    info: ModelInfo,
    common: Common,
    rope: Rope,
    experts: Experts,
    /// Which layers see a chunk only.
    chunked: Vec<bool>,
    /// Every so many layers has experts.
    step: u32,
}

impl Family for Llama4 {
    fn archs(&self) -> &'static [&'static str] {
        &["llama4"]
    }

    fn parse(&self, gguf: &Gguf) -> Result<Box<dyn Model>, ModelError> {
        let h = Hparams::new(gguf.metadata())?;
        let common = Common::parse(&h)?;
        let rope = Rope::parse(&h, &common, RopeStyle::Interleaved)?;
        let info = common.info(&h, gguf, sampling::LLAMA)?;
        const WINDOW: &str = "attention.sliding_window";
        if h.u32(WINDOW, 0..=u32::MAX)? == Some(0) {
            return Err(h.wrong(WINDOW, 0, "attention without chunks is not supported"));
        }
        let experts = Experts::parse(&h, |_| None)?;
        let experts = Experts {
            gating: Gating::SigmoidSelected,
            normalise: false,
            weights_first: true,
            ..experts
        };
        let chunked = h.window_layers(common.layers, NOPE_STEP)?;
        let step = h.require_u32("interleave_moe_layer_step", 1..=MAX_BLOCKS)?;
        Ok(Box::new(Llama4Model { info, common, rope, experts, chunked, step }))
    }

    fn tiny(&self, unit: u32) -> Vec<Recipe> {
        let recipe = Recipe::tiny("llama4", "llama4", unit)
            .key(".block_count", 8u32)
            .context(4096, 5e5)
            .experts(4, 1, unit)
            .key(".interleave_moe_layer_step", 2u32)
            .with(&["output.weight"]);
        vec![recipe]
    }
}

impl Model for Llama4Model {
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
            let h = norm::rms(&mut net, x, "attn_norm")?;
            let o = self.attention(&mut net, h, layer, &rotation)?;
            let o = attention::project(&mut net, o, c.embedding)?;
            x = net.b.add(x, o);
            let h = norm::rms(&mut net, x, "ffn_norm")?;
            let f = if (layer + 1).is_multiple_of(self.step) {
                let y = moe::moe(&mut net, h, &self.experts)?;
                let s = moe::shared(&mut net, h, self.experts.width, GateAct::Silu)?;
                net.b.add(y, s)
            } else {
                ffn::swiglu(&mut net, h, c.ffn(layer))?
            };
            x = net.b.add(x, f);
        }
        head::finish(&mut net, c, x, Head::default())?;
        net.finish()
    }
}

/// Every so many layers has no positions.
const NOPE_STEP: u32 = 4;
/// Positions of a chunk, and of a step of the queries' temperature.
const CHUNK: u32 = 8192;
/// The size with so many experts does not normalise queries and keys.
const EXPERTS_WITHOUT_NORM: u32 = 128;

impl Llama4Model {
    fn attention(
        &self,
        net: &mut Net<'_>,
        h: ValueId,
        layer: u32,
        rotation: &Rotation,
    ) -> Result<ValueId, ModelError> {
        let heads = self.common.heads(layer);
        let mut x = attention::qkv(net, h, heads)?;
        if (layer + 1).is_multiple_of(NOPE_STEP) {
            let spec = PositionScale { s: 0.1, offset: 1, period: CHUNK };
            let positions = net.positions();
            x.q = net.b.position_scale(x.q, positions, spec);
        } else {
            x = attention::rotate(net, x, heads, rotation);
            if self.experts.count != EXPERTS_WITHOUT_NORM {
                x.q = norm::heads_bare(net, x.q, heads.query);
                x.k = norm::heads_bare(net, x.k, heads.kv);
            }
        }
        let chunked = self.chunked[layer as usize];
        let reach = if chunked { Reach::Chunk(CHUNK) } else { Reach::Full };
        let cache = attention::cache(net, heads, reach);
        let scores = Scores::scaled(self.common.score_scale());
        Ok(attention::attend(net, cache, x, heads, scores))
    }
}
