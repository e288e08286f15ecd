//! Norms over equal parts of a row (Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019).

use infr_graph::{Node, NormSpec};

use super::Context;
use crate::par::for_parts;

/// `x / sqrt(mean(x²) + eps)·w`.
pub(crate) fn rms_norm(cx: &Context<'_>, node: &Node, spec: NormSpec, out: &mut [f32]) {
    let weight = cx.vector(node, 0);
    let len = cx.width(node, 0) / spec.groups as usize;
    let x = cx.input(node, 0);
    for_parts(cx.pool, out, len, |part, out| {
        let x = &x[part * len..][..len];
        let mean = square_sum(x) / len as f64;
        let inverse = 1.0 / (mean + f64::from(spec.eps)).sqrt();
        for (i, (out, x)) in out.iter_mut().zip(x).enumerate() {
            let w = weight.map_or(1.0, |w| f64::from(w[i]));
            *out = (f64::from(*x) * inverse * w) as f32;
        }
    });
}

/// `x / sqrt(Σx² + eps)`.
pub(crate) fn l2_norm(cx: &Context<'_>, node: &Node, (eps, groups): (f32, u32), out: &mut [f32]) {
    let len = cx.width(node, 0) / groups as usize;
    let x = cx.input(node, 0);
    for_parts(cx.pool, out, len, |part, out| {
        let x = &x[part * len..][..len];
        let inverse = 1.0 / (square_sum(x) + f64::from(eps)).sqrt();
        out.iter_mut().zip(x).for_each(|(out, x)| *out = (f64::from(*x) * inverse) as f32);
    });
}

fn square_sum(x: &[f32]) -> f64 {
    x.iter().map(|x| f64::from(*x) * f64::from(*x)).sum()
}
