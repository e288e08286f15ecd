//! Ops that keep a block per sequence: convolution and the gated delta rule.

use infr_graph::{ConvSpec, DeltaSpec, HeadMap, StateKind};

use crate::maker::{Case, Maker};
use crate::tolerance::Tolerance;

pub(crate) fn cases() -> Vec<Case> {
    let mut out = Vec::new();
    for lengths in [&[1][..], &[2, 1, 9], &[70]] {
        for (channels, taps) in [(48, 4), (33, 3), (8, 2), (5, 1)] {
            let mut m = Maker::new(70, lengths);
            let state = m.builder.state(0, StateKind::Slot { width: (taps - 1) * channels });
            let x = m.input(channels, 1.0);
            let filter = m.vector(&[channels, taps], 0.0, 1.0);
            let y = m.builder.conv1d(state, x, filter, ConvSpec { channels, taps });
            let name = format!("conv1d {channels} {taps} {lengths:?}");
            out.push(m.finish(name, &[y], Tolerance::F32));
        }
        for (k_heads, v_heads, key_dim, value_dim) in
            [(2, 2, 32, 32), (2, 6, 16, 24), (1, 4, 128, 128)]
        {
            for map in [HeadMap::Modulo, HeadMap::Divide] {
                let spec = DeltaSpec { k_heads, v_heads, key_dim, value_dim, map };
                out.push(delta_net(spec, lengths));
            }
        }
    }
    out
}

fn delta_net(spec: DeltaSpec, lengths: &[u32]) -> Case {
    let mut m = Maker::new(71, lengths);
    let width = spec.v_heads * spec.key_dim * spec.value_dim;
    let state = m.builder.state(0, StateKind::Slot { width });
    let q = m.input(spec.k_heads * spec.key_dim, 1.0);
    let k = m.input(spec.k_heads * spec.key_dim, 1.0);
    // As in models: unit keys and queries, decays below one, write strengths between zero and one.
    let q = m.builder.l2_norm(q, spec.k_heads, 1e-6);
    let k = m.builder.l2_norm(k, spec.k_heads, 1e-6);
    let v = m.input(spec.v_heads * spec.value_dim, 1.0);
    let n = m.n_rows() * spec.v_heads as usize;
    let decays = m.rng.normals(n, 0.5).iter().map(|x| -x.abs()).collect();
    let g = m.input_of(spec.v_heads, decays);
    let strengths = (0..n).map(|_| m.rng.uniform() as f32).collect();
    let beta = m.input_of(spec.v_heads, strengths);
    let y = m.builder.delta_net(state, [q, k, v, g, beta], spec);
    let name = format!("delta_net {spec:?} {lengths:?}");
    m.finish(name, &[y], Tolerance { max: 2e-4, rms: 4e-5 })
}
