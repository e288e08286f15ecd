//! A graph made ready for one shape class: optimised, placed in the arena, lowered.

use std::ops::Range;

use infr_backend::BackendError;
use infr_graph::passes::{memory, optimise};
use infr_graph::{BatchField, Graph, Node, Op, Output, Phase, Program, ShapeClass, ValueId};
use infr_tensor::{DType, Dim};

use crate::barrier::with_barriers;
use crate::batch_buffers::BatchPlaces;
use crate::dispatch::DispatchList;
use crate::lower::{Ground, Lower, RowKind, Site, Support, scratch_bytes};

/// How far beyond its last reader a value's memory is kept: memory that is taken again at once makes
/// dispatches wait that could run together.
const SLACK: usize = 2;

/// What the host must know of a graph, whatever the class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Signature {
    pub(crate) phase: Phase,
    /// Width of the logits.
    pub(crate) logits: Option<u32>,
    /// Width of the hidden rows.
    pub(crate) hidden: Option<u32>,
    /// Whether the graph samples.
    pub(crate) samples: bool,
    /// Token ids must be below this.
    pub(crate) vocab: Option<u32>,
    /// Index and width of the carried values that the graph reads.
    pub(crate) carried: Vec<(u8, u32)>,
    /// Whether carried values leave the graph.
    pub(crate) carries: bool,
}

impl Signature {
    /// The facts of a verified graph.
    pub(crate) fn new(phase: Phase, graph: &Graph, program: &Program) -> Signature {
        let logits = logits(graph);
        let samples = graph.nodes.iter().any(|n| n.op == Op::Sample);
        let width = |value: ValueId| graph.value(value).shape.width().unwrap_or(1);
        let tables = graph.nodes.iter().filter(|n| n.op == Op::Embed);
        let vocab = tables.filter_map(|n| {
            match program.weights[n.weights[0].index()].desc.shape.0.first() {
                Some(Dim::Fixed(rows)) => Some(*rows),
                _ => None,
            }
        });
        let carried = graph.nodes.iter().filter_map(|n| match n.op {
            Op::Input(BatchField::Carried { index, width }) => Some((index, width)),
            _ => None,
        });
        Signature {
            carried: carried.collect(),
            carries: graph.outputs.iter().any(|(kind, _)| matches!(kind, Output::Carried(_))),
            phase,
            logits: logits.map(width),
            hidden: graph.output(Output::Hidden).map(width),
            samples,
            vocab: vocab.min(),
        }
    }
}

/// A value that leaves the graph, in the arena.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Leaving {
    pub(crate) kind: Output,
    /// Offset in the arena.
    pub(crate) offset: u64,
    pub(crate) width: u32,
    pub(crate) rows: RowKind,
    pub(crate) is_ids: bool,
}

/// The logits that rows are sampled from.
fn logits(graph: &Graph) -> Option<ValueId> {
    let sample = graph.nodes.iter().find(|n| n.op == Op::Sample);
    graph.output(Output::Logits).or(sample.map(|n| n.inputs[0]))
}

/// What of a step goes back to the host beside tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Back {
    pub(crate) logits: bool,
    pub(crate) hidden: bool,
    pub(crate) carried: bool,
}

/// A value that goes back to the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BackValue {
    pub(crate) kind: Output,
    pub(crate) value: ValueId,
    /// Offset in the memory that the host reads.
    pub(crate) offset: u64,
    pub(crate) width: u32,
    pub(crate) rows: RowKind,
}

/// A graph in one class, before anything is at an address.
#[derive(Debug)]
pub(crate) struct Plan {
    graph: Graph,
    class: ShapeClass,
    /// Offset and bytes of every value in the arena; batch arrays have none.
    values: Vec<Option<(u64, u64)>>,
    /// Offset and bytes of every node's scratch.
    scratch: Vec<(u64, u64)>,
    /// Bytes of the arena.
    pub(crate) arena: u64,
}

impl Plan {
    /// Optimises and places a graph.
    ///
    /// # Errors
    /// When a pass breaks the graph, which is a bug.
    pub(crate) fn new(
        graph: &Graph,
        ground: &Ground<'_>,
        class: ShapeClass,
        fuse: bool,
    ) -> Result<Plan, BackendError> {
        let support = Support { selector: ground.selector, fuse };
        let graph = optimise(graph, ground.program, class, &support)
            .map_err(|e| BackendError::Unsupported(e.to_string()))?;
        let mut blocks = Vec::new();
        let mut add = |block: memory::Block| {
            blocks.push(block);
            blocks.len() - 1
        };
        let lives = lives(&graph);
        let mut value_blocks = vec![None; graph.values.len()];
        for (value, life) in lives.into_iter().enumerate() {
            let Some((first, last)) = life else { continue };
            let id = ValueId(value as u32);
            let rows = RowKind::of(&graph, id).bound(class);
            let width = graph.value(id).shape.width().unwrap_or(1);
            let bytes = 4 * u64::from(rows) * u64::from(width);
            value_blocks[value] = Some((add(memory::Block { bytes, first, last }), bytes));
        }
        let mut scratch_blocks = Vec::new();
        for (index, node) in graph.nodes.iter().enumerate() {
            let bytes = scratch_bytes(node, class, ground.selector, ground.strict);
            let block = memory::Block { bytes, first: index, last: index + SLACK };
            scratch_blocks.push((add(block), bytes));
        }
        let placed = memory::place(&blocks);
        let at = |(block, bytes): (usize, u64)| (placed.offsets[block], bytes);
        Ok(Plan {
            values: value_blocks.into_iter().map(|b| b.map(at)).collect(),
            scratch: scratch_blocks.into_iter().map(at).collect(),
            arena: placed.total,
            graph,
            class,
        })
    }

    /// The dispatches with the arena and the batch arrays at their addresses.
    ///
    /// # Errors
    /// When an op or a type has no kernel.
    pub(crate) fn lower(
        &self,
        ground: Ground<'_>,
        batch: &BatchPlaces,
        arena: u64,
    ) -> Result<DispatchList, BackendError> {
        let range = |(offset, bytes): (u64, u64)| arena + offset..arena + offset + bytes;
        let mut values: Vec<Range<u64>> =
            self.values.iter().map(|v| v.map_or(0..0, range)).collect();
        for node in &self.graph.nodes {
            let address = match node.op {
                Op::Input(BatchField::Tokens) => batch.tokens,
                Op::Input(BatchField::Positions) => batch.positions,
                Op::Input(BatchField::Carried { index, .. }) => {
                    let place = batch.carried.iter().find(|(i, _)| *i == index);
                    place.expect("the arrays are made for all carried values").1
                }
                _ => continue,
            };
            let width = self.graph.value(node.outputs[0]).shape.width().unwrap_or(1);
            let bytes = 4 * u64::from(self.class.rows) * u64::from(width);
            values[node.outputs[0].index()] = address..address + bytes;
        }
        let scratch: Vec<Range<u64>> = self.scratch.iter().copied().map(range).collect();
        let site = Site {
            graph: &self.graph,
            class: self.class,
            batch,
            values: &values,
            scratch: &scratch,
        };
        Ok(with_barriers(Lower::run(ground, site)?))
    }

    /// The values that go back, one behind the other, and their bytes.
    pub(crate) fn back(&self, back: Back) -> (Vec<BackValue>, u64) {
        let mut kinds = Vec::new();
        if let Some(value) = logits(&self.graph).filter(|_| back.logits) {
            kinds.push((Output::Logits, value));
        }
        kinds.extend(self.graph.outputs.iter().copied().filter(|(kind, _)| match kind {
            Output::Hidden => back.hidden,
            Output::Carried(_) => back.carried,
            Output::Logits | Output::Tokens => false,
        }));
        let mut end = 0;
        let value = |(kind, value): (Output, ValueId)| {
            let rows = RowKind::of(&self.graph, value);
            let width = self.graph.value(value).shape.width().unwrap_or(1);
            let offset = end;
            let bytes = 4 * u64::from(width) * u64::from(rows.bound(self.class));
            end = (end + bytes).next_multiple_of(memory::ALIGN);
            BackValue { kind, value, offset, width, rows }
        };
        let values = kinds.into_iter().map(value).collect();
        (values, end)
    }

    /// Every value that leaves the graph, in the graph's order; `None` for batch arrays.
    pub(crate) fn leaving(&self) -> Vec<Option<Leaving>> {
        let leaving = |(kind, value): &(Output, ValueId)| {
            let desc = self.graph.value(*value);
            let (offset, _) = self.values[value.index()]?;
            Some(Leaving {
                kind: *kind,
                offset,
                width: desc.shape.width().unwrap_or(1),
                rows: RowKind::of(&self.graph, *value),
                is_ids: desc.dtype == DType::I32,
            })
        };
        self.graph.outputs.iter().map(leaving).collect()
    }
}

/// First and last step of every value that lives in the arena.
fn lives(graph: &Graph) -> Vec<Option<(usize, usize)>> {
    fn touch(node: &Node, index: usize, lives: &mut [Option<(usize, usize)>]) {
        if let Op::Input(_) = node.op {
            return;
        }
        if let Op::Fused(fused) = &node.op {
            // A kernel may write what the body defines, even when nothing outside reads it.
            fused.body.iter().for_each(|inner| touch(inner, index, lives));
        }
        for value in &node.outputs {
            lives[value.index()].get_or_insert((index, index));
        }
        for value in node.inputs.iter().chain(&node.outputs) {
            if let Some(life) = &mut lives[value.index()] {
                life.1 = index + SLACK;
            }
        }
    }
    let mut lives = vec![None; graph.values.len()];
    for (index, node) in graph.nodes.iter().enumerate() {
        touch(node, index, &mut lives);
    }
    let logits = logits(graph);
    for value in graph.outputs.iter().map(|(_, v)| v).chain(&logits) {
        if let Some(life) = &mut lives[value.index()] {
            life.1 = usize::MAX;
        }
    }
    lives
}
