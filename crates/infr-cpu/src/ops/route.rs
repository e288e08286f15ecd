//! Mixture of experts: the choice of experts, and how their rows are split and joined.

use infr_graph::{Gating, Node, RouteSpec};

use super::Context;
use super::act::{sigmoid, softplus};
use crate::par::for_parts;

/// Smallest sum that chosen weights are divided by: the smallest normal half-precision number.
const SMALLEST_SUM: f64 = 6.103_515_625e-5;

/// Chooses `used` experts per row and gives them weights.
pub(crate) fn route(
    cx: &Context<'_>,
    node: &Node,
    spec: &RouteSpec,
    (ids, weights): (&mut [i32], &mut [f32]),
) {
    let bias = spec.bias.then(|| cx.vector(node, 0)).flatten();
    let used = spec.used as usize;
    let rows = cx.input(node, 0).chunks(spec.experts as usize);
    let outputs = ids.chunks_mut(used).zip(weights.chunks_mut(used));
    let mut work: Vec<_> = rows.zip(outputs).collect();
    for_parts(cx.pool, &mut work, 1, |_, row| {
        let (logits, (ids, weights)) = &mut row[0];
        route_row(spec, (logits, bias), ids, weights);
    });
}

fn route_row(
    spec: &RouteSpec,
    (logits, bias): (&[f32], Option<&[f32]>),
    ids: &mut [i32],
    weights: &mut [f32],
) {
    let logits: Vec<f64> = logits.iter().map(|l| f64::from(*l)).collect();
    let probs: Vec<f64> = match spec.gating {
        Gating::Softmax => softmax(&logits),
        Gating::Sigmoid => logits.iter().map(|l| sigmoid(*l)).collect(),
        Gating::SqrtSoftplus => logits.iter().map(|l| softplus(*l).sqrt()).collect(),
        Gating::SoftmaxSelected | Gating::SigmoidSelected => logits,
    };
    let biased = |(i, p): (usize, &f64)| p + bias.map_or(0.0, |b| f64::from(b[i]));
    let mut selection: Vec<f64> = probs.iter().enumerate().map(biased).collect();
    if spec.groups > 1 {
        limit_groups(spec, &mut selection);
    }
    let chosen = best(&selection, ids.len());
    let mut w: Vec<f64> = chosen.iter().map(|&i| probs[i]).collect();
    match spec.gating {
        Gating::SoftmaxSelected => w = softmax(&w),
        Gating::SigmoidSelected => w.iter_mut().for_each(|w| *w = sigmoid(*w)),
        Gating::Softmax | Gating::Sigmoid | Gating::SqrtSoftplus => {}
    }
    if spec.normalise {
        let sum = w.iter().sum::<f64>().max(SMALLEST_SUM);
        w.iter_mut().for_each(|w| *w /= sum);
    }
    for (k, (id, weight)) in ids.iter_mut().zip(weights).enumerate() {
        *id = chosen[k] as i32;
        *weight = (w[k] * f64::from(spec.scale)) as f32;
    }
}

/// Takes the experts outside the best groups out of the choice; a group counts by its two best.
fn limit_groups(spec: &RouteSpec, selection: &mut [f64]) {
    let len = selection.len() / spec.groups as usize;
    let group_score = |group: &[f64]| best(group, 2.min(len)).iter().map(|&i| group[i]).sum();
    let scores: Vec<f64> = selection.chunks(len).map(group_score).collect();
    let kept = best(&scores, spec.groups_used as usize);
    for (index, group) in selection.chunks_mut(len).enumerate() {
        if !kept.contains(&index) {
            group.fill(f64::NEG_INFINITY);
        }
    }
}

/// Indices of the `n` largest values, descending; ties go to the lower index.
fn best(values: &[f64], n: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*b].total_cmp(&values[*a]).then(a.cmp(b)));
    order.truncate(n);
    order
}

fn softmax(x: &[f64]) -> Vec<f64> {
    let max = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let exps: Vec<f64> = x.iter().map(|x| (x - max).exp()).collect();
    let sum: f64 = exps.iter().sum();
    exps.iter().map(|e| e / sum).collect()
}

/// `Σ_k w[k]·x[k]` over the K parts of each row, in selection order.
pub(crate) fn combine(cx: &Context<'_>, node: &Node, out: &mut [f32]) {
    let (x, weights) = (cx.input(node, 0), cx.input(node, 1));
    let (used, width) = (cx.width(node, 1), cx.out_width(node));
    for_parts(cx.pool, out, width, |row_idx, out| {
        for (i, out) in out.iter_mut().enumerate() {
            let term = |k| {
                f64::from(weights[row_idx * used + k])
                    * f64::from(x[(row_idx * used + k) * width + i])
            };
            *out = (0..used).map(term).sum::<f64>() as f32;
        }
    });
}

/// Part `k` of the output is `w[k]·x`.
pub(crate) fn spread(cx: &Context<'_>, node: &Node, out: &mut [f32]) {
    let (x, weights) = (cx.input(node, 0), cx.input(node, 1));
    let (used, width) = (cx.width(node, 1), cx.width(node, 0));
    for_parts(cx.pool, out, width, |choice, out| {
        let x = &x[choice / used * width..][..width];
        out.iter_mut().zip(x).for_each(|(out, x)| *out = weights[choice] * x);
    });
}
