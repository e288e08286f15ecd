//! Rewrites that backends run per shape class. None changes what a graph means, its weights or its states.
//!
//! [`optimise`] fuses what the backend accepts, then drops what nothing reads; the graph is verified
//! after each pass. [`memory`] places values in an arena. The CPU reference runs none of these.

pub mod dce;
pub mod fuse;
pub mod memory;
pub mod rules;

use crate::graph::{Graph, GraphError};
use crate::op::Fused;
use crate::program::Program;
use crate::verify::verify_graph;

/// Sizes that a plan is made for: a batch fits when none of its counts is larger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShapeClass {
    /// Rows.
    pub rows: u32,
    /// Sequences.
    pub seqs: u32,
    /// Rows whose output is wanted.
    pub out_rows: u32,
}

/// What a backend has fused kernels for.
pub trait FusionSupport {
    /// Whether it wants this fusion in a plan of this class.
    fn accepts(&self, fused: &Fused, program: &Program, class: ShapeClass) -> bool;
}

/// The graph as a backend runs it in one shape class.
///
/// # Errors
/// When a pass breaks a rule of the IR: a bug of that pass.
pub fn optimise(
    graph: &Graph,
    program: &Program,
    class: ShapeClass,
    support: &dyn FusionSupport,
) -> Result<Graph, GraphError> {
    let mut graph = graph.clone();
    for rule in rules::RULES {
        fuse::fuse(&mut graph, program, rule, &|fused| support.accepts(fused, program, class));
        verify_graph(&graph, program)?;
    }
    dce::dce(&mut graph);
    verify_graph(&graph, program)?;
    Ok(graph)
}
