//! Mixture of experts: routing, expert-indexed products, splitting and joining.

use infr_graph::build::LinearWeights;
use infr_graph::{Gating, RouteSpec};
use infr_tensor::DType;

use super::linear::{product_tolerance, weight_types};
use crate::maker::{Case, Maker};
use crate::tolerance::Tolerance;

fn spec(experts: u32, used: u32) -> RouteSpec {
    RouteSpec {
        experts,
        used,
        gating: Gating::Softmax,
        normalise: true,
        scale: 1.0,
        groups: 1,
        groups_used: 1,
        bias: false,
    }
}

pub(crate) fn cases() -> Vec<Case> {
    let mut out = routes();
    for dtype in weight_types() {
        for rows in [1, 3, 40] {
            out.push(expert_linear(dtype, rows, false, false));
        }
    }
    for dtype in [DType::F32, DType::MXFP4, DType::Q8_0] {
        for rows in [1, 9] {
            out.push(expert_linear(dtype, rows, true, false));
            out.push(expert_linear(dtype, rows, true, true));
        }
    }
    for rows in [1, 6] {
        let mut m = Maker::new(10, &[rows]);
        let (x, w) = (m.input(4 * 48, 1.0), m.input(4, 0.5));
        let y = m.builder.combine(x, w);
        let x = m.input(48, 1.0);
        let z = m.builder.spread(x, w);
        out.push(m.finish(format!("combine and spread x {rows}"), &[y, z], Tolerance::F32));
    }
    out
}

/// Every gating, with and without the rest of the spec.
fn routes() -> Vec<Case> {
    let mut specs = Vec::new();
    for gating in [
        Gating::Softmax,
        Gating::Sigmoid,
        Gating::SoftmaxSelected,
        Gating::SqrtSoftplus,
        Gating::SigmoidSelected,
    ] {
        specs.push(RouteSpec { gating, normalise: false, ..spec(16, 4) });
        specs.push(RouteSpec { gating, scale: 2.5, bias: true, ..spec(16, 4) });
        specs.push(RouteSpec { gating, groups: 4, groups_used: 2, bias: true, ..spec(32, 6) });
    }
    specs.extend([spec(128, 8), spec(1, 1), spec(256, 8), RouteSpec { used: 5, ..spec(5, 5) }]);
    specs
        .into_iter()
        .flat_map(|spec| [(spec, 1), (spec, 7)])
        .map(|(spec, rows)| {
            let mut m = Maker::new(u64::from(spec.experts), &[rows]);
            let logits = m.input(spec.experts, 2.0);
            let bias = spec.bias.then(|| m.vector(&[spec.experts], 0.0, 0.3));
            let (ids, weights) = m.builder.route(logits, spec, bias);
            // Ids are compared first and exactly enough: neighbours differ by one.
            m.finish(format!("route {spec:?} x {rows}"), &[ids, weights], Tolerance::F32)
        })
        .collect()
}

/// One row for all choices (`parts` false) or one part of the row per choice.
fn expert_linear(dtype: DType, rows: u32, companions: bool, parts: bool) -> Case {
    let (experts, used, n_out, inner) = (6, 3, 32, 256);
    let mut m = Maker::new(u64::from(rows) + 20, &[rows]);
    let logits = m.input(experts, 2.0);
    let x = m.input(if parts { used * inner } else { inner }, 1.0);
    let (ids, _) = m.builder.route(logits, spec(experts, used), None);
    let matrix = m.weight(dtype, &[experts, n_out, inner]);
    let bias = companions.then(|| m.vector(&[experts, n_out], 0.0, 1.0));
    let scale = companions.then(|| m.vector(&[experts], 2.0, 0.5));
    let y = m.builder.expert_linear(x, ids, LinearWeights { matrix, bias, scale });
    let name = format!("expert_linear {dtype} x {rows}, companions {companions}, parts {parts}");
    m.finish(name, &[y], product_tolerance(dtype))
}
