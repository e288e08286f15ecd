//! Ops on single rows: norms, rotations, activations, sums.

use infr_graph::{GateAct, Node, NormSpec, RopeSpec, RopeStyle, Unary, WeightId, Yarn};

use crate::fast::Runner;
use crate::fast::rows::{
    Activation, RopePairs, RopeShape, activate, add, rms_norm_rows, rope, softmax,
};
use crate::ops::Context;
use crate::ops::rope::frequencies;
use crate::ops::sample::temperature;
use crate::par::for_parts;

/// [`infr_graph::Op::RmsNorm`].
pub(super) fn norm(
    (cx, run): (&Context<'_>, Runner<'_>),
    node: &Node,
    spec: NormSpec,
    out: &mut [f32],
) {
    let len = cx.width(node, 0) / spec.groups as usize;
    rms_norm_rows(run, (cx.input(node, 0), len), cx.vector(node, 0), spec.eps, out);
}

/// [`infr_graph::Op::Add`] of rows of one width; `false` when the reference has to.
pub(super) fn sum((cx, run): (&Context<'_>, Runner<'_>), node: &Node, out: &mut [f32]) -> bool {
    let same = cx.width(node, 0) == cx.width(node, 1);
    if same {
        add(run, cx.input(node, 0), cx.input(node, 1), out);
    }
    same
}

/// [`infr_graph::Op::GatedAct`]; `false` when the reference has to.
pub(super) fn gated(
    (cx, run): (&Context<'_>, Runner<'_>),
    node: &Node,
    function: GateAct,
    out: &mut [f32],
) -> bool {
    let act = match function {
        GateAct::Silu => Activation::Silu,
        GateAct::Gelu => Activation::Gelu,
        GateAct::ReluSquared => Activation::ReluSquared,
        GateAct::Sigmoid => Activation::Sigmoid,
        GateAct::OaiClamped => return false,
    };
    activate(run, act, cx.input(node, 0), Some(cx.input(node, 1)), out);
    true
}

/// [`infr_graph::Op::Unary`]; `false` when the reference has to.
pub(super) fn unary(
    (cx, run): (&Context<'_>, Runner<'_>),
    node: &Node,
    function: Unary,
    out: &mut [f32],
) -> bool {
    let act = match function {
        Unary::Silu => Activation::Silu,
        Unary::Gelu => Activation::Gelu,
        Unary::Sigmoid => Activation::Sigmoid,
        Unary::Tanh => Activation::Tanh,
        Unary::Exp => Activation::Exp,
        Unary::Softplus => return false,
    };
    activate(run, act, cx.input(node, 0), None, out);
    true
}

/// [`infr_graph::Op::Softcap`]; `scratch` is kept between calls.
pub(super) fn softcap(
    (cx, run): (&Context<'_>, Runner<'_>),
    node: &Node,
    cap: f32,
    (scratch, out): (&mut Vec<f32>, &mut [f32]),
) {
    scratch.clear();
    scratch.extend(cx.input(node, 0).iter().map(|x| x / cap));
    activate(run, Activation::Tanh, scratch, None, out);
    out.iter_mut().for_each(|y| *y *= cap);
}

/// [`infr_graph::Op::Softmax`].
pub(super) fn probabilities((cx, run): (&Context<'_>, Runner<'_>), node: &Node, out: &mut [f32]) {
    let (x, width) = (cx.input(node, 0), cx.width(node, 0));
    for_parts(cx.pool, out, width, |out_idx, out| {
        let factor = (1.0 / temperature(&cx.step, out_idx)) as f32;
        out.iter_mut().zip(&x[out_idx * width..]).for_each(|(out, x)| *out = x * factor);
    });
    softmax(run, out, width);
}

/// Natural logarithm of the sum of exponentials of `logits`.
pub(super) fn log_sum_exp(run: Runner<'_>, logits: &[f32], scratch: &mut [Vec<f32>; 2]) -> f64 {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let [shifted, powers] = scratch;
    shifted.clear();
    shifted.extend(logits.iter().map(|x| x - max));
    powers.resize(logits.len(), 0.0);
    activate(run, Activation::Exp, shifted, None, powers);
    // Pieces are short enough for single precision.
    let sum: f64 = powers.chunks(256).map(|piece| f64::from(piece.iter().sum::<f32>())).sum();
    f64::from(max) + sum.ln()
}

/// What decides the angles of a rotation, whatever the number of heads.
#[derive(Debug, Clone, Copy, PartialEq)]
struct AngleKey {
    n_rot: u32,
    base: f32,
    freq_scale: f32,
    yarn: Option<Yarn>,
    magnitude: f32,
    factors: Option<WeightId>,
}

/// Cosines and sines of the step's rows for one kind of rotation.
#[derive(Debug)]
struct Angles {
    key: AngleKey,
    frequencies: Vec<f64>,
    /// Whether the rows are those of the step.
    current: bool,
    cos: Vec<f32>,
    sin: Vec<f32>,
}

/// Angles of all kinds of rotations in a program; layers share them.
#[derive(Debug, Default)]
pub(super) struct AngleCache(Vec<Angles>);

impl AngleCache {
    /// Forgets the positions of the step before.
    pub(super) fn begin_step(&mut self) {
        self.0.iter_mut().for_each(|a| a.current = false);
    }

    /// [`infr_graph::Op::Rope`].
    pub(super) fn rope(
        &mut self,
        (cx, run): (&Context<'_>, Runner<'_>),
        node: &Node,
        spec: &RopeSpec,
        out: &mut [f32],
    ) {
        let angles = self.angles(cx, node, spec);
        let shape = RopeShape {
            heads: spec.heads as usize,
            head_dim: spec.head_dim as usize,
            start: spec.start as usize,
            n_rot: spec.n_rot as usize,
            pairs: match spec.style {
                RopeStyle::Halves => RopePairs::Halves,
                RopeStyle::Interleaved => RopePairs::Neighbours,
            },
        };
        out.copy_from_slice(cx.input(node, 0));
        rope(run, shape, &angles.cos, &angles.sin, out);
    }

    fn angles(&mut self, cx: &Context<'_>, node: &Node, spec: &RopeSpec) -> &Angles {
        let &RopeSpec { n_rot, base, freq_scale, yarn, magnitude, .. } = spec;
        let factors = node.weights.first().copied();
        let key = AngleKey { n_rot, base, freq_scale, yarn, magnitude, factors };
        let found = self.0.iter().position(|a| a.key == key);
        let index = found.unwrap_or_else(|| {
            let frequencies = frequencies(spec, cx.vector(node, 0));
            let (cos, sin) = (Vec::new(), Vec::new());
            self.0.push(Angles { key, frequencies, current: false, cos, sin });
            self.0.len() - 1
        });
        let angles = &mut self.0[index];
        if !angles.current {
            angles.fill(cx.ids(node, 1), f64::from(magnitude));
        }
        angles
    }
}

impl Angles {
    fn fill(&mut self, positions: &[i32], magnitude: f64) {
        self.cos.clear();
        self.sin.clear();
        for position in positions {
            for frequency in &self.frequencies {
                let (sin, cos) = (f64::from(*position) * frequency).sin_cos();
                self.cos.push((cos * magnitude) as f32);
                self.sin.push((sin * magnitude) as f32);
            }
        }
        self.current = true;
    }
}
