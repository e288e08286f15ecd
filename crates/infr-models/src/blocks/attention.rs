//! Multi-head attention over a paged cache.

use infr_graph::{
    AttnSpec, PositionScale, Reach, SliceSpec, StateId, StateKind, ValueId, WeightId,
};

use crate::blocks::norm;
use crate::error::ModelError;
use crate::net::Net;
use crate::rope::Rotation;
use crate::table::Need;

/// Heads of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Heads {
    /// Query heads.
    pub query: u32,
    /// Key/value heads.
    pub kv: u32,
    /// Elements of a query and key head.
    pub key_dim: u32,
    /// Elements of a value head.
    pub value_dim: u32,
}

/// Queries, keys and values of a layer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Qkv {
    /// Queries.
    pub q: ValueId,
    /// Keys.
    pub k: ValueId,
    /// Values.
    pub v: ValueId,
}

/// What is done with scores.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scores {
    /// Multiplies them.
    pub scale: f32,
    /// Bounds them.
    pub softcap: Option<f32>,
    /// One more logit per head.
    pub sinks: Option<WeightId>,
}

impl Scores {
    /// Scaled scores and nothing else.
    pub(crate) fn scaled(scale: f32) -> Scores {
        Scores { scale, softcap: None, sinks: None }
    }
}

/// The attention of one layer, as most families have it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SelfAttention {
    /// Its heads.
    pub heads: Heads,
    /// Whether queries and keys are normalised per head before the rotation.
    pub norm_heads: bool,
    /// How positions turn queries and keys; `None` where they do not.
    pub rotation: Option<Rotation>,
    /// Scales queries by their position, after the rotation.
    pub temperature: Option<PositionScale>,
    /// What a row sees.
    pub reach: Reach,
    /// What is done with scores.
    pub scores: Scores,
}

impl SelfAttention {
    /// Rotated heads that see everything before them.
    pub(crate) fn new(heads: Heads, rotation: Rotation, scale: f32) -> SelfAttention {
        SelfAttention {
            heads,
            norm_heads: false,
            rotation: Some(rotation),
            temperature: None,
            reach: Reach::Full,
            scores: Scores::scaled(scale),
        }
    }

    /// The heads' outputs for the normed rows `x`, before `attn_output`, over a cache of its own.
    pub(crate) fn run(&self, net: &mut Net<'_>, x: ValueId) -> Result<ValueId, ModelError> {
        let mut x = qkv(net, x, self.heads)?;
        if self.norm_heads {
            x = norm_heads(net, x, self.heads)?;
        }
        if let Some(rotation) = &self.rotation {
            x = rotate(net, x, self.heads, rotation);
        }
        if let Some(spec) = self.temperature {
            let positions = net.positions();
            x.q = net.b.position_scale(x.q, positions, spec);
        }
        let cache = cache(net, self.heads, self.reach);
        Ok(attend(net, cache, x, self.heads, self.scores))
    }
}

/// Projects `x` to queries, keys and values: `attn_q`, `attn_k`, `attn_v`, or the fused `attn_qkv`.
pub(crate) fn qkv(net: &mut Net<'_>, x: ValueId, heads: Heads) -> Result<Qkv, ModelError> {
    let widths =
        [heads.query * heads.key_dim, heads.kv * heads.key_dim, heads.kv * heads.value_dim];
    let inner = net.b.width(x);
    let fused = net.matrix_opt("attn_qkv", inner, widths.iter().sum(), Need::Optional)?;
    let Some(fused) = fused else {
        return Ok(Qkv {
            q: net.linear(x, "attn_q", widths[0])?,
            k: net.linear(x, "attn_k", widths[1])?,
            v: net.linear(x, "attn_v", widths[2])?,
        });
    };
    let all = net.b.linear(x, fused);
    let mut start = 0;
    let mut parts = [all; 3];
    for ((part, len), bias) in parts.iter_mut().zip(widths).zip(["q", "k", "v"]) {
        *part = net.b.slice(all, SliceSpec { groups: 1, start, len });
        start += len;
        if let Some(bias) = net.vector_opt(&format!("attn_{bias}.bias"), len)? {
            *part = net.b.add_weight(*part, bias);
        }
    }
    let [q, k, v] = parts;
    Ok(Qkv { q, k, v })
}

/// Normalises queries and keys per head with `attn_q_norm` and `attn_k_norm`.
pub(crate) fn norm_heads(net: &mut Net<'_>, x: Qkv, heads: Heads) -> Result<Qkv, ModelError> {
    Ok(Qkv {
        q: norm::heads(net, x.q, "attn_q_norm", heads.query)?,
        k: norm::heads(net, x.k, "attn_k_norm", heads.kv)?,
        v: x.v,
    })
}

/// Rotates queries and keys.
pub(crate) fn rotate(net: &mut Net<'_>, x: Qkv, heads: Heads, rotation: &Rotation) -> Qkv {
    Qkv { q: rotation.apply(net, x.q, heads.query), k: rotation.apply(net, x.k, heads.kv), v: x.v }
}

/// Declares the cache of the current layer.
pub(crate) fn cache(net: &mut Net<'_>, heads: Heads, reach: Reach) -> StateId {
    let dtype = net.options().cache_k;
    net.state(StateKind::Paged {
        key_width: heads.kv * heads.key_dim,
        value_width: heads.kv * heads.value_dim,
        dtype,
        reach,
    })
}

/// Stores keys and values in `state` and attends to it.
pub(crate) fn attend(
    net: &mut Net<'_>,
    state: StateId,
    x: Qkv,
    heads: Heads,
    scores: Scores,
) -> ValueId {
    net.b.kv_write(state, x.k, Some(x.v));
    read(net, state, x.q, heads, scores)
}

/// Attends to a cache that has been written.
pub(crate) fn read(
    net: &mut Net<'_>,
    state: StateId,
    q: ValueId,
    heads: Heads,
    scores: Scores,
) -> ValueId {
    let spec = AttnSpec {
        heads: heads.query,
        kv_heads: heads.kv,
        key_dim: heads.key_dim,
        value_dim: heads.value_dim,
        scale: scores.scale,
        softcap: scores.softcap,
        sinks: scores.sinks.is_some(),
    };
    net.b.attention(state, q, spec, scores.sinks)
}

/// Projects the heads' outputs back to the residual stream: `attn_output`.
pub(crate) fn project(
    net: &mut Net<'_>,
    x: ValueId,
    embedding: u32,
) -> Result<ValueId, ModelError> {
    net.linear(x, "attn_output", embedding)
}
