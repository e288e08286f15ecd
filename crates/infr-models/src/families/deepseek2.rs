//! DeepSeek V2, V3 and relatives: multi-head latent attention (DeepSeek-AI, "DeepSeek-V2", 2024), dense
//! layers first, then experts in groups with a shared expert.
//!
//! Newer files hold the two halves of the key/value projection apart, one matrix per head, so that
//! attention runs over the latent rows themselves: one KV head whose values are the first part of its
//! keys. Older files hold them together, and keys and values of all heads are made and cached.

use infr_graph::{
    AttnSpec, Gating, PositionScale, SliceSpec, StateKind, ValueId, WeightId, WeightRole,
};

use crate::hparams::{MAX_BLOCKS, MAX_CONTEXT, MAX_HEAD_DIM, WIDTH};
use crate::prelude::*;
use crate::rope::yarn_magnitude;
use crate::table::Need;

/// The family.
pub(crate) struct Deepseek2;

struct Deepseek2Model {
    info: ModelInfo,
    common: Common,
    rope: Rope,
    latent: Latent,
    experts: Experts,
    /// Width of the shared expert.
    shared: u32,
    dense_layers: u32,
    score_scale: f32,
    temperature: Option<PositionScale>,
}

/// Sizes of the latent attention.
#[derive(Debug, Clone, Copy)]
struct Latent {
    /// Rank of the queries' projection; `None` projects at once.
    q_rank: Option<u32>,
    /// Width of the latent row (R).
    rank: u32,
    /// Elements of a head's query and key that are not rotated.
    nope: u32,
    /// Elements of a head's value.
    value: u32,
    /// Whether attention runs over the latent rows.
    absorbed: bool,
}

impl Family for Deepseek2 {
    fn archs(&self) -> &'static [&'static str] {
        &["deepseek2"]
    }

    fn parse(&self, gguf: &Gguf) -> Result<Box<dyn Model>, ModelError> {
        let h = Hparams::new(gguf.metadata())?;
        let common = Common::parse(&h)?;
        let rope = Rope::parse(&h, &common, RopeStyle::Interleaved)?;
        let latent = Latent::parse(&h, &common, &rope)?;
        let (rope, mu) = stretch(&h, rope)?;
        // GLM-4.7-Flash files leave the gating open.
        let flash = matches!(common.layers + common.draft_layers, 47 | 48);
        let default = match flash && common.vocab == 154_880 {
            true => Gating::Sigmoid,
            false => Gating::Softmax,
        };
        let experts = Experts::parse(&h, |_| None)?.with_keys(&h)?;
        let experts = Experts { gating: moe::gating(&h, Some(default))?, ..experts };
        let period = h.u32("attention.temperature_length", 1..=MAX_CONTEXT)?;
        let temperature = h.factor("attention.temperature_scale")?.map(|s| PositionScale {
            s,
            offset: 0,
            period: period.unwrap_or(rope.original_context),
        });
        let head = (latent.nope + rope.n_rot) as f32;
        Ok(Box::new(Deepseek2Model {
            info: common.info(&h, gguf, sampling::OTHER)?,
            latent,
            experts,
            shared: h.require_u32("expert_shared_count", 0..=64)? * experts.width,
            dense_layers: h.u32("leading_dense_block_count", 0..=MAX_BLOCKS)?.unwrap_or(0),
            score_scale: mu * mu / head.sqrt(),
            temperature,
            common,
            rope,
        }))
    }

    fn tiny(&self, unit: u32) -> Vec<Recipe> {
        let (dim, rank) = (unit / 4, unit);
        let plain = |name| {
            Recipe::tiny(name, "deepseek2", unit)
                .key(".attention.q_lora_rank", unit)
                .key(".attention.kv_lora_rank", rank)
                .key(".rope.dimension_count", dim)
                .key(".rope.freq_base", 1e4f32)
                .key(".rope.scaling.type", "yarn")
                .key(".rope.scaling.factor", 8.0f32)
                .key(".rope.scaling.original_context_length", 64u32)
                .key(".leading_dense_block_count", 1u32)
                .experts(8, 3, unit)
                .key(".expert_shared_count", 1u32)
                .key(".expert_weights_scale", 2.5f32)
                .key(".expert_weights_norm", true)
                .key(".expert_gating_func", 2u32)
                .key(".expert_group_count", 4u32)
                .key(".expert_group_used_count", 2u32)
                .with(&["output.weight", "exp_probs_b.bias"])
        };
        let absorbed = plain("deepseek2")
            .key(".attention.head_count_kv", 1u32)
            .key(".attention.key_length", rank + dim)
            .key(".attention.value_length", rank)
            .key(".attention.key_length_mla", 2 * dim)
            .key(".attention.value_length_mla", dim)
            .key(".rope.scaling.yarn_log_multiplier", 0.0707f32);
        let legacy = plain("deepseek2_legacy")
            .key(".attention.head_count_kv", 4u32)
            .key(".attention.key_length", 2 * dim)
            .key(".attention.value_length", dim);
        vec![absorbed, legacy]
    }
}

impl Latent {
    fn parse(h: &Hparams<'_>, common: &Common, rope: &Rope) -> Result<Latent, ModelError> {
        let keys = h.u32("attention.key_length_mla", 1..=MAX_HEAD_DIM)?;
        let values = h.u32("attention.value_length_mla", 1..=MAX_HEAD_DIM)?;
        let (suffix, key, value, absorbed) = match (keys, values) {
            (Some(k), Some(v)) => ("attention.key_length_mla", k, v, true),
            _ => ("attention.key_length", common.key_dim, common.value_dim, false),
        };
        if key <= rope.n_rot {
            let allowed = format!("more than the {} rotated elements are needed", rope.n_rot);
            return Err(h.wrong(suffix, key, allowed));
        }
        // The lite sizes, known by their number of layers, project queries at once.
        let q_rank = match common.layers {
            26 | 27 => None,
            _ => Some(h.require_u32("attention.q_lora_rank", WIDTH)?),
        };
        let rank = h.require_u32("attention.kv_lora_rank", 1..=MAX_HEAD_DIM)?;
        Ok(Latent { q_rank, rank, nope: key - rope.n_rot, value, absorbed })
    }
}

/// YaRN as this family has it: the rotation, and the factor whose square multiplies the scores.
fn stretch(h: &Hparams<'_>, rope: Rope) -> Result<(Rope, f32), ModelError> {
    if rope.yarn.is_none() {
        return Ok((rope, 1.0));
    }
    let attn_factor = h.positive("rope.scaling.attn_factor")?.unwrap_or(1.0);
    let stretched = rope.freq_scale.recip();
    let (mu, magnitude) = match h.factor("rope.scaling.yarn_log_multiplier")? {
        // The file holds a tenth of the multiplier; YaRN's own magnitude cancels.
        Some(k) => (yarn_magnitude(10.0 * k, stretched), 1.0),
        None => (yarn_magnitude(1.0, stretched), yarn_magnitude(1.0, stretched)),
    };
    Ok((Rope { magnitude: magnitude * attn_factor, ..rope }, mu * attn_factor))
}

impl Model for Deepseek2Model {
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
            let h = norm::rms(&mut net, x, "attn_norm")?;
            let o = self.attention(&mut net, h, c.heads[layer as usize])?;
            let o = attention::project(&mut net, o, c.embedding)?;
            x = net.b.add(x, o);
            let h = norm::rms(&mut net, x, "ffn_norm")?;
            let f = if layer < self.dense_layers {
                ffn::swiglu(&mut net, h, c.ffn(layer))?
            } else {
                moe::with_shared(&mut net, h, &self.experts, self.shared)?
            };
            x = net.b.add(x, f);
        }
        head::finish(&mut net, c, x, Head::default())?;
        net.finish()
    }
}

impl Deepseek2Model {
    fn attention(&self, net: &mut Net<'_>, h: ValueId, heads: u32) -> Result<ValueId, ModelError> {
        let Latent { rank, nope, .. } = self.latent;
        let n_rot = self.rope.n_rot;
        let q = self.queries(net, h, heads)?;
        let kv = net.linear(h, "attn_kv_a_mqa", rank + n_rot)?;
        let latent = net.b.slice(kv, SliceSpec { groups: 1, start: 0, len: rank });
        let latent = norm::rms(net, latent, "attn_kv_a_norm")?;
        let k_pe = net.b.slice(kv, SliceSpec { groups: 1, start: rank, len: n_rot });
        let rotation = Rotation { rope: self.rope, factors: None };
        let k_pe = rotation.apply(net, k_pe, 1);
        let rotation = Rotation { rope: Rope { start: nope, ..self.rope }, factors: None };
        let mut q = rotation.apply(net, q, heads);
        if let Some(spec) = self.temperature {
            let positions = net.positions();
            q = net.b.position_scale(q, positions, spec);
        }
        match self.latent.absorbed {
            true => self.over_latents(net, q, [latent, k_pe], heads),
            false => self.over_heads(net, q, [latent, k_pe], heads),
        }
    }

    fn queries(&self, net: &mut Net<'_>, h: ValueId, heads: u32) -> Result<ValueId, ModelError> {
        let width = heads * (self.latent.nope + self.rope.n_rot);
        let Some(rank) = self.latent.q_rank else { return net.linear(h, "attn_q", width) };
        let a = net.linear(h, "attn_q_a", rank)?;
        let a = norm::rms(net, a, "attn_q_a_norm")?;
        net.linear(a, "attn_q_b", width)
    }

    /// Attention over latent rows: the keys' projection moves to the queries, the values' behind the
    /// sum.
    fn over_latents(
        &self,
        net: &mut Net<'_>,
        q: ValueId,
        [latent, k_pe]: [ValueId; 2],
        heads: u32,
    ) -> Result<ValueId, ModelError> {
        let Latent { rank, nope, value, .. } = self.latent;
        let n_rot = self.rope.n_rot;
        let part = |start, len| SliceSpec { groups: heads, start, len };
        let q_nope = net.b.slice(q, part(0, nope));
        let q_pe = net.b.slice(q, part(nope, n_rot));
        let keys = per_head(net, "attn_k_b", [nope, rank, heads])?;
        let q_latent = net.b.head_linear(q_nope, keys, heads);
        let q = net.b.concat(q_latent, q_pe, heads);
        let dtype = net.options().cache_k;
        let state = net.state(StateKind::Paged {
            key_width: rank + n_rot,
            value_width: 0,
            dtype,
            reach: Reach::Full,
        });
        let row = net.b.concat(latent, k_pe, 1);
        net.b.kv_write(state, row, None);
        let spec = AttnSpec {
            heads,
            kv_heads: 1,
            key_dim: rank + n_rot,
            value_dim: rank,
            scale: self.score_scale,
            softcap: None,
            sinks: false,
        };
        let o = net.b.attention(state, q, spec, None);
        let values = per_head(net, "attn_v_b", [rank, value, heads])?;
        Ok(net.b.head_linear(o, values, heads))
    }

    /// Attention over keys and values of every head.
    fn over_heads(
        &self,
        net: &mut Net<'_>,
        q: ValueId,
        [latent, k_pe]: [ValueId; 2],
        heads: u32,
    ) -> Result<ValueId, ModelError> {
        let Latent { nope, value, .. } = self.latent;
        let kv = net.linear(latent, "attn_kv_b", heads * (nope + value))?;
        let k_nope = net.b.slice(kv, SliceSpec { groups: heads, start: 0, len: nope });
        let v = net.b.slice(kv, SliceSpec { groups: heads, start: nope, len: value });
        let k_pe = repeat(net, k_pe, heads);
        let k = net.b.concat(k_nope, k_pe, heads);
        let dims = nope + self.rope.n_rot;
        let heads = Heads { query: heads, kv: heads, key_dim: dims, value_dim: value };
        let cache = attention::cache(net, heads, Reach::Full);
        let qkv = attention::Qkv { q, k, v };
        Ok(attention::attend(net, cache, qkv, heads, Scores::scaled(self.score_scale)))
    }
}

/// A matrix per head.
fn per_head(net: &mut Net<'_>, name: &str, dims: [u32; 3]) -> Result<WeightId, ModelError> {
    net.weights(name, &dims, WeightRole::Dense, Need::Required)?.ok_or_else(|| {
        ModelError::MissingTensor { name: format!("{name}.weight"), wanted: format!("{dims:?}") }
    })
}

/// `x` written `times` times one after another.
fn repeat(net: &mut Net<'_>, x: ValueId, times: u32) -> ValueId {
    let (mut doubled, mut left) = (x, times);
    let mut out = None;
    loop {
        if left & 1 == 1 {
            out = Some(match out {
                Some(sum) => net.b.concat(sum, doubled, 1),
                None => doubled,
            });
        }
        left >>= 1;
        if left == 0 {
            return out.unwrap_or(x);
        }
        doubled = net.b.concat(doubled, doubled, 1);
    }
}
