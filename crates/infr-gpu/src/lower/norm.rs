//! RMS norms, with a residual sum before them or without.

use infr_graph::{Fused, Node, NormSpec, Op};
use infr_kernels::KernelFamily;

use super::{Job, Lower, Lowered};
use crate::dispatch::Push;

impl Lower<'_> {
    pub(super) fn rms_norm(&mut self, node: &Node, spec: NormSpec) -> Lowered {
        let pick = self.kernel(KernelFamily::Norm, None)?;
        let (x, y) = (node.inputs[0], node.outputs[0]);
        let weight = self.vector(node, 0);
        let push = Push::addresses(&[
            self.site.batch.counts,
            self.address(x),
            0,
            weight,
            0,
            self.address(y),
        ])
        .u32(self.width(x) / spec.groups)
        .u32(spec.groups)
        .f32(spec.eps)
        .u32(self.row_kind(x).index());
        let job = Job {
            label: &self.label(node),
            spec: &[("add", 0)],
            push,
            grid: [spec.groups, self.n_rows(x), 1],
            reads: vec![self.value(x)],
            writes: vec![self.value(y)],
        };
        self.push(&pick, job)
    }

    /// The body is `sum = a + b`, `y = norm(sum)`.
    pub(super) fn add_norm(&mut self, node: &Node, fused: &Fused) -> Lowered {
        let [add, norm] = &fused.body[..] else { unreachable!("what the rule builds") };
        let Op::RmsNorm(spec) = norm.op else { unreachable!("what the rule builds") };
        let pick = self.kernel(KernelFamily::Norm, None)?;
        let (a, b, sum, y) = (add.inputs[0], add.inputs[1], add.outputs[0], norm.outputs[0]);
        let keeps_sum = node.outputs.contains(&sum);
        let push = Push::addresses(&[
            self.site.batch.counts,
            self.address(a),
            self.address(b),
            self.vector(norm, 0),
            if keeps_sum { self.address(sum) } else { 0 },
            self.address(y),
        ])
        .u32(self.width(a))
        .u32(1)
        .f32(spec.eps)
        .u32(self.row_kind(a).index());
        let mut writes = vec![self.value(y)];
        if keeps_sum {
            writes.push(self.value(sum));
        }
        let job = Job {
            label: &self.label(node),
            spec: &[("add", 1)],
            push,
            grid: [1, self.n_rows(a), 1],
            reads: vec![self.value(a), self.value(b)],
            writes,
        };
        self.push(&pick, job)
    }
}
