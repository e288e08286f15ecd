//! Token embedding and the gather of output rows.

use infr_backend::BackendError;
use infr_graph::{BatchField, Node, Op};
use infr_kernels::KernelFamily;

use super::{Job, Lower, Lowered};
use crate::dispatch::Push;

impl Lower<'_> {
    pub(super) fn embed(&mut self, node: &Node) -> Lowered {
        let defined = self.site.graph.nodes.iter().find(|n| n.outputs.contains(&node.inputs[0]));
        // The kernel resolves tokens of steps in flight, so it reads the batch's tokens themselves.
        if defined.map(|n| &n.op) != Some(&Op::Input(BatchField::Tokens)) {
            return Err(BackendError::Unsupported("an embedding of computed ids".into()));
        }
        let (table, dtype) = self.matrix(node);
        let pick = self.kernel(KernelFamily::Embed, Some(dtype))?;
        let wg = pick.tuned("wg").map_err(super::no_kernel)?;
        let y = node.outputs[0];
        let width = self.width(y);
        let (batch, last) = (self.site.batch, self.ground.states.last.clone());
        let push =
            Push::addresses(&[batch.counts, batch.tokens, last.start, table, self.address(y)])
                .u32(width);
        let job = Job {
            label: &self.label(node),
            spec: &[],
            push,
            grid: [width.div_ceil(wg), self.n_rows(y), 1],
            reads: vec![last],
            writes: vec![self.value(y)],
        };
        self.push(&pick, job)
    }

    pub(super) fn gather_out(&mut self, node: &Node) -> Lowered {
        let pick = self.kernel(KernelFamily::GatherRows, None)?;
        let wg = pick.tuned("wg").map_err(super::no_kernel)?;
        let (x, y) = (node.inputs[0], node.outputs[0]);
        let width = self.width(y);
        let batch = self.site.batch;
        let push =
            Push::addresses(&[batch.counts, batch.out_rows, self.address(x), self.address(y)])
                .u32(width);
        let job = Job {
            label: &self.label(node),
            spec: &[],
            push,
            grid: [width.div_ceil(wg), self.n_rows(y), 1],
            reads: vec![self.value(x)],
            writes: vec![self.value(y)],
        };
        self.push(&pick, job)
    }
}
