//! Functions of each element, and the moving of row parts.

use infr_graph::{GateAct, Node, SliceSpec, Unary, ValueId};
use infr_kernels::KernelFamily;

use super::{Job, Lower, Lowered, no_kernel};
use crate::dispatch::Push;

/// Functions of two values, by the contract's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Binary {
    Add = 0,
    Mul = 1,
}

/// The contract's number of a scale.
const SCALE: u32 = 6;
/// The contract's number of a soft cap.
const SOFTCAP: u32 = 7;
/// The contract's number of a copy.
pub(super) const COPY: u32 = 8;

/// The contract's number of an activation.
pub(super) fn act_number(act: GateAct) -> u32 {
    match act {
        GateAct::Silu => 0,
        GateAct::Gelu => 1,
        GateAct::ReluSquared => 2,
        GateAct::Sigmoid => 3,
        GateAct::OaiClamped => 4,
    }
}

fn unary_number(function: Unary) -> u32 {
    match function {
        Unary::Silu => 0,
        Unary::Gelu => 1,
        Unary::Sigmoid => 2,
        Unary::Tanh => 3,
        Unary::Softplus => 4,
        Unary::Exp => 5,
    }
}

impl Lower<'_> {
    /// Launches over parts of `wg` elements of every row of `y`.
    fn over_elements(
        &mut self,
        family: KernelFamily,
        node: &Node,
        spec: &[(&str, u32)],
        push: Push,
    ) -> Lowered {
        let pick = self.kernel(family, None)?;
        let wg = pick.tuned("wg").map_err(no_kernel)?;
        let y = node.outputs[0];
        let job = Job {
            label: &self.label(node),
            spec,
            push,
            grid: [self.width(y).div_ceil(wg), self.n_rows(y), 1],
            reads: node.inputs.iter().map(|v| self.value(*v)).collect(),
            writes: vec![self.value(y)],
        };
        self.push(&pick, job)
    }

    fn addresses(&self, values: &[ValueId]) -> Vec<u64> {
        let counts = std::iter::once(self.site.batch.counts);
        counts.chain(values.iter().map(|v| self.address(*v))).collect()
    }

    pub(super) fn gated_act(&mut self, node: &Node, act: GateAct) -> Lowered {
        let (gate, up, y) = (node.inputs[0], node.inputs[1], node.outputs[0]);
        let push = Push::addresses(&self.addresses(&[gate, up, y]))
            .u32(self.width(y))
            .u32(self.row_kind(y).index());
        self.over_elements(KernelFamily::GatedAct, node, &[("act", act_number(act))], push)
    }

    pub(super) fn unary(&mut self, node: &Node, function: Unary) -> Lowered {
        self.function(node, unary_number(function), 0.0)
    }

    pub(super) fn scale(&mut self, node: &Node, by: f32) -> Lowered {
        self.function(node, SCALE, by)
    }

    pub(super) fn softcap(&mut self, node: &Node, cap: f32) -> Lowered {
        self.function(node, SOFTCAP, cap)
    }

    fn function(&mut self, node: &Node, number: u32, param: f32) -> Lowered {
        let (x, y) = (node.inputs[0], node.outputs[0]);
        let push = Push::addresses(&self.addresses(&[x, y]))
            .u32(self.width(y))
            .f32(param)
            .u32(self.row_kind(y).index());
        self.over_elements(KernelFamily::Unary, node, &[("func", number)], push)
    }

    pub(super) fn binary(&mut self, node: &Node, function: Binary) -> Lowered {
        let (a, b, y) = (node.inputs[0], node.inputs[1], node.outputs[0]);
        let stride = self.width(b);
        let push = Push::addresses(&self.addresses(&[a, b, y]))
            .u32(self.width(a))
            .u32(self.width(a) / stride)
            .u32(stride)
            .u32(self.row_kind(a).index());
        self.over_elements(KernelFamily::Binary, node, &[("func", function as u32)], push)
    }

    pub(super) fn with_weight(&mut self, node: &Node, function: Binary) -> Lowered {
        let (a, y) = (node.inputs[0], node.outputs[0]);
        let shape = &self.ground.program.weights[node.weights[0].index()].desc.shape;
        let push = Push::addresses(&[
            self.site.batch.counts,
            self.address(a),
            self.vector(node, 0),
            self.address(y),
        ])
        .u32(self.width(a))
        .u32(shape.width().unwrap_or(1))
        .u32(0)
        .u32(self.row_kind(a).index());
        self.over_elements(KernelFamily::Binary, node, &[("func", function as u32)], push)
    }

    pub(super) fn slice(&mut self, node: &Node, spec: SliceSpec) -> Lowered {
        let (x, y) = (node.inputs[0], node.outputs[0]);
        let push = Push::addresses(&self.addresses(&[x, y]))
            .u32(self.width(x) / spec.groups)
            .u32(spec.start)
            .u32(spec.len)
            .u32(spec.groups)
            .u32(self.row_kind(x).index());
        self.over_elements(KernelFamily::Slice, node, &[], push)
    }

    pub(super) fn concat(&mut self, node: &Node, groups: u32) -> Lowered {
        let (a, b, y) = (node.inputs[0], node.inputs[1], node.outputs[0]);
        let push = Push::addresses(&self.addresses(&[a, b, y]))
            .u32(self.width(a) / groups)
            .u32(self.width(b) / groups)
            .u32(groups)
            .u32(self.row_kind(a).index());
        self.over_elements(KernelFamily::Concat, node, &[], push)
    }
}
