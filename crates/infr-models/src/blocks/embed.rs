//! Token embeddings.

use infr_graph::{ValueId, WeightId};

use crate::common::Common;
use crate::error::ModelError;
use crate::net::Net;

/// The embedding table `token_embd [E, V]`.
pub(crate) fn table(net: &mut Net<'_>, common: &Common) -> Result<WeightId, ModelError> {
    net.table("token_embd", common.embedding, common.vocab)
}

/// Rows of the embedding table for the batch's tokens.
pub(crate) fn tokens(net: &mut Net<'_>, common: &Common) -> Result<ValueId, ModelError> {
    let table = table(net, common)?;
    let tokens = net.tokens();
    Ok(net.b.embed(tokens, table))
}
