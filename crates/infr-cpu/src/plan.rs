//! A graph prepared for execution: fused nodes unfolded, values placed in reusable buffers.

use infr_graph::{BatchField, Graph, Node, Op, Output, Phase, Program, ValueId};
use infr_tensor::{DType, Dim};

/// What decides a value's number of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowCount {
    /// The batch.
    Batch,
    /// The rows whose output is wanted.
    Out,
    /// The graph.
    Fixed(usize),
}

/// Which buffer of the arena holds a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// A buffer of `f32`.
    Float(usize),
    /// A buffer of ids.
    Ids(usize),
}

/// Where a value lives and how large it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Value {
    pub(crate) place: Place,
    pub(crate) width: usize,
    pub(crate) rows: RowCount,
}

/// One graph, ready to run.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) phase: Phase,
    /// Plain nodes in execution order.
    pub(crate) nodes: Vec<Node>,
    pub(crate) values: Vec<Value>,
    /// Values that leave the graph, in the graph's order.
    pub(crate) outputs: Vec<(Output, ValueId)>,
    /// Logits that rows are sampled from.
    pub(crate) logits: Option<ValueId>,
    /// Tokens that the graph samples itself.
    pub(crate) sampled: Option<ValueId>,
    /// The last hidden rows.
    pub(crate) hidden: Option<ValueId>,
    /// Token ids must be below this.
    pub(crate) vocab: Option<usize>,
    pub(crate) n_floats: usize,
    pub(crate) n_ids: usize,
}

impl Plan {
    /// Prepares one graph of a verified program.
    pub(crate) fn new(phase: Phase, graph: &Graph, program: &Program) -> Plan {
        let mut nodes = Vec::new();
        graph.nodes.iter().for_each(|node| unfold(node, &mut nodes));
        let sample = nodes.iter().find(|n| n.op == Op::Sample);
        let logits = graph.output(Output::Logits).or(sample.map(|n| n.inputs[0]));
        let sampled = sample.map(|n| n.outputs[0]);
        let hidden = graph.output(Output::Hidden);
        let kept = graph.outputs.iter().map(|(_, v)| *v).chain(logits).chain(sampled);
        let last = last_uses(&nodes, graph.values.len(), kept);
        let vocab = nodes.iter().filter(|n| n.op == Op::Embed).filter_map(|n| {
            match program.weights[n.weights[0].index()].desc.shape.0.first() {
                Some(Dim::Fixed(rows)) => Some(*rows as usize),
                _ => None,
            }
        });
        let vocab = vocab.min();
        let (values, n_floats, n_ids) = place(&nodes, graph, &last);
        let outputs = graph.outputs.clone();
        Plan { phase, nodes, values, outputs, logits, sampled, hidden, vocab, n_floats, n_ids }
    }

    /// Where a value lives.
    pub(crate) fn value(&self, id: ValueId) -> Value {
        self.values[id.index()]
    }

    /// Carried values that the graph reads: index and width.
    pub(crate) fn carried(&self) -> impl Iterator<Item = (u8, u32)> {
        self.nodes.iter().filter_map(|n| match n.op {
            Op::Input(BatchField::Carried { index, width }) => Some((index, width)),
            _ => None,
        })
    }
}

/// A fused node is defined by its body, so it runs as its body.
fn unfold(node: &Node, out: &mut Vec<Node>) {
    match &node.op {
        Op::Fused(fused) => fused.body.iter().for_each(|inner| unfold(inner, out)),
        _ => out.push(node.clone()),
    }
}

/// Index of the last node that touches each value; `usize::MAX` for the values that are kept.
fn last_uses(nodes: &[Node], n_values: usize, kept: impl Iterator<Item = ValueId>) -> Vec<usize> {
    let mut last = vec![0; n_values];
    for (index, node) in nodes.iter().enumerate() {
        for v in node.inputs.iter().chain(&node.outputs) {
            last[v.index()] = index;
        }
    }
    for v in kept {
        last[v.index()] = usize::MAX;
    }
    last
}

/// Buffers of one element type: the widest value each has held, and which are free.
#[derive(Default)]
struct Buffers {
    widths: Vec<usize>,
    free: Vec<usize>,
}

impl Buffers {
    /// Takes the free buffer that fits best.
    fn take(&mut self, width: usize) -> usize {
        let fit = |&slot: &usize| {
            let have = self.widths[slot];
            if have >= width { (0, have - width) } else { (1, width - have) }
        };
        let best = (0..self.free.len()).min_by_key(|&i| fit(&self.free[i]));
        let slot = match best {
            Some(i) => self.free.swap_remove(i),
            None => {
                self.widths.push(0);
                self.widths.len() - 1
            }
        };
        self.widths[slot] = self.widths[slot].max(width);
        slot
    }
}

/// Gives every value a buffer; two values share one when their lifetimes do not meet.
fn place(nodes: &[Node], graph: &Graph, last: &[usize]) -> (Vec<Value>, usize, usize) {
    let mut values: Vec<Value> = graph
        .values
        .iter()
        .map(|desc| Value {
            place: if desc.dtype == DType::I32 { Place::Ids(0) } else { Place::Float(0) },
            width: desc.shape.width().unwrap_or(1) as usize,
            rows: match desc.shape.0[..] {
                [Dim::Rows, ..] => RowCount::Batch,
                [Dim::OutRows, ..] => RowCount::Out,
                [Dim::Fixed(n), _, ..] => RowCount::Fixed(n as usize),
                [Dim::Fixed(_)] | [] => RowCount::Fixed(1),
            },
        })
        .collect();
    let (mut floats, mut ids) = (Buffers::default(), Buffers::default());
    for (index, node) in nodes.iter().enumerate() {
        for v in &node.outputs {
            let value = &mut values[v.index()];
            value.place = match value.place {
                Place::Float(_) => Place::Float(floats.take(value.width)),
                Place::Ids(_) => Place::Ids(ids.take(value.width)),
            };
        }
        // After the outputs are placed: no op computes in place.
        let mut done: Vec<ValueId> = node.inputs.iter().chain(&node.outputs).copied().collect();
        done.sort_unstable();
        done.dedup();
        for v in done.into_iter().filter(|v| last[v.index()] == index) {
            match values[v.index()].place {
                Place::Float(slot) => floats.free.push(slot),
                Place::Ids(slot) => ids.free.push(slot),
            }
        }
    }
    (values, floats.widths.len(), ids.widths.len())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use infr_graph::{Builder, StateId};

    use super::*;

    /// A chain with values that are read late, and one that leaves the graph early.
    fn program() -> Program {
        let mut b = Builder::new();
        let field = |index, width| Op::Input(BatchField::Carried { index, width });
        let x = b.node(field(0, 8), &[], &[], None::<StateId>)[0];
        let late = b.scale(x, 2.0);
        let mut y = b.scale(x, 3.0);
        for i in 0..6 {
            let z = b.add(y, late);
            y = b.concat(z, x, 1);
            y = b.slice(y, infr_graph::SliceSpec { groups: 1, start: 0, len: 8 });
            if i == 2 {
                b.output(Output::Carried(0), y);
            }
        }
        let y = b.add(y, late);
        b.output(Output::Carried(1), y);
        b.end_graph(Phase::Forward);
        b.finish().expect("a valid program")
    }

    #[test]
    fn no_buffer_holds_two_values_that_are_needed() {
        let program = program();
        let (phase, graph) = &program.graphs[0];
        let plan = Plan::new(*phase, graph, &program);
        let mut holds: HashMap<usize, ValueId> = HashMap::new();
        for node in &plan.nodes {
            for v in &node.inputs {
                let Place::Float(slot) = plan.value(*v).place else { panic!("all are floats") };
                assert_eq!(holds.get(&slot), Some(v), "{} reads %{}", node.op.name(), v.0);
            }
            for v in &node.outputs {
                let Place::Float(slot) = plan.value(*v).place else { panic!("all are floats") };
                let inputs = node.inputs.iter().map(|i| plan.value(*i).place);
                assert!(inputs.into_iter().all(|p| p != Place::Float(slot)));
                holds.insert(slot, *v);
            }
        }
        for (_, v) in &plan.outputs {
            let Place::Float(slot) = plan.value(*v).place else { panic!("all are floats") };
            assert_eq!(holds.get(&slot), Some(v), "output %{}", v.0);
        }
        assert!(plan.n_floats < graph.values.len() / 2, "{} buffers", plan.n_floats);
    }
}
