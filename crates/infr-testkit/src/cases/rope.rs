//! Rotary embeddings and position scales.

use infr_graph::{PositionScale, RopeSpec, RopeStyle, Yarn};

use crate::maker::{Case, Maker};
use crate::tolerance::Tolerance;

pub(crate) fn cases() -> Vec<Case> {
    let plain = RopeSpec {
        heads: 3,
        head_dim: 64,
        start: 0,
        n_rot: 64,
        style: RopeStyle::Halves,
        base: 10000.0,
        freq_scale: 1.0,
        yarn: None,
        magnitude: 1.0,
    };
    let yarn = Yarn { original_context: 4096, beta_fast: 32.0, beta_slow: 1.0 };
    let specs = [
        plain,
        RopeSpec { style: RopeStyle::Interleaved, ..plain },
        RopeSpec { n_rot: 32, ..plain },
        RopeSpec { n_rot: 20, start: 44, style: RopeStyle::Interleaved, ..plain },
        RopeSpec { heads: 1, head_dim: 576, start: 512, style: RopeStyle::Interleaved, ..plain },
        RopeSpec { freq_scale: 0.125, magnitude: 1.2, ..plain },
        RopeSpec {
            yarn: Some(yarn),
            freq_scale: 0.03125,
            magnitude: 1.3466,
            base: 150_000.0,
            ..plain
        },
        RopeSpec { base: 1e6, head_dim: 256, n_rot: 256, heads: 4, ..plain },
        RopeSpec { heads: 2, head_dim: 10, n_rot: 6, start: 2, ..plain },
    ];
    let mut out = Vec::new();
    for spec in specs {
        for (rows, first_position, factors) in [(1, 0, false), (1, 7000, true), (9, 1000, false)] {
            let mut m = Maker::new(30, &[rows, 2]);
            m.first_position = first_position;
            let x = m.input(spec.heads * spec.head_dim, 1.0);
            let positions = m.builder.positions();
            let weight = factors.then(|| m.vector(&[spec.n_rot / 2], 4.0, 0.5));
            let y = m.builder.rope(x, positions, spec, weight);
            let name = format!("rope {spec:?} factors {factors} at {first_position} x {rows}");
            // Single-precision angles are off by some 1e-7 of the position.
            let allowed = 3e-7 * first_position as f32 + 5e-5;
            out.push(m.finish(name, &[y], Tolerance { max: 4.0 * allowed, rms: allowed }));
        }
    }
    for (s, offset, period) in [(0.1, 1, 8192), (0.2, 0, 4)] {
        let mut m = Maker::new(31, &[10]);
        m.first_position = 8186;
        let x = m.input(48, 1.0);
        let positions = m.builder.positions();
        let y = m.builder.position_scale(x, positions, PositionScale { s, offset, period });
        out.push(m.finish(format!("position_scale {s} {offset} {period}"), &[y], Tolerance::F32));
    }
    out
}
