//! Runs of nodes that backends compute in one kernel: every fusion rule, with what its kernel depends on.

use infr_graph::build::LinearWeights;
use infr_graph::{AttnSpec, GateAct, NormSpec, Reach, RopeSpec, RopeStyle};
use infr_tensor::DType;

use super::linear::product_tolerance;
use crate::maker::{Case, Maker};
use crate::tolerance::Tolerance;

pub(crate) fn cases() -> Vec<Case> {
    let mut out = Vec::new();
    for rows in [1, 5, 33] {
        out.extend(add_norm(rows));
        for dtype in [DType::F32, DType::F16, DType::Q4_K, DType::Q6_K, DType::Q8_0, DType::Q4_1] {
            for act in [GateAct::Silu, GateAct::Gelu] {
                out.push(gate_up_act(dtype, act, rows, false));
            }
        }
        out.push(gate_up_act(DType::Q8_0, GateAct::OaiClamped, rows, true));
        out.push(gate_up_act(DType::Q8_0, GateAct::ReluSquared, rows, false));
    }
    for lengths in [&[1][..], &[7, 1], &[40]] {
        for style in [RopeStyle::Halves, RopeStyle::Interleaved] {
            for norm in [false, true] {
                for (head_dim, n_rot) in [(64, 64), (128, 128), (64, 32), (256, 256)] {
                    out.push(rope_kv(lengths, style, norm, (head_dim, n_rot)));
                }
            }
        }
    }
    out
}

/// The sum is read again, or only by the norm.
fn add_norm(rows: u32) -> Vec<Case> {
    let mut out = Vec::new();
    for width in [64, 577, 2048] {
        for kept in [false, true] {
            let mut m = Maker::new(90, &[rows]);
            let (x, y) = (m.input(width, 1.0), m.input(width, 1.0));
            let w = m.vector(&[width], 1.0, 0.2);
            let sum = m.builder.add(x, y);
            let norm = m.builder.rms_norm(sum, Some(w), 1e-6);
            let outputs = if kept { vec![sum, norm] } else { vec![norm] };
            let name = format!("fused add_norm {width}, sum kept {kept}, x {rows}");
            out.push(m.finish(name, &outputs, Tolerance::F32));
        }
    }
    out
}

fn gate_up_act(dtype: DType, act: GateAct, rows: u32, biased: bool) -> Case {
    let mut m = Maker::new(91, &[rows]);
    let x = m.input(256, 1.0);
    let linear = |m: &mut Maker| {
        let matrix = m.weight(dtype, &[96, 256]);
        let bias = biased.then(|| m.vector(&[96], 0.0, 0.5));
        m.builder.linear(x, LinearWeights { matrix, bias, scale: None })
    };
    let (gate, up) = (linear(&mut m), linear(&mut m));
    let y = m.builder.gated(act, gate, up);
    let name = format!("fused gate_up_act {dtype} {act:?} biased {biased} x {rows}");
    let Tolerance { max, rms } = product_tolerance(dtype);
    // The errors of both factors meet, in products with longer tails than sums have.
    m.finish(name, &[y], Tolerance { max: 3.0 * max, rms: 2.0 * rms })
}

fn rope_kv(lengths: &[u32], style: RopeStyle, norm: bool, (head_dim, n_rot): (u32, u32)) -> Case {
    let (heads, kv_heads) = (4, 2);
    let mut m = Maker::new(92, lengths);
    m.first_position = 3;
    m.page_len = 16;
    let width = kv_heads * head_dim;
    let cache = m.cache((width, width), DType::F16, Reach::Full);
    let positions = m.builder.positions();
    let (q, k, v) = (m.input(heads * head_dim, 1.0), m.input(width, 1.0), m.input(width, 1.0));
    let spec = RopeSpec {
        heads,
        head_dim,
        start: 0,
        n_rot,
        style,
        base: 10000.0,
        freq_scale: 1.0,
        yarn: None,
        magnitude: 1.0,
    };
    let (q, k) = if norm {
        let (q_weight, k_weight) =
            (m.vector(&[head_dim], 1.0, 0.1), m.vector(&[head_dim], 1.0, 0.1));
        let part = |groups| NormSpec { eps: 1e-6, groups };
        (
            m.builder.rms_norm_groups(q, Some(q_weight), part(heads)),
            m.builder.rms_norm_groups(k, Some(k_weight), part(kv_heads)),
        )
    } else {
        (q, k)
    };
    let q = m.builder.rope(q, positions, spec, None);
    let k = m.builder.rope(k, positions, RopeSpec { heads: kv_heads, ..spec }, None);
    m.builder.kv_write(cache, k, Some(v));
    let spec = AttnSpec {
        heads,
        kv_heads,
        key_dim: head_dim,
        value_dim: head_dim,
        scale: (head_dim as f32).sqrt().recip(),
        softcap: None,
        sinks: false,
    };
    let y = m.builder.attention(cache, q, spec, None);
    let name = format!("fused rope_kv {style:?} norm {norm} {head_dim}/{n_rot} {lengths:?}");
    m.finish(name, &[y], Tolerance { max: 1e-2, rms: 2e-3 })
}
