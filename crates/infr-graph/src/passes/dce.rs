//! Drops nodes whose results nothing reads and that touch no state.

use crate::graph::Graph;

/// Removes dead nodes; values keep their ids.
pub fn dce(graph: &mut Graph) {
    let mut wanted = vec![false; graph.values.len()];
    for (_, value) in &graph.outputs {
        wanted[value.index()] = true;
    }
    let mut kept = Vec::with_capacity(graph.nodes.len());
    while let Some(node) = graph.nodes.pop() {
        let touches_state = node.state.is_some();
        if touches_state || node.outputs.iter().any(|v| wanted[v.index()]) {
            node.inputs.iter().for_each(|v| wanted[v.index()] = true);
            kept.push(node);
        }
    }
    kept.reverse();
    graph.nodes = kept;
}
