//! The reference: every op of the IR as plain loops. It is the definition that all else is compared with.
//!
//! Values are `f32`; sums, angles and activations are computed in `f64` and rounded once. One file per
//! group of ops; [`run`] is the only dispatch.

pub(crate) mod act;
pub(crate) mod attention;
pub(crate) mod conv;
pub(crate) mod delta;
pub(crate) mod elementwise;
pub(crate) mod embed;
pub(crate) mod expert_linear;
pub(crate) mod kv;
pub(crate) mod linear;
pub(crate) mod norm;
pub(crate) mod rope;
pub(crate) mod route;
pub(crate) mod sample;

use infr_backend::Batch;
use infr_graph::{BatchField, Node, Op};

use crate::arena::{Taken, Values};
use crate::state::States;
use crate::threads::ThreadPool;
use crate::weights::Weight;

/// What a step consists of, beside its values.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step<'a> {
    pub(crate) batch: &'a Batch,
    /// Token of every row, resolved.
    pub(crate) tokens: &'a [i32],
    pub(crate) positions: &'a [i32],
    /// Indices of the rows that give something back.
    pub(crate) out_rows: &'a [u32],
}

/// What a node may read.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) step: Step<'a>,
    pub(crate) weights: &'a [Weight],
    pub(crate) values: Values<'a>,
    pub(crate) pool: &'a ThreadPool,
}

impl<'a> Context<'a> {
    /// An `f32` input of a node.
    pub(crate) fn input(&self, node: &Node, index: usize) -> &'a [f32] {
        self.values.floats(node.inputs[index])
    }

    /// The ids of an input.
    pub(crate) fn ids(&self, node: &Node, index: usize) -> &'a [i32] {
        self.values.ids(node.inputs[index])
    }

    /// Elements of a row of an input.
    pub(crate) fn width(&self, node: &Node, index: usize) -> usize {
        self.values.width(node.inputs[index])
    }

    /// Elements of a row of the output.
    pub(crate) fn out_width(&self, node: &Node) -> usize {
        node.outputs.last().map_or(0, |v| self.values.width(*v))
    }

    /// A weight of a node.
    pub(crate) fn weight(&self, node: &Node, index: usize) -> &'a Weight {
        &self.weights[node.weights[index].index()]
    }

    /// A vector weight of a node, if the node has it.
    pub(crate) fn vector(&self, node: &Node, index: usize) -> Option<&'a [f32]> {
        node.weights.get(index).map(|w| self.weights[w.index()].values())
    }
}

/// Runs one node.
pub(crate) fn run(cx: &Context<'_>, node: &Node, states: &mut States, out: &mut Taken) {
    match &node.op {
        Op::Input(field) => input(cx, *field, out),
        Op::Embed => embed::embed(cx, node, out.floats()),
        Op::Linear(spec) => linear::linear(cx, node, *spec, out.floats()),
        Op::LinearTransposed => linear::linear_transposed(cx, node, out.floats()),
        Op::HeadLinear { heads } => linear::head_linear(cx, node, *heads, out.floats()),
        Op::ExpertLinear(spec) => expert_linear::expert_linear(cx, node, *spec, out.floats()),
        Op::RmsNorm(spec) => norm::rms_norm(cx, node, *spec, out.floats()),
        Op::L2Norm { eps, groups } => norm::l2_norm(cx, node, (*eps, *groups), out.floats()),
        Op::Rope(spec) => rope::rope(cx, node, spec, out.floats()),
        Op::PositionScale(spec) => rope::position_scale(cx, node, *spec, out.floats()),
        Op::KvWrite => kv::kv_write(cx, node, states.paged(node.state)),
        Op::Attention(spec) => {
            attention::attention(cx, node, spec, states.paged(node.state), out.floats());
        }
        Op::Route(spec) => route::route(cx, node, spec, out.both()),
        Op::Combine => route::combine(cx, node, out.floats()),
        Op::Spread => route::spread(cx, node, out.floats()),
        Op::GatedAct(function) => act::gated(cx, node, *function, out.floats()),
        Op::Unary(function) => act::unary(cx, node, *function, out.floats()),
        Op::Add => elementwise::binary(cx, node, out.floats(), |a, b| a + b),
        Op::Mul => elementwise::binary(cx, node, out.floats(), |a, b| a * b),
        Op::AddWeight => elementwise::with_weight(cx, node, out.floats(), |a, b| a + b),
        Op::MulWeight => elementwise::with_weight(cx, node, out.floats(), |a, b| a * b),
        Op::Scale { by } => elementwise::map(cx, node, out.floats(), |x| x * by),
        Op::Softcap { cap } => {
            let cap = f64::from(*cap);
            elementwise::map(cx, node, out.floats(), |x| {
                (cap * (f64::from(x) / cap).tanh()) as f32
            });
        }
        Op::Slice(spec) => elementwise::slice(cx, node, *spec, out.floats()),
        Op::Concat { groups } => elementwise::concat(cx, node, *groups, out.floats()),
        Op::Conv1d(spec) => conv::conv1d(cx, node, *spec, (states.slots(node.state), out.floats())),
        Op::DeltaNet(spec) => {
            let rule = (spec, delta::delta_head as delta::HeadRule);
            delta::delta_net(cx, node, rule, (states.slots(node.state), out.floats()));
        }
        Op::GatherOut => gather_out(cx, node, out.floats()),
        Op::Softmax => sample::softmax(cx, node, out.floats()),
        Op::Entropy => sample::entropy(cx, node, out.floats()),
        Op::Sample => sample::sample(cx, node, out.ids()),
        Op::Fused(_) => unreachable!("plans hold the bodies of fused nodes"),
    }
}

fn input(cx: &Context<'_>, field: BatchField, out: &mut Taken) {
    match field {
        BatchField::Tokens => out.ids().copy_from_slice(cx.step.tokens),
        BatchField::Positions => out.ids().copy_from_slice(cx.step.positions),
        BatchField::Carried { index, .. } => {
            out.floats().copy_from_slice(&cx.step.batch.carried[usize::from(index)].data);
        }
    }
}

fn gather_out(cx: &Context<'_>, node: &Node, out: &mut [f32]) {
    let (x, width) = (cx.input(node, 0), cx.width(node, 0));
    for (out, row) in out.chunks_mut(width).zip(cx.step.out_rows) {
        out.copy_from_slice(&x[*row as usize * width..][..width]);
    }
}
