//! The gated DeltaNet mixer of the Qwen hybrids (Yang et al., "Gated Delta Networks", 2024).

use infr_graph::{
    ConvSpec, DeltaSpec, GateAct, HeadMap, NormSpec, SliceSpec, StateKind, Unary, ValueId,
};

use crate::error::ModelError;
use crate::hparams::Hparams;
use crate::net::Net;

/// Sizes of a DeltaNet layer; keys and values have heads of equal size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DeltaNet {
    /// Elements of a head.
    pub dim: u32,
    /// Key (and query) heads.
    pub k_heads: u32,
    /// Value heads.
    pub v_heads: u32,
    /// Taps of the convolution.
    pub taps: u32,
    /// Which key head a value head reads.
    pub map: HeadMap,
}

/// A layer's projections, before the convolution.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Projections {
    /// Query heads, key heads, value heads.
    pub qkv: ValueId,
    /// Gate of the output.
    pub z: ValueId,
    /// Write strength per value head, before its sigmoid.
    pub beta: ValueId,
    /// Decay per value head, before bias and softplus.
    pub alpha: ValueId,
}

impl DeltaNet {
    /// Reads the `ssm` keys.
    pub(crate) fn parse(h: &Hparams<'_>, map: HeadMap) -> Result<DeltaNet, ModelError> {
        // Caps that keep the matrix state's size within `u32`.
        let dim = h.require_u32("ssm.state_size", 1..=512)?;
        let v_heads = h.require_u32("ssm.time_step_rank", 1..=1024)?;
        let k_heads = h.require_u32("ssm.group_count", 1..=1024)?;
        if !v_heads.is_multiple_of(k_heads) {
            let allowed = format!("it must divide the {v_heads} value heads");
            return Err(h.wrong("ssm.group_count", k_heads, allowed));
        }
        let inner = h.require_u32("ssm.inner_size", 1..=dim * v_heads)?;
        if inner != dim * v_heads {
            let allowed = format!("state size times time step rank is {}", dim * v_heads);
            return Err(h.wrong("ssm.inner_size", inner, allowed));
        }
        let taps = h.require_u32("ssm.conv_kernel", 2..=64)?;
        Ok(DeltaNet { dim, k_heads, v_heads, taps, map })
    }

    /// Elements of all queries, or of all keys.
    pub(crate) fn key_width(&self) -> u32 {
        self.dim * self.k_heads
    }

    /// Elements of all values.
    pub(crate) fn value_width(&self) -> u32 {
        self.dim * self.v_heads
    }

    /// Channels of the convolution.
    pub(crate) fn channels(&self) -> u32 {
        2 * self.key_width() + self.value_width()
    }

    /// The mixer's output for its projections: convolution, delta rule, gated norm, `ssm_out`.
    pub(crate) fn mix(
        &self,
        net: &mut Net<'_>,
        x: Projections,
        embedding: u32,
    ) -> Result<ValueId, ModelError> {
        let c = self.convolve(net, x.qkv)?;
        let part = |start, len| SliceSpec { groups: 1, start, len };
        let (kw, vw) = (self.key_width(), self.value_width());
        let q = net.b.slice(c, part(0, kw));
        let k = net.b.slice(c, part(kw, kw));
        let v = net.b.slice(c, part(2 * kw, vw));
        let eps = net.eps;
        let q = net.b.l2_norm(q, self.k_heads, eps);
        let k = net.b.l2_norm(k, self.k_heads, eps);
        let beta = net.b.unary(Unary::Sigmoid, x.beta);
        let dt = net.vector("ssm_dt.bias", self.v_heads)?;
        let a = net.vector("ssm_a", self.v_heads)?;
        let g = net.b.add_weight(x.alpha, dt);
        let g = net.b.unary(Unary::Softplus, g);
        let g = net.b.mul_weight(g, a);
        let width = self.v_heads * self.dim * self.dim;
        let state = net.state(StateKind::Slot { width });
        let spec = DeltaSpec {
            k_heads: self.k_heads,
            v_heads: self.v_heads,
            key_dim: self.dim,
            value_dim: self.dim,
            map: self.map,
        };
        let o = net.b.delta_net(state, [q, k, v, g, beta], spec);
        let norm = net.vector("ssm_norm.weight", self.dim)?;
        let o = net.b.rms_norm_groups(o, Some(norm), NormSpec { eps, groups: self.v_heads });
        let o = net.b.gated(GateAct::Silu, x.z, o);
        net.linear(o, "ssm_out", embedding)
    }

    fn convolve(&self, net: &mut Net<'_>, qkv: ValueId) -> Result<ValueId, ModelError> {
        let spec = ConvSpec { channels: self.channels(), taps: self.taps };
        let filter = net.filter("ssm_conv1d.weight", spec.taps, spec.channels)?;
        let state = net.state(StateKind::Slot { width: (spec.taps - 1) * spec.channels });
        let c = net.b.conv1d(state, qkv, filter, spec);
        Ok(net.b.unary(Unary::Silu, c))
    }
}
