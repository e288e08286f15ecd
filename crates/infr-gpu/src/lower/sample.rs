//! Sampling, and what goes back to the host beside tokens.

use infr_graph::{Node, ValueId};
use infr_kernels::KernelFamily;

use super::{Job, Lower, Lowered, elementwise, no_kernel};
use crate::dispatch::Push;

impl Lower<'_> {
    pub(super) fn sample(&mut self, node: &Node) -> Lowered {
        let pick = self.kernel(KernelFamily::Sample, None)?;
        let (logits, ids) = (node.inputs[0], node.outputs[0]);
        let (batch, last) = (self.site.batch, self.ground.states.last.clone());
        let push = Push::addresses(&[
            batch.counts,
            self.address(logits),
            batch.params,
            last.start,
            batch.results,
            self.address(ids),
        ])
        .u32(self.width(logits));
        let rows = self.n_rows(logits);
        let job = Job {
            label: &self.label(node),
            spec: &[],
            push,
            grid: [1, rows, 1],
            reads: vec![self.value(logits)],
            writes: vec![last, self.value(ids)],
        };
        self.push(&pick, job)
    }

    /// Copies what goes back to the host.
    pub(super) fn copy_back(&mut self) -> Lowered {
        let batch = self.site.batch;
        batch.back.iter().try_for_each(|(value, to)| self.copy_rows(*value, *to))
    }

    fn copy_rows(&mut self, x: ValueId, to: u64) -> Lowered {
        let pick = self.kernel(KernelFamily::Unary, None)?;
        let wg = pick.tuned("wg").map_err(no_kernel)?;
        let (width, rows) = (self.width(x), self.n_rows(x));
        let push = Push::addresses(&[self.site.batch.counts, self.address(x), to])
            .u32(width)
            .f32(0.0)
            .u32(self.row_kind(x).index());
        let bytes = 4 * u64::from(width) * u64::from(rows);
        let job = Job {
            label: "copy back",
            spec: &[("func", elementwise::COPY)],
            push,
            grid: [width.div_ceil(wg), rows, 1],
            reads: vec![self.value(x)],
            writes: std::iter::once(to..to + bytes).collect(),
        };
        self.push(&pick, job)
    }
}
