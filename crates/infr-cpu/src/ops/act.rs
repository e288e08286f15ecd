//! Activation functions, each evaluated in `f64`.

use std::f64::consts::PI;

use infr_graph::{GateAct, Node, Unary};

use super::Context;
use crate::par::for_parts;

/// Elements that one thread computes at a time.
const PART: usize = 4096;

/// `act(gate)·up`.
pub(crate) fn gated(cx: &Context<'_>, node: &Node, function: GateAct, out: &mut [f32]) {
    let (gate, up) = (cx.input(node, 0), cx.input(node, 1));
    for_parts(cx.pool, out, PART, |part, out| {
        let (gate, up) = (&gate[part * PART..], &up[part * PART..]);
        for ((out, gate), up) in out.iter_mut().zip(gate).zip(up) {
            *out = gated_one(function, f64::from(*gate), f64::from(*up)) as f32;
        }
    });
}

fn gated_one(function: GateAct, gate: f64, up: f64) -> f64 {
    match function {
        GateAct::Silu => gate * sigmoid(gate) * up,
        GateAct::Gelu => gelu(gate) * up,
        GateAct::ReluSquared => gate.max(0.0).powi(2) * up,
        GateAct::Sigmoid => sigmoid(gate) * up,
        GateAct::OaiClamped => {
            let gate = gate.min(7.0);
            gate * sigmoid(1.702 * gate) * (up.clamp(-7.0, 7.0) + 1.0)
        }
    }
}

/// An elementwise function.
pub(crate) fn unary(cx: &Context<'_>, node: &Node, function: Unary, out: &mut [f32]) {
    let x = cx.input(node, 0);
    for_parts(cx.pool, out, PART, |part, out| {
        for (out, x) in out.iter_mut().zip(&x[part * PART..]) {
            let x = f64::from(*x);
            *out = match function {
                Unary::Silu => x * sigmoid(x),
                Unary::Gelu => gelu(x),
                Unary::Sigmoid => sigmoid(x),
                Unary::Tanh => x.tanh(),
                Unary::Softplus => softplus(x),
                Unary::Exp => x.exp(),
            } as f32;
        }
    });
}

/// `1/(1 + e⁻ˣ)`.
pub(crate) fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// `ln(1 + eˣ)`, `x` itself above 20.
pub(crate) fn softplus(x: f64) -> f64 {
    if x > 20.0 { x } else { x.exp().ln_1p() }
}

/// GELU in its tanh form (Hendrycks and Gimpel, 2016).
pub(crate) fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + ((2.0 / PI).sqrt() * x * (1.0 + 0.044715 * x * x)).tanh())
}
