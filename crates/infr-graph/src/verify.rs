//! Checks a program against the rules of the IR: run after building and after every pass.

use infr_tensor::TensorDesc;

use crate::graph::{Graph, GraphError, Node};
use crate::op::Op;
use crate::program::Program;
use crate::shape_rules::{Operands, infer};

/// Checks every graph of the program.
pub fn verify_program(program: &Program) -> Result<(), GraphError> {
    for (phase, graph) in &program.graphs {
        verify_graph(graph, program).map_err(|e| match e {
            GraphError::Program(what) => GraphError::Program(format!("{phase:?}: {what}")),
            node @ GraphError::Node { .. } => node,
        })?;
    }
    Ok(())
}

/// Checks one graph: values are defined once and before use, and every shape follows from its op.
pub fn verify_graph(graph: &Graph, program: &Program) -> Result<(), GraphError> {
    let mut defined = vec![false; graph.values.len()];
    for (index, node) in graph.nodes.iter().enumerate() {
        verify_node(index, node, graph, program, &mut defined)?;
    }
    for (kind, value) in &graph.outputs {
        if !defined.get(value.index()).copied().unwrap_or(false) {
            return Err(GraphError::Program(format!("output {kind:?} is not defined")));
        }
    }
    Ok(())
}

fn verify_node(
    index: usize,
    node: &Node,
    graph: &Graph,
    program: &Program,
    defined: &mut [bool],
) -> Result<(), GraphError> {
    let fail = |what: String| GraphError::Node { index, op: node.op.name(), what };
    for v in &node.inputs {
        if !defined.get(v.index()).copied().unwrap_or(false) {
            return Err(fail(format!("reads %{} before it is defined", v.0)));
        }
    }
    if let Op::Fused(fused) = &node.op {
        for inner in &fused.body {
            verify_node(index, inner, graph, program, defined)?;
        }
        return Ok(());
    }
    let found = infer(&node.op, &operands(node, graph, program).map_err(&fail)?).map_err(&fail)?;
    if found.len() != node.outputs.len() {
        return Err(fail(format!("has {} outputs, wants {}", node.outputs.len(), found.len())));
    }
    for (value, desc) in node.outputs.iter().zip(found) {
        let slot = defined
            .get_mut(value.index())
            .ok_or_else(|| fail(format!("defines %{} outside the value table", value.0)))?;
        if std::mem::replace(slot, true) {
            return Err(fail(format!("defines %{} twice", value.0)));
        }
        if *graph.value(*value) != desc {
            let have = graph.value(*value);
            return Err(fail(format!("%{} is declared {have:?}, follows as {desc:?}", value.0)));
        }
    }
    Ok(())
}

/// Collects what a node stands on from the tables.
pub fn operands<'a>(
    node: &Node,
    graph: &'a Graph,
    program: &'a Program,
) -> Result<Operands<'a>, String> {
    let inputs: Option<Vec<&TensorDesc>> =
        node.inputs.iter().map(|v| graph.values.get(v.index())).collect();
    let weights: Option<Vec<&TensorDesc>> =
        node.weights.iter().map(|w| program.weights.get(w.index()).map(|d| &d.desc)).collect();
    let state = match node.state {
        Some(id) => match program.states.get(id.index()) {
            Some(decl) => Some(decl.kind),
            None => return Err(format!("state {} does not exist", id.0)),
        },
        None => None,
    };
    Ok(Operands {
        inputs: inputs.ok_or("reads a value outside the value table")?,
        weights: weights.ok_or("reads a weight outside the weight table")?,
        state,
    })
}
