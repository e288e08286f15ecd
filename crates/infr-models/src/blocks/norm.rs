//! RMS norms with weights by name.

use infr_graph::{NormSpec, ValueId};

use crate::error::ModelError;
use crate::net::Net;

/// Normalises whole rows; `name` without `.weight`.
pub(crate) fn rms(net: &mut Net<'_>, x: ValueId, name: &str) -> Result<ValueId, ModelError> {
    let width = net.b.width(x);
    let weight = net.vector(&format!("{name}.weight"), width)?;
    Ok(net.b.rms_norm(x, Some(weight), net.eps))
}

/// Normalises every head with one weight for all.
pub(crate) fn heads(
    net: &mut Net<'_>,
    x: ValueId,
    name: &str,
    count: u32,
) -> Result<ValueId, ModelError> {
    let dim = net.b.width(x) / count;
    let weight = net.vector(&format!("{name}.weight"), dim)?;
    let spec = NormSpec { eps: net.eps, groups: count };
    Ok(net.b.rms_norm_groups(x, Some(weight), spec))
}

/// Normalises every head without a weight.
pub(crate) fn heads_bare(net: &mut Net<'_>, x: ValueId, count: u32) -> ValueId {
    let spec = NormSpec { eps: net.eps, groups: count };
    net.b.rms_norm_groups(x, None, spec)
}
