//! Matrix products, and two of them under a gated activation.

use infr_backend::BackendError;
use infr_graph::{Fused, LinearSpec, Node, Op};
use infr_kernels::{Ask, KernelFamily, Pick, Work};

use super::{Job, Lower, Lowered, elementwise, no_kernel};
use crate::dispatch::Push;

/// The addresses that a product reads beside its input.
#[derive(Clone, Copy, Default)]
struct Operands {
    weight: u64,
    bias: u64,
    scale: u64,
    up: u64,
    up_bias: u64,
}

impl<'a> Lower<'a> {
    pub(super) fn linear(&mut self, node: &Node, spec: LinearSpec) -> Lowered {
        let scale_place = 1 + usize::from(spec.bias);
        let operands = Operands {
            weight: self.matrix(node).0,
            bias: if spec.bias { self.vector(node, 1) } else { 0 },
            scale: if spec.scale { self.vector(node, scale_place) } else { 0 },
            ..Operands::default()
        };
        self.product(node, node, operands, 0)
    }

    /// The body is gate, up, activation.
    pub(super) fn gate_up_act(&mut self, fused: &Fused) -> Lowered {
        let [gate, up, act] = &fused.body[..] else { unreachable!("what the rule builds") };
        let (Op::Linear(spec), Op::GatedAct(function)) = (&gate.op, &act.op) else {
            unreachable!("what the rule builds")
        };
        let operands = Operands {
            weight: self.matrix(gate).0,
            bias: if spec.bias { self.vector(gate, 1) } else { 0 },
            scale: 0,
            up: self.matrix(up).0,
            up_bias: if spec.bias { self.vector(up, 1) } else { 0 },
        };
        self.product(gate, act, operands, 1 + elementwise::act_number(*function))
    }

    /// The variant for a matrix in this plan.
    fn linear_pick(&self, node: &Node, rows: u32) -> Result<Pick<'a>, BackendError> {
        let (outer, inner) = self.matrix_dims(node);
        let work = Work::Linear { rows, elems: u64::from(outer) * u64::from(inner) };
        let quant = Some(self.matrix(node).1);
        let ask = Ask { work, quant, strict: self.ground.strict };
        self.ground.selector.select(&ask).map_err(no_kernel)
    }

    fn product(&mut self, node: &Node, last: &Node, w: Operands, act: u32) -> Lowered {
        let (x, y) = (node.inputs[0], last.outputs[0]);
        let (outer, inner) = self.matrix_dims(node);
        let rows = self.n_rows(x);
        if rows == 0 {
            return Ok(());
        }
        let pick = self.linear_pick(node, rows)?;
        let tuned = |name| pick.tuned(name).map_err(no_kernel);
        let cols = match self.ground.strict {
            true => self.ground.selector.tuning.strict_cols,
            false => rows.next_power_of_two().min(self.ground.selector.tuning.max_cols),
        };
        let (spec, outs, rows_at_once) = match pick.kernel.family {
            KernelFamily::LinearVec => (vec![("act", act), ("cols", cols)], tuned("outs")?, cols),
            KernelFamily::LinearMat => {
                (vec![("act", act)], tuned("tile_outs")?, tuned("tile_rows")?)
            }
            other => {
                let what = format!("a ladder of products names {}", other.name());
                return Err(BackendError::Unsupported(what));
            }
        };
        let push = Push::addresses(&[
            self.site.batch.counts,
            self.address(x),
            w.weight,
            self.address(y),
            w.bias,
            w.scale,
            w.up,
            w.up_bias,
        ])
        .u32(inner)
        .u32(outer)
        .u32(self.row_kind(x).index());
        let (grid_x, grid_z) = self.flat(outer.div_ceil(outs));
        let job = Job {
            label: &self.label(node),
            spec: &spec,
            push,
            grid: [grid_x, rows.div_ceil(rows_at_once), grid_z],
            reads: vec![self.value(x)],
            writes: vec![self.value(y)],
        };
        self.push(&pick, job)
    }
}
