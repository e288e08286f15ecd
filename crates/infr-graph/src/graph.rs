//! The graph: a list of nodes in execution order, and what can be wrong with one.

use infr_tensor::TensorDesc;

use crate::ids::{StateId, ValueId, WeightId};
use crate::op::Op;

/// One operation with what it reads and writes.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// What it computes.
    pub op: Op,
    /// Values it reads.
    pub inputs: Vec<ValueId>,
    /// Weights it reads, in the op's order.
    pub weights: Vec<WeightId>,
    /// The state it reads or writes.
    pub state: Option<StateId>,
    /// Values it defines.
    pub outputs: Vec<ValueId>,
    /// The layer it belongs to, if any.
    pub layer: Option<u16>,
}

/// What a value that leaves the graph is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Output {
    /// The last hidden rows (after the final norm), one per output row.
    Hidden,
    /// Logits over the vocabulary, one row per output row.
    Logits,
    /// Sampled token ids, one per output row.
    Tokens,
    /// Rows handed to another device.
    Carried(u8),
}

/// Nodes in execution order over SSA values.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Graph {
    /// Nodes in execution order.
    pub nodes: Vec<Node>,
    /// Type and shape of every value.
    pub values: Vec<TensorDesc>,
    /// Values that leave the graph.
    pub outputs: Vec<(Output, ValueId)>,
}

impl Graph {
    /// Type and shape of a value.
    pub fn value(&self, id: ValueId) -> &TensorDesc {
        &self.values[id.index()]
    }

    /// The value that leaves the graph as `kind`.
    pub fn output(&self, kind: Output) -> Option<ValueId> {
        self.outputs.iter().find(|(k, _)| *k == kind).map(|(_, v)| *v)
    }

    /// For every value, the index of the last node that reads it (`usize::MAX` for graph outputs,
    /// the defining node when nothing reads it).
    pub fn last_uses(&self) -> Vec<usize> {
        let mut last = vec![0; self.values.len()];
        for (index, node) in self.nodes.iter().enumerate() {
            for v in node.inputs.iter().chain(&node.outputs) {
                last[v.index()] = index;
            }
        }
        for (_, v) in &self.outputs {
            last[v.index()] = usize::MAX;
        }
        last
    }
}

/// A graph that breaks a rule; always a bug of the code that built or rewrote it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// A node's inputs, weights or state do not fit its op.
    #[error("node {index} ({op}): {what}")]
    Node {
        /// Place in the node list.
        index: usize,
        /// Name of the op.
        op: &'static str,
        /// What is wrong.
        what: String,
    },
    /// The program's tables do not fit its graphs.
    #[error("program: {0}")]
    Program(String),
}
