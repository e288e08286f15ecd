//! The reference against second implementations, written from the formulas of the papers and of
//! `infr_graph::op` without looking at the first.

use infr_backend::Backend;
use infr_cpu::{CpuBackend, CpuOptions};
use infr_graph::{
    AttnSpec, ConvSpec, DeltaSpec, Gating, HeadMap, NormSpec, PositionScale, Reach, RopeSpec,
    RopeStyle, RouteSpec, StateKind, Unary, Yarn,
};
use infr_tensor::DType;
use infr_testkit::{Case, Maker, Tolerance};

/// What the reference gives for the only value of a case.
fn run(case: &Case) -> Vec<f32> {
    let backend = CpuBackend::new(CpuOptions::reference());
    let mut values = backend.eval(&case.eval).expect("the reference runs every case").values;
    values.pop().expect("a case has a value")
}

fn carried(case: &Case, index: usize) -> Vec<f64> {
    case.eval.batch.carried[index].data.iter().map(|x| f64::from(*x)).collect()
}

fn weight(case: &Case, index: usize) -> Vec<f64> {
    let values = infr_testkit::blocks::decode(&case.eval.weights[index]);
    values.into_iter().map(f64::from).collect()
}

fn close(expected: &[f64], found: &[f32]) {
    let expected: Vec<f32> = expected.iter().map(|x| *x as f32).collect();
    let tolerance = Tolerance { max: 2e-6, rms: 1e-6 };
    tolerance.check(&expected, found).unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn linear_is_a_sum_of_products() {
    let mut m = Maker::new(1, &[3]);
    let x = m.input(64, 1.0);
    let w = m.weight(DType::Q5_1, &[10, 64]);
    let y = m.builder.linear(x, w);
    let case = m.finish("linear".into(), &[y], Tolerance::F32);
    let (x, w) = (carried(&case, 0), weight(&case, 0));
    let mut expected = vec![0.0; 30];
    for r in 0..3 {
        for o in 0..10 {
            for i in 0..64 {
                expected[r * 10 + o] += w[o * 64 + i] * x[r * 64 + i];
            }
        }
    }
    close(&expected, &run(&case));
}

#[test]
fn norm_divides_by_the_root_mean_square() {
    let mut m = Maker::new(2, &[2]);
    let x = m.input(12, 1.0);
    let w = m.vector(&[4], 1.0, 0.5);
    let y = m.builder.rms_norm_groups(x, Some(w), NormSpec { eps: 0.25, groups: 3 });
    let case = m.finish("norm".into(), &[y], Tolerance::F32);
    let (x, w) = (carried(&case, 0), weight(&case, 0));
    let expected: Vec<f64> = (0..24)
        .map(|i| {
            let part = &x[i / 4 * 4..i / 4 * 4 + 4];
            let mean = part.iter().map(|v| v * v).sum::<f64>() / 4.0;
            x[i] / (mean + 0.25).sqrt() * w[i % 4]
        })
        .collect();
    close(&expected, &run(&case));
}

/// A rotation by complex multiplication, with YaRN as its paper states it: dimensions that turn more often
/// than `beta_fast` times in the original context keep their frequency, those below `beta_slow` are
/// interpolated, and the blend is linear in the index between the two.
#[test]
fn rope_multiplies_complex_numbers() {
    let yarn = Yarn { original_context: 512, beta_fast: 8.0, beta_slow: 1.0 };
    for (yarn, style) in [
        (None, RopeStyle::Halves),
        (None, RopeStyle::Interleaved),
        (Some(yarn), RopeStyle::Halves),
        (Some(yarn), RopeStyle::Interleaved),
    ] {
        let (n_rot, start, head_dim) = (16u32, 2u32, 20u32);
        let spec = RopeSpec {
            heads: 2,
            head_dim,
            start,
            n_rot,
            style,
            base: 500.0,
            freq_scale: 0.25,
            yarn,
            magnitude: 1.5,
        };
        let mut m = Maker::new(3, &[4]);
        m.first_position = 700;
        let x = m.input(40, 1.0);
        let positions = m.builder.positions();
        let factors = m.vector(&[8], 2.0, 0.3);
        let y = m.builder.rope(x, positions, spec, Some(factors));
        let case = m.finish("rope".into(), &[y], Tolerance::F32);
        let (x, factors) = (carried(&case, 0), weight(&case, 0));
        let mut expected = x.clone();
        // Index at which a dimension turns `turns` times in the original context.
        let index_of = |turns: f64| {
            16.0 * (512.0 / (turns * std::f64::consts::TAU)).ln() / (2.0 * 500f64.ln())
        };
        let (low, high) = (index_of(8.0).floor(), index_of(1.0).ceil());
        for row in 0..4 {
            for head in 0..2 {
                for (i, factor) in factors.iter().enumerate() {
                    let frequency = 500f64.powf(-(i as f64) / 8.0) / factor;
                    let keep = match yarn {
                        None => 0.0,
                        Some(_) => 1.0 - ((i as f64 - low) / (high - low)).clamp(0.0, 1.0),
                    };
                    let frequency = frequency * (keep + (1.0 - keep) * 0.25);
                    let angle = (700 + row) as f64 * frequency;
                    let at = row * 40 + head * 20 + 2;
                    let (re, im) = match style {
                        RopeStyle::Halves => (at + i, at + i + 8),
                        RopeStyle::Interleaved => (at + 2 * i, at + 2 * i + 1),
                    };
                    let (c, s) = (1.5 * angle.cos(), 1.5 * angle.sin());
                    expected[re] = x[re] * c - x[im] * s;
                    expected[im] = x[im] * c + x[re] * s;
                }
            }
        }
        close(&expected, &run(&case));
    }
}

#[test]
fn attention_is_a_softmax_over_what_is_seen() {
    let spec = AttnSpec {
        heads: 4,
        kv_heads: 2,
        key_dim: 6,
        value_dim: 5,
        scale: 0.7,
        softcap: Some(1.5),
        sinks: true,
    };
    let mut m = Maker::new(4, &[9]);
    let cache = m.cache((12, 10), DType::F32, Reach::Window(4));
    let (q, k, v) = (m.input(24, 1.0), m.input(12, 1.0), m.input(10, 1.0));
    let sinks = m.vector(&[4], 0.0, 1.0);
    m.builder.kv_write(cache, k, Some(v));
    let y = m.builder.attention(cache, q, spec, Some(sinks));
    let case = m.finish("attention".into(), &[y], Tolerance::F32);
    let (q, k, v) = (carried(&case, 0), carried(&case, 1), carried(&case, 2));
    let sinks = weight(&case, 0);
    let mut expected = vec![0.0; 9 * 20];
    for t in 0..9usize {
        for h in 0..4 {
            let first = t.saturating_sub(3);
            let score = |s: usize| {
                let dot: f64 =
                    (0..6).map(|i| q[t * 24 + h * 6 + i] * k[s * 12 + h / 2 * 6 + i]).sum();
                1.5 * (dot * 0.7 / 1.5).tanh()
            };
            let total = (first..=t).map(|s| score(s).exp()).sum::<f64>() + sinks[h].exp();
            for j in 0..5 {
                expected[t * 20 + h * 5 + j] =
                    (first..=t).map(|s| score(s).exp() / total * v[s * 10 + h / 2 * 5 + j]).sum();
            }
        }
    }
    close(&expected, &run(&case));
}

#[test]
fn route_ranks_by_biased_scores_inside_the_best_groups() {
    let spec = RouteSpec {
        experts: 6,
        used: 2,
        gating: Gating::Sigmoid,
        normalise: true,
        scale: 2.0,
        groups: 3,
        groups_used: 1,
        bias: true,
    };
    let logits = vec![0.0, 1.0, 3.0, -9.0, 0.9, 0.8];
    let bias = infr_testkit::blocks::vector(&[6], &[0.5, 0.0, 0.0, 0.0, 0.0, 0.0]);
    for output in 0..2 {
        let mut m = Maker::new(5, &[1]);
        let x = m.input_of(6, logits.clone());
        let bias = m.weight_of(bias.clone());
        let (ids, weights) = m.builder.route(x, spec, Some(bias));
        let case = m.finish("route".into(), &[[ids, weights][output]], Tolerance::F32);
        // Scores are 1.0, 0.731, 0.953, 0.0001, 0.711, 0.690: group sums 1.731, 0.953, 1.401.
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        let (a, b) = (sigmoid(0.0), sigmoid(1.0));
        let expected = [vec![0.0, 1.0], vec![2.0 * a / (a + b), 2.0 * b / (a + b)]][output].clone();
        close(&expected, &run(&case));
    }
}

#[test]
fn convolution_looks_back() {
    let mut m = Maker::new(6, &[5]);
    let state = m.builder.state(0, StateKind::Slot { width: 6 });
    let x = m.input(3, 1.0);
    let filter = m.vector(&[3, 3], 0.0, 1.0);
    let y = m.builder.conv1d(state, x, filter, ConvSpec { channels: 3, taps: 3 });
    let case = m.finish("conv1d".into(), &[y], Tolerance::F32);
    let (x, w) = (carried(&case, 0), weight(&case, 0));
    let mut expected = vec![0.0; 15];
    for t in 0..5usize {
        for c in 0..3 {
            // The last tap meets the row itself.
            for back in 0..=t.min(2) {
                expected[t * 3 + c] += w[c * 3 + 2 - back] * x[(t - back) * 3 + c];
            }
        }
    }
    close(&expected, &run(&case));
}

/// The rule in its matrix form: `S_t = (I − β k kᵀ) e^g S_{t−1} + β k vᵀ`, `o = Sᵀq/√d`.
#[test]
fn delta_rule_in_matrix_form() {
    let spec = DeltaSpec { k_heads: 1, v_heads: 2, key_dim: 3, value_dim: 2, map: HeadMap::Modulo };
    let mut m = Maker::new(7, &[6]);
    let state = m.builder.state(0, StateKind::Slot { width: 12 });
    let inputs =
        [m.input(3, 0.5), m.input(3, 0.5), m.input(4, 1.0), m.input(2, 0.3), m.input(2, 0.5)];
    let y = m.builder.delta_net(state, inputs, spec);
    let case = m.finish("delta_net".into(), &[y], Tolerance::F32);
    let [q, k, v, g, beta] = [0, 1, 2, 3, 4].map(|i| carried(&case, i));
    let mut expected = vec![0.0; 24];
    for h in 0..2 {
        let mut s = [[0.0f64; 2]; 3];
        for t in 0..6 {
            let (k, q) = (&k[t * 3..], &q[t * 3..]);
            let (b, decay) = (beta[t * 2 + h], g[t * 2 + h].exp());
            let mut next = [[0.0; 2]; 3];
            for i in 0..3 {
                for j in 0..2 {
                    for l in 0..3 {
                        let identity = if i == l { 1.0 } else { 0.0 };
                        next[i][j] += (identity - b * k[i] * k[l]) * decay * s[l][j];
                    }
                    next[i][j] += b * k[i] * v[t * 4 + h * 2 + j];
                }
            }
            s = next;
            for j in 0..2 {
                expected[t * 4 + h * 2 + j] =
                    (0..3).map(|i| s[i][j] * q[i]).sum::<f64>() / 3f64.sqrt();
            }
        }
    }
    close(&expected, &run(&case));
}

#[test]
fn position_scale_steps_with_the_period() {
    let mut m = Maker::new(8, &[4]);
    m.first_position = 6;
    let x = m.input(2, 1.0);
    let positions = m.builder.positions();
    let spec = PositionScale { s: 0.3, offset: 1, period: 4 };
    let y = m.builder.position_scale(x, positions, spec);
    let case = m.finish("position_scale".into(), &[y], Tolerance::F32);
    let x = carried(&case, 0);
    // Positions 6 to 9, plus one, are in periods 1, 2, 2, 2.
    let scales = [1.0 + 0.3 * 2f64.ln(), 1.0 + 0.3 * 3f64.ln()];
    let expected: Vec<f64> = (0..8).map(|i| x[i] * scales[usize::from(i >= 2)]).collect();
    close(&expected, &run(&case));
}

/// Integrals and identities that define the functions.
#[test]
fn activations_keep_their_identities() {
    let points: Vec<f32> = (-40..=40).map(|i| i as f32 / 4.0).collect();
    let values = |function: Unary| {
        let mut m = Maker::new(9, &[1]);
        let x = m.input_of(points.len() as u32, points.clone());
        let y = m.builder.unary(function, x);
        run(&m.finish("unary".into(), &[y], Tolerance::F32))
    };
    let (silu, sigmoid, tanh) = (values(Unary::Silu), values(Unary::Sigmoid), values(Unary::Tanh));
    let (softplus, gelu, exp) = (values(Unary::Softplus), values(Unary::Gelu), values(Unary::Exp));
    for (i, x) in points.iter().map(|x| f64::from(*x)).enumerate() {
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-6 * (1.0 + b.abs()), "{x}: {a} {b}");
        let mirrored = points.len() - 1 - i;
        near(f64::from(sigmoid[i]) + f64::from(sigmoid[mirrored]), 1.0);
        near(f64::from(silu[i]), x * f64::from(sigmoid[i]));
        near(f64::from(softplus[i]) - f64::from(softplus[mirrored]), x);
        near(f64::from(gelu[i]) - f64::from(gelu[mirrored]), x);
        near(f64::from(exp[i]) * f64::from(exp[mirrored]), 1.0);
        near(f64::from(tanh[i]), (2.0 * x).exp_m1() / ((2.0 * x).exp() + 1.0));
    }
    // GELU(1) in its tanh form.
    near_to(gelu[44], 0.841_192);
    near_to(gelu[36], -0.158_808);
}

fn near_to(found: f32, expected: f32) {
    assert!((found - expected).abs() < 1e-6, "{found} {expected}");
}
