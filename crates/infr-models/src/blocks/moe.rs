//! Mixture of experts.

use infr_graph::{GateAct, Gating, RouteSpec, SliceSpec, Unary, ValueId};

use crate::blocks::ffn;
use crate::error::ModelError;
use crate::hparams::{Hparams, MAX_EXPERTS, WIDTH};
use crate::net::Net;

/// The experts of a model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Experts {
    /// Experts in a layer (X).
    pub count: u32,
    /// Experts used per row (K).
    pub used: u32,
    /// FFN width of one expert.
    pub width: u32,
    /// Activation on the gates.
    pub act: GateAct,
    /// From router logits to weights.
    pub gating: Gating,
    /// Divide the weights by their sum.
    pub normalise: bool,
    /// Multiplies the weights.
    pub scale: f32,
    /// Groups of experts.
    pub groups: u32,
    /// Groups that stay in the choice.
    pub groups_used: u32,
    /// Weights multiply the experts' input, not their output.
    pub weights_first: bool,
}

impl Experts {
    /// Reads counts and width; `width` stands in when the file has no key for it.
    ///
    /// Gating is softmax with normalised weights, as most families have it.
    pub(crate) fn parse(
        h: &Hparams<'_>,
        width: impl FnOnce(u32) -> Option<u32>,
    ) -> Result<Experts, ModelError> {
        let count = h.require_u32("expert_count", 1..=MAX_EXPERTS)?;
        let used = h
            .uniform("expert_used_count", 1..=count)?
            .ok_or_else(|| h.missing("expert_used_count"))?;
        let own = h.uniform("expert_feed_forward_length", WIDTH)?;
        let width = own
            .or_else(|| width(used))
            .filter(|&w| w > 0)
            .ok_or_else(|| h.missing("expert_feed_forward_length"))?;
        Ok(Experts {
            count,
            used,
            width,
            act: GateAct::Silu,
            gating: Gating::Softmax,
            normalise: true,
            scale: 1.0,
            groups: 1,
            groups_used: 1,
            weights_first: false,
        })
    }
}

/// The gating of `expert_gating_func`, `default` when the file leaves it open.
pub(crate) fn gating(h: &Hparams<'_>, default: Option<Gating>) -> Result<Gating, ModelError> {
    const KEY: &str = "expert_gating_func";
    match h.u32(KEY, 0..=4)?.unwrap_or(0) {
        0 => default.ok_or_else(|| h.missing(KEY)),
        1 => Ok(Gating::Softmax),
        2 => Ok(Gating::Sigmoid),
        3 => Ok(Gating::SoftmaxSelected),
        _ => Ok(Gating::SqrtSoftplus),
    }
}

impl Experts {
    /// Reads the keys for groups of experts and for the weights' norm and scale.
    pub(crate) fn with_keys(self, h: &Hparams<'_>) -> Result<Experts, ModelError> {
        let groups = h.u32("expert_group_count", 0..=self.count)?.unwrap_or(0).max(1);
        let groups_used = h.u32("expert_group_used_count", 0..=groups)?.unwrap_or(0).max(1);
        let size = self.count / groups;
        if !self.count.is_multiple_of(groups) || (groups > 1 && size * groups_used < self.used) {
            let allowed = format!(
                "groups must divide {} experts, and {groups_used} of them hold the {} chosen",
                self.count, self.used
            );
            return Err(h.wrong("expert_group_count", groups, allowed));
        }
        Ok(Experts {
            groups,
            groups_used,
            scale: h.factor("expert_weights_scale")?.unwrap_or(1.0),
            normalise: h.bool("expert_weights_norm")?.unwrap_or(false),
            ..self
        })
    }
}

/// The shared expert's width: its own key, or what stands in.
pub(crate) fn shared_width(h: &Hparams<'_>, default: u32) -> Result<u32, ModelError> {
    let width = h.u32("expert_shared_feed_forward_length", WIDTH)?.unwrap_or(default);
    if width == 0 { Err(h.missing("expert_shared_feed_forward_length")) } else { Ok(width) }
}

/// Router logits of `x`: `ffn_gate_inp`.
pub(crate) fn router(
    net: &mut Net<'_>,
    x: ValueId,
    experts: &Experts,
) -> Result<ValueId, ModelError> {
    net.linear(x, "ffn_gate_inp", experts.count)
}

/// The experts' sum for `x`, chosen by `logits`.
pub(crate) fn mixture(
    net: &mut Net<'_>,
    x: ValueId,
    logits: ValueId,
    experts: &Experts,
) -> Result<ValueId, ModelError> {
    let bias = net.vector_opt("exp_probs_b.bias", experts.count)?;
    let spec = RouteSpec {
        experts: experts.count,
        used: experts.used,
        gating: experts.gating,
        normalise: experts.normalise,
        scale: experts.scale,
        groups: experts.groups,
        groups_used: experts.groups_used,
        bias: bias.is_some(),
    };
    let embedding = net.b.width(x);
    let (ids, weights) = net.b.route(logits, spec, bias);
    let input = if experts.weights_first { net.b.spread(x, weights) } else { x };
    let (gate, up) = gate_up(net, input, ids, embedding, experts)?;
    let y = net.b.gated(experts.act, gate, up);
    let down = net.bank("ffn_down_exps", experts.width, embedding, experts.count)?;
    let y = net.b.expert_linear(y, ids, down);
    if experts.weights_first {
        return Ok(sum_parts(net, y, experts.used));
    }
    Ok(net.b.combine(y, weights))
}

fn gate_up(
    net: &mut Net<'_>,
    x: ValueId,
    ids: ValueId,
    embedding: u32,
    experts: &Experts,
) -> Result<(ValueId, ValueId), ModelError> {
    let (width, count) = (experts.width, experts.count);
    if net.has("ffn_gate_up_exps.weight", &[embedding, 2 * width, count]) {
        let bank = net.bank("ffn_gate_up_exps", embedding, 2 * width, count)?;
        let both = net.b.expert_linear(x, ids, bank);
        let part = |start| SliceSpec { groups: experts.used, start, len: width };
        return Ok((net.b.slice(both, part(0)), net.b.slice(both, part(width))));
    }
    let gate = net.bank("ffn_gate_exps", embedding, width, count)?;
    let up = net.bank("ffn_up_exps", embedding, width, count)?;
    Ok((net.b.expert_linear(x, ids, gate), net.b.expert_linear(x, ids, up)))
}

/// Sum of `parts` equal parts of a row, in order.
fn sum_parts(net: &mut Net<'_>, x: ValueId, parts: u32) -> ValueId {
    let len = net.b.width(x) / parts;
    let mut part = |k| net.b.slice(x, SliceSpec { groups: 1, start: k * len, len });
    if parts == 1 {
        return x;
    }
    let all: Vec<ValueId> = (0..parts).map(&mut part).collect();
    all[1..].iter().fold(all[0], |sum, &p| net.b.add(sum, p))
}

/// Router and experts on one input.
pub(crate) fn moe(net: &mut Net<'_>, x: ValueId, experts: &Experts) -> Result<ValueId, ModelError> {
    let logits = router(net, x, experts)?;
    mixture(net, x, logits, experts)
}

/// A shared expert that every row uses: `ffn_{gate,up,down}_shexp`.
pub(crate) fn shared(
    net: &mut Net<'_>,
    x: ValueId,
    width: u32,
    act: GateAct,
) -> Result<ValueId, ModelError> {
    ffn::gated(net, x, act, width, "_shexp")
}

/// A shared expert that every row uses times `σ(ffn_gate_inp_shexp·x)`.
pub(crate) fn shared_gated(
    net: &mut Net<'_>,
    x: ValueId,
    width: u32,
) -> Result<ValueId, ModelError> {
    let y = shared(net, x, width, GateAct::Silu)?;
    let gate = net.linear(x, "ffn_gate_inp_shexp", 1)?;
    let gate = net.b.unary(Unary::Sigmoid, gate);
    Ok(net.b.mul(y, gate))
}

/// Experts and, when its width is not 0, a shared expert beside them.
pub(crate) fn with_shared(
    net: &mut Net<'_>,
    x: ValueId,
    experts: &Experts,
    shared_width: u32,
) -> Result<ValueId, ModelError> {
    let y = moe(net, x, experts)?;
    if shared_width == 0 {
        return Ok(y);
    }
    let s = shared(net, x, shared_width, GateAct::Silu)?;
    Ok(net.b.add(y, s))
}
