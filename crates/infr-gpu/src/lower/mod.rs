//! From an optimised graph to dispatches: one file per group of ops, dispatch without logic here.
//!
//! Lowering stands on places alone (addresses and geometry), so the same code checks a program before
//! anything is loaded.

mod attention;
mod elementwise;
mod embed;
mod linear;
mod norm;
mod rope_kv;
mod sample;

use std::ops::Range;

use infr_backend::BackendError;
use infr_graph::{Fused, FusedKind, FusionSupport, Graph, Node, Op, Program, ShapeClass, ValueId};
use infr_kernels::{Ask, KernelError, KernelFamily, Pick, Selector, Work};
use infr_tensor::{DType, Dim};

pub(crate) use attention::scratch_bytes;

use crate::batch_buffers::BatchPlaces;
use crate::dispatch::{Dispatch, Grid, Push};
use crate::places::{StatePlaces, WeightPlace};
use crate::rope::RopeTables;

/// The place in `counts` that bounds a kernel's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowKind {
    /// Rows of the batch.
    Batch,
    /// Output rows.
    Out,
}

impl RowKind {
    /// The rows of a value.
    pub(crate) fn of(graph: &Graph, value: ValueId) -> RowKind {
        match graph.value(value).shape.0.first() {
            Some(Dim::OutRows) => RowKind::Out,
            Some(Dim::Rows | Dim::Fixed(_)) | None => RowKind::Batch,
        }
    }

    /// The most rows in a class.
    pub(crate) fn bound(self, class: ShapeClass) -> u32 {
        match self {
            RowKind::Batch => class.rows,
            RowKind::Out => class.out_rows,
        }
    }

    /// Index into the counts.
    fn index(self) -> u32 {
        match self {
            RowKind::Batch => 0,
            RowKind::Out => 2,
        }
    }
}

/// What a program stands on, whatever the class.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ground<'a> {
    pub(crate) program: &'a Program,
    pub(crate) selector: &'a Selector,
    pub(crate) weights: &'a [WeightPlace],
    pub(crate) states: &'a StatePlaces,
    pub(crate) ropes: &'a RopeTables,
    pub(crate) strict: bool,
}

/// What one plan stands on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Site<'a> {
    pub(crate) graph: &'a Graph,
    pub(crate) class: ShapeClass,
    pub(crate) batch: &'a BatchPlaces,
    /// Address range of every value.
    pub(crate) values: &'a [Range<u64>],
    /// Address range of every node's scratch.
    pub(crate) scratch: &'a [Range<u64>],
}

/// One launch before its kernel is chosen.
struct Job<'a> {
    label: &'a str,
    spec: &'a [(&'a str, u32)],
    push: Push,
    grid: [u32; 3],
    reads: Vec<Range<u64>>,
    writes: Vec<Range<u64>>,
}

/// Lowers one graph.
pub(crate) struct Lower<'a> {
    ground: Ground<'a>,
    site: Site<'a>,
    dispatches: Vec<Dispatch>,
}

pub(crate) type Lowered = Result<(), BackendError>;

/// A table that lacks something is a device that cannot run the program.
pub(crate) fn no_kernel(error: KernelError) -> BackendError {
    BackendError::Unsupported(error.to_string())
}

fn unsupported(op: &Op) -> Lowered {
    Err(BackendError::Unsupported(format!("op {}", op.name())))
}

impl<'a> Lower<'a> {
    /// The dispatches of a whole graph, in order.
    ///
    /// # Errors
    /// When an op or a type has no kernel.
    pub(crate) fn run(ground: Ground<'a>, site: Site<'a>) -> Result<Vec<Dispatch>, BackendError> {
        let mut lower = Lower { ground, site, dispatches: Vec::new() };
        for (index, node) in site.graph.nodes.iter().enumerate() {
            lower.node(index, node)?;
        }
        lower.copy_back()?;
        Ok(lower.dispatches)
    }

    fn node(&mut self, index: usize, node: &'a Node) -> Lowered {
        match &node.op {
            // Inputs are arrays of the batch.
            Op::Input(_) => Ok(()),
            Op::Embed => self.embed(node),
            Op::Linear(spec) => self.linear(node, *spec),
            Op::LinearTransposed => unsupported(&node.op),
            Op::HeadLinear { .. } => unsupported(&node.op),
            Op::ExpertLinear(_) => unsupported(&node.op),
            Op::RmsNorm(spec) => self.rms_norm(node, *spec),
            Op::L2Norm { .. } => unsupported(&node.op),
            Op::Rope(spec) => self.rope(node, spec),
            Op::PositionScale(_) => unsupported(&node.op),
            Op::KvWrite => self.kv_write(node),
            Op::Attention(spec) => self.attention(index, node, spec),
            Op::Route(_) => unsupported(&node.op),
            Op::Combine => unsupported(&node.op),
            Op::Spread => unsupported(&node.op),
            Op::GatedAct(act) => self.gated_act(node, *act),
            Op::Unary(function) => self.unary(node, *function),
            Op::Add => self.binary(node, elementwise::Binary::Add),
            Op::Mul => self.binary(node, elementwise::Binary::Mul),
            Op::AddWeight => self.with_weight(node, elementwise::Binary::Add),
            Op::MulWeight => self.with_weight(node, elementwise::Binary::Mul),
            Op::Scale { by } => self.scale(node, *by),
            Op::Softcap { cap } => self.softcap(node, *cap),
            Op::Slice(spec) => self.slice(node, *spec),
            Op::Concat { groups } => self.concat(node, *groups),
            Op::Conv1d(_) => unsupported(&node.op),
            Op::DeltaNet(_) => unsupported(&node.op),
            Op::GatherOut => self.gather_out(node),
            Op::Softmax | Op::Entropy => unsupported(&node.op),
            Op::Sample => self.sample(node),
            Op::Fused(fused) => self.fused(node, fused),
        }
    }

    fn fused(&mut self, node: &'a Node, fused: &'a Fused) -> Lowered {
        match fused.kind {
            FusedKind::AddNorm => self.add_norm(node, fused),
            FusedKind::GateUpAct => self.gate_up_act(fused),
            FusedKind::RopeKv => self.rope_kv(node, fused),
        }
    }

    /// The variant of a kernel that has no alternatives.
    fn kernel(&self, family: KernelFamily, quant: Option<DType>) -> Result<Pick<'a>, BackendError> {
        let ask = Ask { work: Work::Kernel(family), quant, strict: self.ground.strict };
        self.ground.selector.select(&ask).map_err(no_kernel)
    }

    fn push(&mut self, pick: &Pick<'_>, job: Job<'_>) -> Lowered {
        if job.grid.contains(&0) {
            return Ok(());
        }
        let most = self.ground.selector.profile.max_grid;
        if job.grid.iter().zip(most).any(|(n, most)| *n > most) {
            let what = format!("{}: a grid of {:?}, at most {most:?}", job.label, job.grid);
            return Err(BackendError::Unsupported(what));
        }
        self.dispatches.push(Dispatch {
            label: job.label.to_owned(),
            kernel: pick.id,
            spec: pick.spec(job.spec).map_err(no_kernel)?,
            push: job.push.finish(),
            grid: Grid::Fixed(job.grid),
            reads: job.reads,
            writes: job.writes,
        });
        Ok(())
    }

    /// x and z of a grid with `n` workgroups along its flat index.
    fn flat(&self, n: u32) -> (u32, u32) {
        let most = self.ground.selector.profile.max_grid[0];
        let z = n.div_ceil(most).max(1);
        (n.div_ceil(z), z)
    }

    fn value(&self, id: ValueId) -> Range<u64> {
        self.site.values[id.index()].clone()
    }

    fn address(&self, id: ValueId) -> u64 {
        self.site.values[id.index()].start
    }

    fn width(&self, id: ValueId) -> u32 {
        self.site.graph.value(id).shape.width().unwrap_or(1)
    }

    fn row_kind(&self, id: ValueId) -> RowKind {
        RowKind::of(self.site.graph, id)
    }

    fn n_rows(&self, id: ValueId) -> u32 {
        self.row_kind(id).bound(self.site.class)
    }

    /// Address of a vector weight of a node, 0 when the node has none at this place.
    fn vector(&self, node: &Node, index: usize) -> u64 {
        let id = node.weights.get(index);
        id.and_then(|w| self.ground.weights[w.index()].vector).unwrap_or(0)
    }

    fn matrix(&self, node: &Node) -> (u64, DType) {
        let found = self.ground.weights[node.weights[0].index()].matrix;
        found.expect("the weight's form follows from its readers")
    }

    /// Elements of a weight's slowest and fastest dimension.
    fn matrix_dims(&self, node: &Node) -> (u32, u32) {
        let shape = &self.ground.program.weights[node.weights[0].index()].desc.shape.0;
        match shape[..] {
            [Dim::Fixed(outer), Dim::Fixed(inner)] => (outer, inner),
            _ => unreachable!("the verifier checked the matrix's shape"),
        }
    }

    fn label(&self, node: &Node) -> String {
        let name = node.weights.first().map(|w| &self.ground.program.weights[w.index()].name);
        match name {
            Some(name) => format!("{} {name}", node.op.name()),
            None => match node.layer {
                Some(layer) => format!("{} layer {layer}", node.op.name()),
                None => node.op.name().to_owned(),
            },
        }
    }
}

/// The fusions that the kernels of a table can compute.
pub(crate) struct Support<'a> {
    pub(crate) selector: &'a Selector,
    pub(crate) fuse: bool,
}

impl FusionSupport for Support<'_> {
    fn accepts(&self, fused: &Fused, _: &Program, _: ShapeClass) -> bool {
        self.fuse
            && match fused.kind {
                // The kernels of the unfused ops compute these as well.
                FusedKind::AddNorm | FusedKind::GateUpAct => true,
                FusedKind::RopeKv => self.selector.table.kernel(KernelFamily::RopeKv).is_some(),
            }
    }
}
