//! Embeddings and matrix products, over every weight type.

use infr_graph::Op;
use infr_graph::build::LinearWeights;
use infr_tensor::{DType, quant};

use crate::maker::{Case, Maker};
use crate::tolerance::Tolerance;

/// Every type that a weight can have.
pub(crate) fn weight_types() -> impl Iterator<Item = DType> {
    DType::ALL.iter().copied().filter(|t| quant::codec(*t).is_some())
}

/// What products with this type may differ by.
pub(crate) fn product_tolerance(dtype: DType) -> Tolerance {
    match dtype {
        DType::F32 | DType::F64 => Tolerance::F32,
        DType::F16 | DType::BF16 => Tolerance::F16,
        _ => Tolerance::Q8,
    }
}

pub(crate) fn cases() -> Vec<Case> {
    let mut out = Vec::new();
    for dtype in weight_types() {
        // One row, a few, one matrix tile and more than one.
        for (rows, n_out, blocks) in [(1, 48, 2), (3, 16, 1), (5, 33, 1), (17, 64, 2), (70, 96, 1)]
        {
            let inner = blocks * 256;
            let mut m = Maker::new(u64::from(rows), &[rows]);
            let x = m.input(inner, 1.0);
            let w = m.weight(dtype, &[n_out, inner]);
            let y = m.builder.linear(x, w);
            let name = format!("linear {dtype} [{n_out}, {inner}] x {rows}");
            out.push(m.finish(name, &[y], product_tolerance(dtype)));
        }
        out.push(embed(dtype));
    }
    // Widths that are no multiple of a vector; types whose block is one element.
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        for (rows, n_out, inner) in [(1, 7, 5), (4, 50, 100), (33, 18, 77)] {
            let mut m = Maker::new(1, &[rows]);
            let x = m.input(inner, 1.0);
            let w = m.weight(dtype, &[n_out, inner]);
            let y = m.builder.linear(x, w);
            let name = format!("linear {dtype} [{n_out}, {inner}] x {rows}");
            out.push(m.finish(name, &[y], product_tolerance(dtype)));
        }
    }
    out.extend(companions());
    out.extend(shared_input());
    out.extend(other_products());
    out
}

fn embed(dtype: DType) -> Case {
    let mut m = Maker::new(2, &[3, 4]);
    m.vocab = 11;
    let tokens = m.builder.tokens();
    let table = m.weight(dtype, &[11, 512]);
    let y = m.builder.embed(tokens, table);
    m.finish(format!("embed {dtype}"), &[y], Tolerance { max: 1e-6, rms: 1e-6 })
}

/// Bias and scale in every combination.
fn companions() -> Vec<Case> {
    let mut out = Vec::new();
    for (dtype, bias, scale) in [
        (DType::F32, true, false),
        (DType::Q8_0, true, false),
        (DType::NVFP4, false, true),
        (DType::Q4_K, true, true),
    ] {
        for rows in [1, 6] {
            let mut m = Maker::new(3, &[rows]);
            let x = m.input(256, 1.0);
            let matrix = m.weight(dtype, &[40, 256]);
            let bias_id = bias.then(|| m.vector(&[40], 0.0, 1.0));
            let scale_id = scale.then(|| m.vector(&[1], 3.0, 0.1));
            let y = m.builder.linear(x, LinearWeights { matrix, bias: bias_id, scale: scale_id });
            let name = format!("linear {dtype} bias {bias} scale {scale} x {rows}");
            out.push(m.finish(name, &[y], product_tolerance(dtype)));
        }
    }
    out
}

/// Several products of one input, of types that read it in different forms.
fn shared_input() -> Vec<Case> {
    let mut m = Maker::new(4, &[2, 1]);
    let x = m.input(512, 1.0);
    let types = [DType::Q4_K, DType::F16, DType::Q6_K, DType::F32];
    let outputs: Vec<_> = types
        .iter()
        .map(|dtype| {
            let w = m.weight(*dtype, &[32, 512]);
            m.builder.linear(x, w)
        })
        .collect();
    vec![m.finish("linears of one input".into(), &outputs, Tolerance::Q8)]
}

/// Transposed products and one matrix per head.
fn other_products() -> Vec<Case> {
    let mut out = Vec::new();
    for dtype in [DType::F32, DType::F16, DType::Q8_0, DType::Q4_K, DType::Q6_K] {
        for rows in [1, 5] {
            let mut m = Maker::new(5, &[rows]);
            let x = m.input(100, 0.1);
            let w = m.weight(dtype, &[100, 256]);
            let y = m.builder.linear_transposed(x, w);
            let name = format!("linear_t {dtype} x {rows}");
            out.push(m.finish(name, &[y], product_tolerance(dtype)));

            let mut m = Maker::new(6, &[rows]);
            let x = m.input(3 * 256, 1.0);
            let w = m.weight(dtype, &[3, 48, 256]);
            let y = m.builder.head_linear(x, w, 3);
            let name = format!("head_linear {dtype} x {rows}");
            out.push(m.finish(name, &[y], product_tolerance(dtype)));
        }
    }
    let mut m = Maker::new(7, &[4, 2]);
    m.want = infr_backend::Want::Nothing;
    let x = m.input(64, 1.0);
    let y = m.builder.node(Op::GatherOut, &[x], &[], None)[0];
    out.push(m.finish("gather_out of no rows".into(), &[y], Tolerance::EXACT));
    out
}
