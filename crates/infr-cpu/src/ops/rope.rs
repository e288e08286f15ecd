//! What depends on positions: rotary embeddings and the attention temperature.

use std::f64::consts::PI;

use infr_graph::{Node, PositionScale, RopeSpec, RopeStyle};

use super::Context;
use crate::par::for_parts;

/// Rotates pairs of each head (Su et al., "RoFormer", 2021; YaRN: Peng et al., 2023).
pub(crate) fn rope(cx: &Context<'_>, node: &Node, spec: &RopeSpec, out: &mut [f32]) {
    let factors = cx.vector(node, 0);
    let (head_dim, start, n_rot) =
        (spec.head_dim as usize, spec.start as usize, spec.n_rot as usize);
    let width = cx.width(node, 0);
    let frequencies = frequencies(spec, factors);
    let (x, positions) = (cx.input(node, 0), cx.ids(node, 1));
    for_parts(cx.pool, out, width, |row_idx, row| {
        row.copy_from_slice(&x[row_idx * width..][..width]);
        let turn = |frequency: &f64| {
            let (sin, cos) = (f64::from(positions[row_idx]) * frequency).sin_cos();
            (sin * f64::from(spec.magnitude), cos * f64::from(spec.magnitude))
        };
        let turns: Vec<(f64, f64)> = frequencies.iter().map(turn).collect();
        for head in row.chunks_mut(head_dim) {
            let head = &mut head[start..start + n_rot];
            for (i, (sin, cos)) in turns.iter().enumerate() {
                let (first, second) = match spec.style {
                    RopeStyle::Interleaved => (2 * i, 2 * i + 1),
                    RopeStyle::Halves => (i, i + n_rot / 2),
                };
                let (a, b) = (f64::from(head[first]), f64::from(head[second]));
                head[first] = (a * cos - b * sin) as f32;
                head[second] = (a * sin + b * cos) as f32;
            }
        }
    });
}

/// Angle per position of every pair.
pub(crate) fn frequencies(spec: &RopeSpec, factors: Option<&[f32]>) -> Vec<f64> {
    let n_rot = f64::from(spec.n_rot);
    let (base, freq_scale) = (f64::from(spec.base), f64::from(spec.freq_scale));
    // Pairs up to `low` keep their angle, pairs from `high` on are interpolated.
    let bounds = spec.yarn.map(|yarn| {
        let pair_of = |rotations: f32| {
            let wave = f64::from(yarn.original_context) / (2.0 * PI * f64::from(rotations));
            n_rot * wave.ln() / (2.0 * base.ln())
        };
        let low = pair_of(yarn.beta_fast).floor().max(0.0);
        let high = pair_of(yarn.beta_slow).ceil().min(n_rot - 1.0);
        (low, high)
    });
    let frequency = |i: u32| {
        let factor = factors.map_or(1.0, |f| f64::from(f[i as usize]));
        let plain = base.powf(-2.0 * f64::from(i) / n_rot) / factor;
        match bounds {
            None => plain * freq_scale,
            Some((low, high)) => {
                let ramp = 1.0 - ((f64::from(i) - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
                plain * freq_scale * (1.0 - ramp) + plain * ramp
            }
        }
    };
    (0..spec.n_rot / 2).map(frequency).collect()
}

/// `x·(1 + s·ln(1 + floor((p + offset)/period)))`.
pub(crate) fn position_scale(cx: &Context<'_>, node: &Node, spec: PositionScale, out: &mut [f32]) {
    let width = cx.width(node, 0);
    let rows = cx.input(node, 0).chunks(width).zip(cx.ids(node, 1));
    for (out, (x, position)) in out.chunks_mut(width).zip(rows) {
        let periods = (*position as u32 + spec.offset) / spec.period;
        let scale = 1.0 + f64::from(spec.s) * f64::from(periods).ln_1p();
        out.iter_mut().zip(x).for_each(|(out, x)| *out = (f64::from(*x) * scale) as f32);
    }
}
