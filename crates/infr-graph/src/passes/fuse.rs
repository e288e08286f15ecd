//! The driver of fusion rules: replaces the nodes that a rule names by one fused node that keeps them.

use crate::graph::{Graph, Node};
use crate::ids::ValueId;
use crate::op::{Fused, FusedKind, Op};
use crate::program::Program;

/// A rule: from a node to the nodes that one kernel computes.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// Name for messages.
    pub name: &'static str,
    /// The kernel.
    pub kind: FusedKind,
    /// The places of all nodes to fuse, when the node at the given place is the last of them.
    pub find: fn(&View<'_>, usize) -> Option<Vec<usize>>,
}

/// A graph with the relations that rules ask for.
#[derive(Debug)]
pub struct View<'a> {
    /// The graph.
    pub graph: &'a Graph,
    /// Its program.
    pub program: &'a Program,
    /// The node that defines each value.
    defined_by: Vec<usize>,
    /// The nodes that read each value; graph outputs count as a reader at the end.
    readers: Vec<Vec<usize>>,
}

impl<'a> View<'a> {
    /// Collects the relations.
    pub fn new(graph: &'a Graph, program: &'a Program) -> View<'a> {
        let mut defined_by = vec![usize::MAX; graph.values.len()];
        let mut readers = vec![Vec::new(); graph.values.len()];
        for (index, node) in graph.nodes.iter().enumerate() {
            node.outputs.iter().for_each(|v| defined_by[v.index()] = index);
            node.inputs.iter().for_each(|v| readers[v.index()].push(index));
        }
        for (_, v) in &graph.outputs {
            readers[v.index()].push(graph.nodes.len());
        }
        View { graph, program, defined_by, readers }
    }

    /// The node at a place.
    pub fn node(&self, index: usize) -> &'a Node {
        &self.graph.nodes[index]
    }

    /// Place and node that define a value.
    pub fn definition(&self, value: ValueId) -> (usize, &'a Node) {
        let index = self.defined_by[value.index()];
        (index, &self.graph.nodes[index])
    }

    /// Whether exactly one place reads a value.
    pub fn has_one_reader(&self, value: ValueId) -> bool {
        self.readers[value.index()].len() == 1
    }

    /// Places that read a value, ascending.
    pub fn readers(&self, value: ValueId) -> &[usize] {
        &self.readers[value.index()]
    }
}

/// Applies one rule wherever it fits and `accepts` agrees.
pub fn fuse(graph: &mut Graph, program: &Program, rule: &Rule, accepts: &dyn Fn(&Fused) -> bool) {
    let view = View::new(graph, program);
    // What stands at the place of each node: itself, a fused node, or nothing.
    let mut fused_at: Vec<(usize, Node)> = Vec::new();
    let mut taken = vec![false; graph.nodes.len()];
    for last in 0..view.graph.nodes.len() {
        let Some(mut places) = (rule.find)(&view, last) else { continue };
        places.sort_unstable();
        places.dedup();
        if places.last() != Some(&last) || places.iter().any(|&p| taken[p]) {
            continue;
        }
        let Some(node) = join(&view, rule.kind, &places) else { continue };
        let Op::Fused(fused) = &node.op else { continue };
        if accepts(fused) {
            places.iter().for_each(|&p| taken[p] = true);
            fused_at.push((last, node));
        }
    }
    let mut fused = fused_at.into_iter().peekable();
    let nodes = std::mem::take(&mut graph.nodes).into_iter().enumerate();
    graph.nodes = nodes
        .filter_map(|(place, node)| {
            let here = fused.next_if(|(last, _)| *last == place).map(|(_, node)| node);
            here.or_else(|| (!taken[place]).then_some(node))
        })
        .collect();
}

/// One node for several, standing where the last of them stands; `None` when a node between reads a
/// result or touches the state.
fn join(view: &View<'_>, kind: FusedKind, places: &[usize]) -> Option<Node> {
    let (first, last) = (*places.first()?, *places.last()?);
    let body: Vec<Node> = places.iter().map(|&p| view.node(p).clone()).collect();
    if body.iter().any(|n| matches!(n.op, Op::Fused(_))) {
        return None;
    }
    let inside = |place: &usize| places.contains(place);
    let mut outputs = Vec::new();
    for value in body.iter().flat_map(|n| &n.outputs) {
        let outside: Vec<usize> =
            view.readers(*value).iter().copied().filter(|r| !inside(r)).collect();
        if outside.iter().any(|&r| r < last) {
            return None;
        }
        if !outside.is_empty() {
            outputs.push(*value);
        }
    }
    let state = body.iter().find_map(|n| n.state);
    let moved_over = (first..last).filter(|p| !inside(p)).map(|p| view.node(p));
    if state.is_some() && moved_over.into_iter().any(|n| n.state == state) {
        return None;
    }
    let defined: Vec<ValueId> = body.iter().flat_map(|n| n.outputs.clone()).collect();
    let mut inputs = Vec::new();
    for value in body.iter().flat_map(|n| &n.inputs) {
        if !defined.contains(value) && !inputs.contains(value) {
            inputs.push(*value);
        }
    }
    let weights = body.iter().flat_map(|n| n.weights.clone()).collect();
    let layer = view.node(last).layer;
    Some(Node {
        op: Op::Fused(Box::new(Fused { kind, body })),
        inputs,
        weights,
        state,
        outputs,
        layer,
    })
}
