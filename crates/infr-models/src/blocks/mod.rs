//! What families have in common: functions that add a part of a layer to a graph.

pub(crate) mod attention;
pub(crate) mod delta_net;
pub(crate) mod embed;
pub(crate) mod ffn;
pub(crate) mod head;
pub(crate) mod moe;
pub(crate) mod norm;
