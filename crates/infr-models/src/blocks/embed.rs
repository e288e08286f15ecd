//! Token embeddings.

use infr_graph::{ValueId, WeightId, WeightRole};

use crate::common::Common;
use crate::error::ModelError;
use crate::net::Net;
use crate::table::Need;

/// The embedding table `token_embd [E, V]`.
pub(crate) fn table(net: &mut Net<'_>, common: &Common) -> Result<WeightId, ModelError> {
    let dims = [common.embedding, common.vocab];
    let found = net.weights("token_embd", &dims, WeightRole::Dense, Need::Required)?;
    found.ok_or_else(|| ModelError::MissingTensor {
        name: "token_embd.weight".to_owned(),
        wanted: format!("{dims:?}"),
    })
}

/// Rows of the embedding table for the batch's tokens.
pub(crate) fn tokens(net: &mut Net<'_>, common: &Common) -> Result<ValueId, ModelError> {
    let table = table(net, common)?;
    let tokens = net.tokens();
    Ok(net.b.embed(tokens, table))
}
