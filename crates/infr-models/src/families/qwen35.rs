//! Qwen 3.5 and 3.6 (`qwen35`, `qwen35moe`) and Qwen3-Next: hybrids of gated DeltaNet layers and, in
//! every fourth place, attention whose output is gated.
//!
//! `attn_q` holds, head by head, the query and then the gate of the head's output. Queries and keys are
//! rotated over a part of the head; for text the M-RoPE of these models is the ordinary rotation.

use infr_graph::{BatchField, GateAct, HeadMap, Op, Output, Phase, SliceSpec, ValueId, WeightRole};

use crate::blocks::attention::Qkv;
use crate::blocks::delta_net::{DeltaNet, Projections};
use crate::hparams::MAX_BLOCKS;
use crate::prelude::*;
use crate::table::Need;

/// The family.
pub(crate) struct Qwen35;

struct Qwen35Model {
    info: ModelInfo,
    common: Common,
    rope: Rope,
    delta: DeltaNet,
    /// Which layers are DeltaNet layers.
    recurrent: Vec<bool>,
    /// Experts with the shared expert's width.
    experts: Option<(Experts, u32)>,
    layout: Layout,
}

/// How the file lays out the DeltaNet projections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// A tensor for each.
    Separate,
    /// Qwen3-Next: `ssm_ba`, and `ssm_in` in older files, hold several, key head by key head.
    ByKeyHead,
}

impl Family for Qwen35 {
    fn archs(&self) -> &'static [&'static str] {
        &["qwen35", "qwen35moe", "qwen3next"]
    }

    fn parse(&self, gguf: &Gguf) -> Result<Box<dyn Model>, ModelError> {
        let h = Hparams::new(gguf.metadata())?;
        let common = Common::parse(&h)?;
        let rope = Rope::parse(&h, &common, RopeStyle::Halves)?;
        let mut info = common.info(&h, gguf, sampling::OTHER)?;
        info.draft = common.draft_layers > 0;
        let layout = match h.architecture() {
            "qwen3next" => Layout::ByKeyHead,
            _ => Layout::Separate,
        };
        let map = match layout {
            Layout::Separate => HeadMap::Modulo,
            Layout::ByKeyHead => HeadMap::Divide,
        };
        let blocks = common.layers + common.draft_layers;
        let recurrent = match h.flags("attention.recurrent_layers", blocks)? {
            Some(flags) => flags,
            None => {
                let interval = h.u32("full_attention_interval", 1..=MAX_BLOCKS)?.unwrap_or(4);
                (0..blocks).map(|i| (i + 1) % interval != 0).collect()
            }
        };
        let experts = match h.architecture() {
            "qwen35" => None,
            _ => {
                let ffn = common.ffn(0);
                Some((Experts::parse(&h, |_| None)?, moe::shared_width(&h, ffn)?))
            }
        };
        let delta = DeltaNet::parse(&h, map)?;
        Ok(Box::new(Qwen35Model { info, common, rope, delta, recurrent, experts, layout }))
    }

    fn tiny(&self, unit: u32) -> Vec<Recipe> {
        let hybrid = |name, arch| {
            Recipe::tiny(name, arch, unit)
                .key(".block_count", 8u32)
                .attention(4, 2, unit / 2)
                .context(4096, 1e6)
                // The norm behind the delta rule would otherwise blow up the sign of a product of query
                // and key that is about zero, and roundings with it.
                .key(".attention.layer_norm_rms_epsilon", 1e-2f32)
                .key(".rope.dimension_count", unit / 4)
                .key(".ssm.conv_kernel", 4u32)
                .key(".ssm.inner_size", unit)
                .key(".ssm.state_size", unit / 4)
                .key(".ssm.time_step_rank", 4u32)
                .key(".ssm.group_count", 2u32)
                .key(".full_attention_interval", 4u32)
                .key(".rope.dimension_sections", vec![3i32, 3, 2, 0])
                .with(&["output.weight"])
        };
        let moe = |name, arch| {
            hybrid(name, arch).experts(8, 2, unit).key(".expert_shared_feed_forward_length", unit)
        };
        let mtp = hybrid("qwen35_mtp", "qwen35")
            .key(".block_count", 9u32)
            .key(".nextn_predict_layers", 1u32)
            .with(&["nextn.shared_head_norm.weight"]);
        vec![
            hybrid("qwen35", "qwen35"),
            mtp,
            moe("qwen35moe", "qwen35moe"),
            moe("qwen3next", "qwen3next").with(&["attn_qkv.weight"]),
            moe("qwen3next_legacy", "qwen3next"),
        ]
    }
}

impl Model for Qwen35Model {
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
        let mut x = embed::tokens(&mut net, c)?;
        for layer in 0..c.layers {
            net.enter(layer);
            x = match self.recurrent[layer as usize] {
                true => self.delta_layer(&mut net, x)?,
                false => self.attention_layer(&mut net, x, layer)?,
            };
        }
        head::finish(&mut net, c, x, Head::default())?;
        if options.draft && self.info.draft {
            self.draft(&mut net)?;
        }
        net.finish()
    }
}

impl Qwen35Model {
    fn delta_layer(&self, net: &mut Net<'_>, x: ValueId) -> Result<ValueId, ModelError> {
        let h = norm::rms(net, x, "attn_norm")?;
        let projections = match self.layout {
            Layout::Separate => Projections {
                qkv: net.linear(h, "attn_qkv", self.delta.channels())?,
                z: net.linear(h, "attn_gate", self.delta.value_width())?,
                beta: net.linear(h, "ssm_beta", self.delta.v_heads)?,
                alpha: net.linear(h, "ssm_alpha", self.delta.v_heads)?,
            },
            Layout::ByKeyHead => self.by_key_head(net, h)?,
        };
        let y = self.delta.mix(net, projections, self.common.embedding)?;
        let x = net.b.add(x, y);
        self.ffn(net, x, 0)
    }

    /// Projections whose rows stand key head by key head, put in the order of the others.
    fn by_key_head(&self, net: &mut Net<'_>, h: ValueId) -> Result<Projections, ModelError> {
        let d = &self.delta;
        let per_key = d.v_heads / d.k_heads;
        let part = |start, len| SliceSpec { groups: d.k_heads, start, len };
        let ba = net.linear(h, "ssm_ba", 2 * d.v_heads)?;
        let beta = net.b.slice(ba, part(0, per_key));
        let alpha = net.b.slice(ba, part(per_key, per_key));
        if net.has("attn_qkv.weight", &[self.common.embedding, d.channels()]) {
            let qkv = net.linear(h, "attn_qkv", d.channels())?;
            let z = net.linear(h, "attn_gate", d.value_width())?;
            return Ok(Projections { qkv, z, beta, alpha });
        }
        let all = net.linear(h, "ssm_in", d.channels() + d.value_width())?;
        let values = d.dim * per_key;
        let q = net.b.slice(all, part(0, d.dim));
        let k = net.b.slice(all, part(d.dim, d.dim));
        let v = net.b.slice(all, part(2 * d.dim, values));
        let z = net.b.slice(all, part(2 * d.dim + values, values));
        let qk = net.b.concat(q, k, 1);
        Ok(Projections { qkv: net.b.concat(qk, v, 1), z, beta, alpha })
    }

    fn attention_layer(
        &self,
        net: &mut Net<'_>,
        x: ValueId,
        layer: u32,
    ) -> Result<ValueId, ModelError> {
        let c = &self.common;
        let heads = c.heads(layer);
        let h = norm::rms(net, x, "attn_norm")?;
        let both = net.linear(h, "attn_q", 2 * heads.query * heads.key_dim)?;
        let part = |start| SliceSpec { groups: heads.query, start, len: heads.key_dim };
        let gate = net.b.slice(both, part(heads.key_dim));
        let qkv = Qkv {
            q: net.b.slice(both, part(0)),
            k: net.linear(h, "attn_k", heads.kv * heads.key_dim)?,
            v: net.linear(h, "attn_v", heads.kv * heads.value_dim)?,
        };
        let qkv = attention::norm_heads(net, qkv, heads)?;
        let rotation = Rotation { rope: self.rope, factors: None };
        let qkv = attention::rotate(net, qkv, heads, &rotation);
        let cache = attention::cache(net, heads, Reach::Full);
        let scores = Scores::scaled(c.score_scale());
        let o = attention::attend(net, cache, qkv, heads, scores);
        let o = net.b.gated(GateAct::Sigmoid, gate, o);
        let o = attention::project(net, o, c.embedding)?;
        let x = net.b.add(x, o);
        self.ffn(net, x, layer)
    }

    fn ffn(&self, net: &mut Net<'_>, x: ValueId, layer: u32) -> Result<ValueId, ModelError> {
        let h = norm::rms(net, x, "post_attention_norm")?;
        let f = match &self.experts {
            Some((experts, shared)) => {
                let y = moe::moe(net, h, experts)?;
                let s = moe::shared_gated(net, h, *shared)?;
                net.b.add(y, s)
            }
            None => ffn::swiglu(net, h, self.common.ffn(layer))?,
        };
        Ok(net.b.add(x, f))
    }

    /// The multi-token prediction block: row `r` is made of token `r` and the trunk's hidden row
    /// before it, which comes in as carried row 0 (zeros before the first token).
    fn draft(&self, net: &mut Net<'_>) -> Result<(), ModelError> {
        let c = &self.common;
        let (e, v) = (c.embedding, c.vocab);
        net.enter(c.layers);
        let own = net.weights("nextn.embed_tokens", &[e, v], WeightRole::Dense, Need::Optional)?;
        let table = match own {
            Some(table) => table,
            None => {
                net.leave();
                let table = embed::table(net, c)?;
                net.enter(c.layers);
                table
            }
        };
        let tokens = net.tokens();
        let embedded = net.b.embed(tokens, table);
        let carried = Op::Input(BatchField::Carried { index: 0, width: e });
        let hidden = net.b.node(carried, &[], &[], None)[0];
        let embedded = norm::rms(net, embedded, "nextn.enorm")?;
        let hidden = norm::rms(net, hidden, "nextn.hnorm")?;
        let both = net.b.concat(embedded, hidden, 1);
        let x = net.linear(both, "nextn.eh_proj", e)?;
        let x = self.attention_layer(net, x, c.layers)?;
        let x = net.b.gather_out(x);
        let own_head = net.matrix_opt("nextn.shared_head_head", e, v, Need::Optional)?;
        let hidden = match net.vector_opt("nextn.shared_head_norm.weight", e)? {
            Some(weight) => net.b.rms_norm(x, Some(weight), c.eps),
            None => {
                net.leave();
                norm::rms(net, x, "output_norm")?
            }
        };
        net.leave();
        net.b.output(Output::Hidden, hidden);
        let logits = match own_head {
            Some(matrix) => net.b.linear(hidden, matrix),
            None => head::logits(net, c, hidden, Head::default())?,
        };
        net.b.output(Output::Logits, logits);
        let tokens = net.b.sample(logits);
        net.b.output(Output::Tokens, tokens);
        net.end_graph(Phase::Draft);
        Ok(())
    }
}
