//! Expert-indexed matrix products: the rows that chose an expert meet its matrix together.

use infr_graph::{ExpertSpec, Node};

use super::Context;
use super::linear::products;

/// Each of a row's K choices multiplies the row, or its own part of it, by the chosen matrix.
pub(crate) fn expert_linear(cx: &Context<'_>, node: &Node, spec: ExpertSpec, out: &mut [f32]) {
    let bank = cx.weight(node, 0);
    let bias = spec.bias.then(|| cx.vector(node, 1)).flatten();
    let scale = spec.scale.then(|| cx.vector(node, 1 + usize::from(spec.bias))).flatten();
    let (used, inner) = (spec.used as usize, bank.row_len());
    let n_out = bank.dims[1];
    let (x, width) = (cx.input(node, 0), cx.width(node, 0));
    for (expert, choices) in by_expert(cx.ids(node, 1)) {
        let part = |choice: &usize| {
            let row = &x[choice / used * width..][..width];
            if width == inner { row } else { &row[choice % used * inner..][..inner] }
        };
        let inputs: Vec<&[f32]> = choices.iter().map(part).collect();
        let y = products(cx.pool, bank, expert * n_out..(expert + 1) * n_out, &inputs);
        let scale = scale.map_or(1.0, |s| f64::from(s[expert]));
        for (i, choice) in choices.iter().enumerate() {
            for (o, out) in out[choice * n_out..][..n_out].iter_mut().enumerate() {
                let bias = bias.map_or(0.0, |b| f64::from(b[expert * n_out + o]));
                *out = (y[o * inputs.len() + i] * scale + bias) as f32;
            }
        }
    }
}

/// Experts in use, ascending, each with the choices (row·K + k) that name it.
pub(crate) fn by_expert(ids: &[i32]) -> Vec<(usize, Vec<usize>)> {
    let mut order: Vec<usize> = (0..ids.len()).collect();
    order.sort_by_key(|&choice| (ids[choice], choice));
    let groups = order.chunk_by(|a, b| ids[*a] == ids[*b]);
    groups.map(|group| (ids[group[0]] as usize, group.to_vec())).collect()
}
