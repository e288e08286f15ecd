//! LFM2, dense and with experts: short gated convolutions with attention in some layers.

use infr_graph::{ConvSpec, SliceSpec, StateKind, ValueId};

use crate::hparams::MAX_BLOCKS;
use crate::prelude::*;

/// The family.
pub(crate) struct Lfm2;

struct Lfm2Model {
    info: ModelInfo,
    common: Common,
    rope: Rope,
    /// Taps of the convolutions.
    taps: u32,
    experts: Option<Experts>,
    dense_layers: u32,
}

impl Family for Lfm2 {
    fn archs(&self) -> &'static [&'static str] {
        &["lfm2", "lfm2moe"]
    }

    fn parse(&self, gguf: &Gguf) -> Result<Box<dyn Model>, ModelError> {
        let h = Hparams::new(gguf.metadata())?;
        let common = Common::parse_mixed(&h)?;
        let rope = Rope::parse(&h, &common, RopeStyle::Halves)?;
        let info = common.info(&h, gguf, sampling::OTHER)?;
        let experts = match h.architecture() {
            "lfm2moe" => {
                let experts = Experts::parse(&h, |_| None)?;
                Some(Experts { gating: moe::gating(&h, None)?, ..experts })
            }
            _ => None,
        };
        let taps = h.require_u32("shortconv.l_cache", 2..=64)?;
        let dense_layers = h.u32("leading_dense_block_count", 0..=MAX_BLOCKS)?.unwrap_or(0);
        Ok(Box::new(Lfm2Model { info, common, rope, taps, experts, dense_layers }))
    }

    fn tiny(&self, unit: u32) -> Vec<Recipe> {
        let short = |name, arch| {
            Recipe::tiny(name, arch, unit)
                .context(4096, 1e6)
                .key(".attention.head_count_kv", vec![0u32, 2, 0, 2])
                .key(".shortconv.l_cache", 3u32)
        };
        let moe = short("lfm2moe", "lfm2moe")
            .experts(8, 2, unit)
            .key(".leading_dense_block_count", 1u32)
            .key(".expert_gating_func", 2u32)
            .with(&["exp_probs_b.bias"]);
        vec![short("lfm2", "lfm2"), moe]
    }
}

impl Model for Lfm2Model {
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
            let h = norm::rms(&mut net, x, "attn_norm")?;
            let y = if heads.kv == 0 {
                self.convolution(&mut net, h)?
            } else {
                let rotated = SelfAttention::new(heads, rotation, c.score_scale());
                let o = SelfAttention { norm_heads: true, ..rotated }.run(&mut net, h)?;
                attention::project(&mut net, o, c.embedding)?
            };
            x = net.b.add(x, y);
            let h = norm::rms(&mut net, x, "ffn_norm")?;
            let f = match &self.experts {
                Some(experts) if layer >= self.dense_layers => moe::moe(&mut net, h, experts)?,
                _ => ffn::swiglu(&mut net, h, c.ffn(layer))?,
            };
            x = net.b.add(x, f);
        }
        head::finish(&mut net, c, x, Head { norm: "token_embd_norm", ..Head::default() })?;
        net.finish()
    }
}

impl Lfm2Model {
    /// `out_proj·(c ⊙ conv(b ⊙ u))` with `b`, `c` and `u` projected from the row.
    fn convolution(&self, net: &mut Net<'_>, h: ValueId) -> Result<ValueId, ModelError> {
        let e = self.common.embedding;
        let all = net.linear(h, "shortconv.in_proj", 3 * e)?;
        let mut part = |k| net.b.slice(all, SliceSpec { groups: 1, start: k * e, len: e });
        let (b, c, u) = (part(0), part(1), part(2));
        let s = net.b.mul(b, u);
        let spec = ConvSpec { channels: e, taps: self.taps };
        let filter = net.filter("shortconv.conv.weight", self.taps, e)?;
        let state = net.state(StateKind::Slot { width: (self.taps - 1) * e });
        let y = net.b.conv1d(state, s, filter, spec);
        let y = net.b.mul(c, y);
        net.linear(y, "shortconv.out_proj", e)
    }
}
