//! Dense feed-forward networks.

use infr_graph::{GateAct, ValueId};

use crate::error::ModelError;
use crate::net::Net;

/// `down·(act(gate·x)·(up·x))` with tensors `ffn_{gate,up,down}` plus `suffix`.
pub(crate) fn gated(
    net: &mut Net<'_>,
    x: ValueId,
    act: GateAct,
    width: u32,
    suffix: &str,
) -> Result<ValueId, ModelError> {
    let out = net.b.width(x);
    let gate = net.linear(x, &format!("ffn_gate{suffix}"), width)?;
    let up = net.linear(x, &format!("ffn_up{suffix}"), width)?;
    let y = net.b.gated(act, gate, up);
    net.linear(y, &format!("ffn_down{suffix}"), out)
}

/// The usual dense network.
pub(crate) fn swiglu(net: &mut Net<'_>, x: ValueId, width: u32) -> Result<ValueId, ModelError> {
    gated(net, x, GateAct::Silu, width, "")
}
