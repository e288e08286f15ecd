//! One line of text per node, for expected-output tests and for reading a graph.

use std::fmt::Write;

use crate::graph::{Graph, Node};
use crate::op::Op;
use crate::program::Program;

/// The graph as text: `%3 = linear %2, w4 (attn_q) : F32 [rows, 64]`.
pub fn print(graph: &Graph, program: &Program) -> String {
    let mut out = String::new();
    for node in &graph.nodes {
        print_node(&mut out, node, graph, program, "");
    }
    for (kind, value) in &graph.outputs {
        let _ = writeln!(out, "output {kind:?} = %{}", value.0);
    }
    out
}

fn print_node(out: &mut String, node: &Node, graph: &Graph, program: &Program, indent: &str) {
    let list = |ids: &[crate::ids::ValueId]| {
        ids.iter().map(|v| format!("%{}", v.0)).collect::<Vec<_>>().join(", ")
    };
    let _ = write!(out, "{indent}{} = {}", list(&node.outputs), node.op.name());
    if !node.inputs.is_empty() {
        let _ = write!(out, " {}", list(&node.inputs));
    }
    for w in &node.weights {
        let name = program.weights.get(w.index()).map_or("?", |d| d.name.as_str());
        let _ = write!(out, ", {name}");
    }
    if let Some(state) = node.state {
        let _ = write!(out, ", state {}", state.0);
    }
    for v in &node.outputs {
        if let Some(desc) = graph.values.get(v.index()) {
            let _ = write!(out, " : {} {}", desc.dtype, desc.shape);
        }
    }
    out.push('\n');
    if let Op::Fused(fused) = &node.op {
        for inner in &fused.body {
            print_node(out, inner, graph, program, "    ");
        }
    }
}
