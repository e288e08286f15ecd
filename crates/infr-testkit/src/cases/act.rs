//! Activation functions.

use infr_graph::{GateAct, Unary};

use crate::maker::{Case, Maker};
use crate::tolerance::Tolerance;

pub(crate) fn cases() -> Vec<Case> {
    let mut out = Vec::new();
    for (rows, width, spread) in [(1, 5, 1.0), (1, 1536, 3.0), (9, 300, 12.0)] {
        for act in [
            GateAct::Silu,
            GateAct::Gelu,
            GateAct::ReluSquared,
            GateAct::Sigmoid,
            GateAct::OaiClamped,
        ] {
            let mut m = Maker::new(50, &[rows]);
            let (gate, up) = (m.input(width, spread), m.input(width, 1.0));
            let y = m.builder.gated(act, gate, up);
            let name = format!("gated_act {act:?} [{rows}, {width}] spread {spread}");
            out.push(m.finish(name, &[y], Tolerance::F32));
        }
        for function in [Unary::Silu, Unary::Gelu, Unary::Sigmoid, Unary::Tanh, Unary::Softplus] {
            out.push(unary(function, (rows, width), spread));
        }
        out.push(unary(Unary::Exp, (rows, width), spread.min(2.0)));
    }
    // Beyond the range of the exponential.
    let ends =
        vec![-1e30, -200.0, -100.0, -88.0, -20.0, -1e-30, 0.0, 1e-30, 20.0, 88.0, 100.0, 200.0];
    for function in [Unary::Silu, Unary::Gelu, Unary::Sigmoid, Unary::Tanh, Unary::Softplus] {
        let mut m = Maker::new(51, &[1]);
        let x = m.input_of(ends.len() as u32, ends.clone());
        let y = m.builder.unary(function, x);
        out.push(m.finish(format!("unary {function:?} at the ends"), &[y], Tolerance::F32));
    }
    out
}

fn unary(function: Unary, (rows, width): (u32, u32), spread: f32) -> Case {
    let mut m = Maker::new(52, &[rows]);
    let x = m.input(width, spread);
    let y = m.builder.unary(function, x);
    let name = format!("unary {function:?} [{rows}, {width}] spread {spread}");
    m.finish(name, &[y], Tolerance::F32)
}
