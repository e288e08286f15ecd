//! The end of a graph: wanted rows, final norm, logits, sampling.

use infr_graph::{Output, Phase, Unary, ValueId};

use crate::blocks::{embed, norm};
use crate::common::Common;
use crate::error::ModelError;
use crate::family::Pooling;
use crate::net::Net;
use crate::table::Need;

/// Where the output matrix comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputMatrix {
    /// `output`, which has to be there.
    Own,
    /// `output` when it is there, else the embedding table.
    OwnOrTied,
    /// The embedding table.
    Tied,
}

/// What stands between the last layer and the logits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head {
    /// Name of the final norm.
    pub norm: &'static str,
    /// The output matrix.
    pub matrix: OutputMatrix,
    /// Multiplies the logits.
    pub scale: Option<f32>,
    /// Bounds the logits.
    pub softcap: Option<f32>,
}

impl Default for Head {
    fn default() -> Head {
        Head { norm: "output_norm", matrix: OutputMatrix::OwnOrTied, scale: None, softcap: None }
    }
}

/// Ends the `Forward` graph of a model.
pub(crate) fn finish(
    net: &mut Net<'_>,
    common: &Common,
    x: ValueId,
    head: Head,
) -> Result<(), ModelError> {
    net.leave();
    let x = net.b.gather_out(x);
    let hidden = norm::rms(net, x, head.norm)?;
    net.b.output(Output::Hidden, hidden);
    match common.pooling {
        None => {
            let logits = logits(net, common, hidden, head)?;
            net.b.output(Output::Logits, logits);
            let tokens = net.b.sample(logits);
            net.b.output(Output::Tokens, tokens);
        }
        Some(Pooling::Rank) => {
            let classes = classes(net, common, hidden)?;
            net.b.output(Output::Logits, classes);
        }
        Some(Pooling::Mean | Pooling::Cls | Pooling::Last) => {}
    }
    net.end_graph(Phase::Forward);
    Ok(())
}

/// A reranker's logits: `cls` with a hyperbolic tangent where the file has it, then `cls.output`.
fn classes(net: &mut Net<'_>, common: &Common, hidden: ValueId) -> Result<ValueId, ModelError> {
    let e = common.embedding;
    let x = match net.matrix_opt("cls", e, e, Need::Optional)? {
        Some(dense) => {
            let x = net.b.linear(hidden, dense);
            net.b.unary(Unary::Tanh, x)
        }
        None => hidden,
    };
    net.linear(x, "cls.output", common.classes)
}

/// Logits of rows that have been normalised.
pub(crate) fn logits(
    net: &mut Net<'_>,
    common: &Common,
    hidden: ValueId,
    head: Head,
) -> Result<ValueId, ModelError> {
    let (e, v) = (common.embedding, common.vocab);
    let own = match head.matrix {
        OutputMatrix::Own => Some(net.matrix("output", e, v)?),
        OutputMatrix::OwnOrTied => net.matrix_opt("output", e, v, Need::Optional)?,
        OutputMatrix::Tied => None,
    };
    let matrix = match own {
        Some(matrix) => matrix,
        None => embed::table(net, common)?.into(),
    };
    let mut logits = net.b.linear(hidden, matrix);
    if let Some(scale) = head.scale {
        logits = net.b.scale(logits, scale);
    }
    if let Some(cap) = head.softcap {
        logits = net.b.softcap(logits, cap);
    }
    Ok(logits)
}
