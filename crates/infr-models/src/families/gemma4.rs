//! Gemma 4: layers with a window and layers without differ in heads, head size and base; some layers
//! borrow another's cache; small models add an embedding per layer, large ones a branch of experts
//! beside the dense network.

use infr_graph::{GateAct, SliceSpec, StateId, ValueId};

use crate::hparams::{MAX_CONTEXT, MAX_HEAD_DIM, MAX_WIDTH};
use crate::prelude::*;
use crate::table::Need;

/// The family.
pub(crate) struct Gemma4;

struct Gemma4Model {
    info: ModelInfo,
    backbone: Backbone,
    /// Layers at the end that borrow an earlier layer's cache.
    shared_layers: u32,
    /// Width of a layer's own embedding; 0 for none.
    per_layer: u32,
}

/// What Gemma 4 and its diffusion sibling share.
pub(crate) struct Backbone {
    pub(crate) common: Common,
    /// Which layers have a window.
    windowed: Vec<bool>,
    /// Rows that a windowed layer sees.
    pub(crate) window: u32,
    /// Elements of a head in windowed layers.
    window_dim: u32,
    rope: Rope,
    window_rope: Rope,
    experts: Option<Experts>,
    pub(crate) softcap: Option<f32>,
}

impl Backbone {
    /// Reads the keys of both architectures.
    pub(crate) fn parse(h: &Hparams<'_>) -> Result<Backbone, ModelError> {
        const WINDOW_DIM: &str = "attention.key_length_swa";
        let common = Common::parse(h)?;
        if common.key_dim != common.value_dim {
            let allowed = format!("the key length of {} is needed", common.key_dim);
            return Err(h.wrong("attention.value_length", common.value_dim, allowed));
        }
        let window_dim = h.require_u32(WINDOW_DIM, 1..=MAX_HEAD_DIM)?;
        let value_dim = h.require_u32("attention.value_length_swa", 1..=MAX_HEAD_DIM)?;
        if value_dim != window_dim {
            let allowed = format!("the key length of {window_dim} is needed");
            return Err(h.wrong("attention.value_length_swa", value_dim, allowed));
        }
        if common.heads.iter().any(|&n| n == 0 || n * window_dim > MAX_WIDTH) {
            let allowed = format!("all heads together may have 1 to {MAX_WIDTH}");
            return Err(h.wrong(WINDOW_DIM, window_dim, allowed));
        }
        if let Some(layer) = common.kv_heads.iter().position(|&n| n == 0) {
            return Err(h.wrong("attention.head_count_kv", 0, format!("layer {layer} needs one")));
        }
        let rope = Rope::parse(h, &common, RopeStyle::Halves)?;
        const ROT: &str = "rope.dimension_count_swa";
        let n_rot = h.u32(ROT, 0..=window_dim)?.unwrap_or(rope.n_rot.min(window_dim));
        if n_rot % 2 != 0 {
            return Err(h.wrong(ROT, n_rot, "an even number is needed"));
        }
        let window_base = h.positive("rope.freq_base_swa")?.unwrap_or(10_000.0);
        let windowed = h
            .flags("attention.sliding_window_pattern", common.layers)?
            .ok_or_else(|| h.missing("attention.sliding_window_pattern"))?;
        let experts = match h.u32("expert_count", 0..=u32::MAX)?.unwrap_or(0) {
            0 => None,
            _ => Some(Experts { act: GateAct::Gelu, ..Experts::parse(h, |_| None)? }),
        };
        Ok(Backbone {
            windowed,
            window: h.require_u32("attention.sliding_window", 1..=MAX_CONTEXT)?,
            window_dim,
            window_rope: Rope { n_rot, ..rope.plain(window_base) },
            rope,
            experts,
            softcap: match h.f32("final_logit_softcapping")? {
                None => Some(30.0),
                Some(_) => h.factor("final_logit_softcapping")?,
            },
            common,
        })
    }

    /// Embedding rows times the root of their width.
    pub(crate) fn embed(&self, net: &mut Net<'_>) -> Result<ValueId, ModelError> {
        let x = embed::tokens(net, &self.common)?;
        Ok(net.b.scale(x, (self.common.embedding as f32).sqrt()))
    }

    fn heads(&self, layer: u32) -> Heads {
        let heads = self.common.heads(layer);
        match self.windowed[layer as usize] {
            true => Heads { key_dim: self.window_dim, value_dim: self.window_dim, ..heads },
            false => heads,
        }
    }

    /// Declares a layer's cache.
    pub(crate) fn cache(&self, net: &mut Net<'_>, layer: u32) -> StateId {
        let reach = match self.windowed[layer as usize] {
            true => Reach::Window(self.window),
            false => Reach::Full,
        };
        attention::cache(net, self.heads(layer), reach)
    }

    /// Attention of a layer with its residual: the layer writes its own rows when `own` says so.
    pub(crate) fn attention(
        &self,
        net: &mut Net<'_>,
        x: ValueId,
        layer: u32,
        cache: Cache,
    ) -> Result<ValueId, ModelError> {
        let heads = self.heads(layer);
        let rotation = match self.windowed[layer as usize] {
            true => Rotation { rope: self.window_rope, factors: None },
            false => {
                net.leave();
                let factors = self.rope.factors(net)?;
                net.enter(layer);
                Rotation { rope: self.rope, factors }
            }
        };
        let h = norm::rms(net, x, "attn_norm")?;
        let q = net.linear(h, "attn_q", heads.query * heads.key_dim)?;
        let q = norm::heads(net, q, "attn_q_norm", heads.query)?;
        let q = rotation.apply(net, q, heads.query);
        let state = match cache {
            Cache::Borrowed(state) => state,
            Cache::Own(state) => {
                let width = heads.kv * heads.key_dim;
                let raw = net.linear(h, "attn_k", width)?;
                let value =
                    net.matrix_opt("attn_v", self.common.embedding, width, Need::Optional)?;
                let value = value.map_or(raw, |w| net.b.linear(h, w));
                let k = norm::heads(net, raw, "attn_k_norm", heads.kv)?;
                let k = rotation.apply(net, k, heads.kv);
                let v = norm::heads_bare(net, value, heads.kv);
                net.b.kv_write(state, k, Some(v));
                state
            }
        };
        let o = attention::read(net, state, q, heads, Scores::scaled(1.0));
        let o = attention::project(net, o, self.common.embedding)?;
        let o = norm::rms(net, o, "post_attention_norm")?;
        Ok(net.b.add(x, o))
    }

    /// Dense network, and experts beside it where the layer has them, with their residual.
    pub(crate) fn ffn(
        &self,
        net: &mut Net<'_>,
        x: ValueId,
        layer: u32,
    ) -> Result<ValueId, ModelError> {
        let c = &self.common;
        let h = norm::rms(net, x, "ffn_norm")?;
        let mut f = ffn::gated(net, h, GateAct::Gelu, c.ffn(layer), "")?;
        if let Some(experts) = &self.experts {
            let dims = [c.embedding, experts.count];
            if net.has("ffn_gate_inp.weight", &dims) {
                let dense = norm::rms(net, f, "post_ffw_norm_1")?;
                let mixed = self.expert_branch(net, x, experts)?;
                f = net.b.add(dense, mixed);
            }
        }
        let f = norm::rms(net, f, "post_ffw_norm")?;
        Ok(net.b.add(x, f))
    }

    fn expert_branch(
        &self,
        net: &mut Net<'_>,
        x: ValueId,
        experts: &Experts,
    ) -> Result<ValueId, ModelError> {
        let e = self.common.embedding;
        let router = net.table("ffn_gate_inp", e, experts.count)?;
        let scale = net.vector("ffn_gate_inp.scale", e)?;
        let r = net.b.rms_norm(x, None, self.common.eps);
        let r = net.b.scale(r, (e as f32).sqrt().recip());
        let r = net.b.mul_weight(r, scale);
        let logits = net.b.linear(r, router);
        let h = norm::rms(net, x, "pre_ffw_norm_2")?;
        let y = moe::mixture(net, h, logits, experts)?;
        norm::rms(net, y, "post_ffw_norm_2")
    }

    /// The head of both architectures.
    pub(crate) fn head(&self) -> Head {
        Head { softcap: self.softcap, ..Head::default() }
    }
}

/// The cache that a layer attends to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Cache {
    /// Its own, which it writes first.
    Own(StateId),
    /// Another layer's.
    Borrowed(StateId),
}

impl Family for Gemma4 {
    fn archs(&self) -> &'static [&'static str] {
        &["gemma4"]
    }

    fn parse(&self, gguf: &Gguf) -> Result<Box<dyn Model>, ModelError> {
        let h = Hparams::new(gguf.metadata())?;
        let backbone = Backbone::parse(&h)?;
        let layers = backbone.common.layers;
        const SHARED: &str = "attention.shared_kv_layers";
        let shared_layers = h.u32(SHARED, 0..=layers)?.unwrap_or(0);
        let owners = layers - shared_layers;
        if shared_layers > 0 {
            let kinds = owners
                .checked_sub(2)
                .map(|n| (backbone.windowed[n as usize], backbone.windowed[n as usize + 1]));
            if kinds != Some((true, false)) {
                let allowed = "a windowed and a full layer must stand right before the borrowers";
                return Err(h.wrong(SHARED, shared_layers, allowed));
            }
        }
        let width = MAX_WIDTH / layers;
        let per_layer = h.require_u32("embedding_length_per_layer_input", 0..=width)?;
        let info = backbone.common.info(&h, gguf, sampling::GEMMA)?;
        Ok(Box::new(Gemma4Model { info, backbone, shared_layers, per_layer }))
    }

    fn tiny(&self, unit: u32) -> Vec<Recipe> {
        let small =
            tiny_backbone("gemma4_e2b", "gemma4", unit, &[true, true, true, false, true, false])
                .key(".attention.shared_kv_layers", 2u32)
                .key(".embedding_length_per_layer_input", unit)
                .key(".final_logit_softcapping", 20.0f32);
        let moe = tiny_backbone("gemma4_moe", "gemma4", unit, &[true, true, false, true])
            .experts(8, 2, unit)
            .with(&["ffn_gate_inp.weight", "ffn_gate_up_exps.weight", "ffn_down_exps.scale"]);
        let dense = tiny_backbone("gemma4", "gemma4", unit, &[true, true, false, true]);
        vec![dense, small, moe]
    }
}

/// Keys and tensors that all tiny models of the backbone share.
pub(crate) fn tiny_backbone(
    name: &str,
    arch: &'static str,
    unit: u32,
    windowed: &[bool],
) -> Recipe {
    let kv_heads: Vec<u32> = windowed.iter().map(|&w| if w { 2 } else { 1 }).collect();
    let mut recipe = Recipe::tiny(name, arch, unit)
        .key(".block_count", windowed.len() as u32)
        .attention(4, 2, unit / 2)
        .key(".attention.head_count_kv", kv_heads)
        .key(".attention.key_length_swa", unit / 4)
        .key(".attention.value_length_swa", unit / 4)
        .key(".rope.dimension_count_swa", unit / 4)
        .context(4096, 1e6)
        .key(".rope.freq_base_swa", 1e4f32)
        .key(".attention.sliding_window", 5u32)
        .key(".attention.sliding_window_pattern", windowed.to_vec())
        .key(".attention.shared_kv_layers", 0u32)
        .key(".embedding_length_per_layer_input", 0u32)
        .with(&["rope_freqs.weight", "attn_v.weight", "layer_output_scale.weight"])
        .spread(0.15)
        .gain(0.3);
    for (layer, _) in windowed.iter().enumerate().filter(|(_, w)| !**w) {
        recipe = recipe.lacking(format!("blk.{layer}.attn_v.weight"));
    }
    recipe
}

impl Model for Gemma4Model {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn build(
        &self,
        tensors: &dyn TensorTable,
        options: &BuildOptions,
    ) -> Result<Program, ModelError> {
        let (b, c) = (&self.backbone, &self.backbone.common);
        let mut net = Net::new(tensors, options, c.eps)?;
        let mut x = b.embed(&mut net)?;
        let per_layer = match self.per_layer {
            0 => None,
            _ => Some(self.per_layer_inputs(&mut net, x)?),
        };
        let owners = c.layers - self.shared_layers;
        let mut caches: Vec<StateId> = Vec::new();
        for layer in 0..c.layers {
            net.enter(layer);
            let cache = if layer < owners {
                caches.push(b.cache(&mut net, layer));
                Cache::Own(caches[layer as usize])
            } else {
                let lender = if b.windowed[layer as usize] { owners - 2 } else { owners - 1 };
                Cache::Borrowed(caches[lender as usize])
            };
            x = b.attention(&mut net, x, layer, cache)?;
            x = b.ffn(&mut net, x, layer)?;
            if let Some(inputs) = per_layer {
                x = self.add_per_layer(&mut net, x, inputs, layer)?;
            }
            if let Some(scale) = net.vector_opt("layer_output_scale.weight", 1)? {
                x = net.b.mul_weight(x, scale);
            }
        }
        head::finish(&mut net, c, x, b.head())?;
        net.finish()
    }
}

impl Gemma4Model {
    /// Every layer's own embedding of the token, one after another: the table's rows and a projection
    /// of the model's embedding, in equal parts.
    fn per_layer_inputs(&self, net: &mut Net<'_>, x: ValueId) -> Result<ValueId, ModelError> {
        let c = &self.backbone.common;
        let width = self.per_layer * c.layers;
        let table = net.table("per_layer_token_embd", width, c.vocab)?;
        let tokens = net.tokens();
        let t = net.b.embed(tokens, table);
        let t = net.b.scale(t, (self.per_layer as f32).sqrt());
        let m = net.linear(x, "per_layer_model_proj", width)?;
        let m = net.b.scale(m, (c.embedding as f32).sqrt().recip());
        let m = norm::heads(net, m, "per_layer_proj_norm", c.layers)?;
        let sum = net.b.add(m, t);
        Ok(net.b.scale(sum, std::f32::consts::FRAC_1_SQRT_2))
    }

    fn add_per_layer(
        &self,
        net: &mut Net<'_>,
        x: ValueId,
        inputs: ValueId,
        layer: u32,
    ) -> Result<ValueId, ModelError> {
        let len = self.per_layer;
        let own = net.b.slice(inputs, SliceSpec { groups: 1, start: layer * len, len });
        let gate = net.linear(x, "inp_gate", len)?;
        let y = net.b.gated(GateAct::Gelu, gate, own);
        let y = net.linear(y, "proj", self.backbone.common.embedding)?;
        let y = norm::rms(net, y, "post_norm")?;
        Ok(net.b.add(x, y))
    }
}
