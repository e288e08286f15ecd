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

#[cfg(test)]
mod tests {
    use infr_tensor::DType;

    use super::*;
    use crate::passes::rules::tests_support::Rows;
    use crate::{Phase, Reach, StateKind};

    #[test]
    fn what_nothing_reads_goes_and_effects_stay() {
        let mut r = Rows::new();
        let (x, unread) = (r.rows(4), r.rows(4));
        let kind = StateKind::Paged {
            key_width: 4,
            value_width: 4,
            dtype: DType::F32,
            reach: Reach::Full,
        };
        let state = r.b.state(0, kind);
        let key = r.b.scale(x, 2.0);
        r.b.kv_write(state, key, Some(x));
        let dead = r.b.scale(unread, 3.0);
        r.b.scale(dead, 4.0);
        let out = r.b.scale(x, 5.0);
        let program = r.finish(out);
        let mut graph = program.graph(Phase::Forward).unwrap().clone();
        dce(&mut graph);
        let names: Vec<&str> = graph.nodes.iter().map(|n| n.op.name()).collect();
        assert_eq!(names, ["input", "scale", "kv_write", "scale"]);
        assert_eq!(graph.nodes[3].outputs, [out]);
    }
}
