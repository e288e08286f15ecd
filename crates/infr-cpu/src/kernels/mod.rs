//! The ops that SIMD kernels compute; every other op, and what a kernel does not take, falls back to the
//! reference.
//!
//! A row's arithmetic in these kernels does not depend on its neighbours in the batch: matrix tiles sum
//! every row in the same order whatever the number of rows, and attention cuts a row's context at
//! multiples of the absolute position. So every step is batch-invariant, with the `strict` option or
//! without.

mod attention;
mod delta;
mod products;
mod rows;

use infr_graph::{Node, Op};

use self::attention::VisibleCache;
use self::products::Products;
use self::rows::AngleCache;
use crate::arena::Taken;
use crate::fast::{Runner, SimdLevel};
use crate::ops::Context;
use crate::ops::delta::{HeadRule, delta_net};
use crate::state::States;
use crate::threads::ThreadPool;
use crate::weights::{Uses, Weight};

/// Kernels with the weights in their layout and the buffers that they work in.
#[derive(Debug)]
pub(crate) struct Kernels {
    level: SimdLevel,
    products: Products,
    visible: VisibleCache,
    angles: AngleCache,
    scratch: [Vec<f32>; 2],
}

impl Kernels {
    /// Puts the weights in kernel layout.
    pub(crate) fn new(
        level: SimdLevel,
        pool: &ThreadPool,
        weights: &mut [Weight],
        uses: &[Uses],
    ) -> Kernels {
        Kernels {
            level,
            products: Products::new(pool, weights, uses),
            visible: VisibleCache::default(),
            angles: AngleCache::default(),
            scratch: [Vec::new(), Vec::new()],
        }
    }

    /// Bytes of packed weights.
    pub(crate) fn size(&self) -> u64 {
        self.products.size()
    }

    /// Forgets the values of the step before.
    pub(crate) fn begin_step(&mut self) {
        self.products.begin_step();
        self.visible.forget();
        self.angles.begin_step();
    }

    /// Natural logarithm of the sum of exponentials of `logits`.
    pub(crate) fn log_sum_exp(&mut self, pool: &ThreadPool, logits: &[f32]) -> f64 {
        rows::log_sum_exp(Runner { pool, level: self.level }, logits, &mut self.scratch)
    }

    /// Runs a node, or says that the reference has to.
    pub(crate) fn run(
        &mut self,
        cx: &Context<'_>,
        node: &Node,
        states: &mut States,
        out: &mut Taken,
    ) -> bool {
        let on = (cx, Runner { pool: cx.pool, level: self.level });
        match &node.op {
            Op::Linear(spec) => self.products.linear(on, node, *spec, out.floats()),
            Op::HeadLinear { heads } => {
                self.products.head_linear(on, node, *heads as usize, out.floats())
            }
            Op::ExpertLinear(spec) => self.products.expert_linear(on, node, *spec, out.floats()),
            Op::Attention(spec) => {
                let cache = states.paged(node.state);
                attention::attention(on, node, spec, &mut self.visible, (cache, out.floats()));
                true
            }
            Op::RmsNorm(spec) => {
                rows::norm(on, node, *spec, out.floats());
                true
            }
            Op::Rope(spec) => {
                self.angles.rope(on, node, spec, out.floats());
                true
            }
            Op::Softcap { cap } => {
                rows::softcap(on, node, *cap, (&mut self.scratch[0], out.floats()));
                true
            }
            Op::Softmax => {
                rows::probabilities(on, node, out.floats());
                true
            }
            Op::DeltaNet(spec) => {
                let rule = (spec, delta::head as HeadRule);
                delta_net(cx, node, rule, (states.slots(node.state), out.floats()));
                true
            }
            Op::Add => rows::sum(on, node, out.floats()),
            Op::GatedAct(function) => rows::gated(on, node, *function, out.floats()),
            Op::Unary(function) => rows::unary(on, node, *function, out.floats()),
            Op::Input(_)
            | Op::Embed
            | Op::LinearTransposed
            | Op::L2Norm { .. }
            | Op::PositionScale(_)
            | Op::KvWrite
            | Op::Route(_)
            | Op::Combine
            | Op::Spread
            | Op::Mul
            | Op::AddWeight
            | Op::MulWeight
            | Op::Scale { .. }
            | Op::Slice(_)
            | Op::Concat { .. }
            | Op::Conv1d(_)
            | Op::GatherOut
            | Op::Entropy
            | Op::Sample
            | Op::Fused(_) => false,
        }
    }
}
