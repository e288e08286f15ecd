//! Row operations against their definitions in `f64`, on every level.

use half::f16;

use super::*;
use crate::fast::SimdLevel;
use crate::fast::testing::Rng;
use crate::threads::ThreadPool;

fn for_levels(test: impl Fn(Runner<'_>)) {
    let pool = ThreadPool::new(3);
    for level in SimdLevel::ALL.into_iter().filter(|l| l.is_available()) {
        test(Runner { pool: &pool, level });
    }
}

fn random(n: usize, scale: f32) -> Vec<f32> {
    let mut rng = Rng::new(n as u64);
    (0..n).map(|_| rng.normal() * scale).collect()
}

#[test]
fn norms_match_the_definition() {
    for_levels(|run| {
        for width in [1, 15, 16, 64, 77, 576] {
            let (x, w) = (random(9 * width, 3.0), random(width, 1.0));
            for weight in [None, Some(&w[..])] {
                let mut out = vec![0f32; x.len()];
                rms_norm_rows(run, (&x, width), weight, 1e-5, &mut out);
                for (x, out) in x.chunks(width).zip(out.chunks(width)) {
                    let mean = x.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>();
                    let factor = 1.0 / (mean / width as f64 + 1e-5).sqrt();
                    for (i, out) in out.iter().enumerate() {
                        let w = weight.map_or(1.0, |w| f64::from(w[i]));
                        let expected = f64::from(x[i]) * factor * w;
                        assert!((f64::from(*out) - expected).abs() < 1e-6 * (1.0 + expected.abs()));
                    }
                }
            }
        }
    });
}

#[test]
fn activations_match_the_definition() {
    let define = |act: Activation, x: f64| match act {
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::Gelu => {
            0.5 * x * (1.0 + (0.797_884_560_802_865_4 * x * (1.0 + 0.044_715 * x * x)).tanh())
        }
        Activation::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Activation::ReluSquared => x.max(0.0).powi(2),
        Activation::Tanh => x.tanh(),
        Activation::Exp => x.exp(),
    };
    let acts = [
        Activation::Silu,
        Activation::Gelu,
        Activation::Sigmoid,
        Activation::ReluSquared,
        Activation::Tanh,
        Activation::Exp,
    ];
    for_levels(|run| {
        for n in [1, 16, 31, 20_001] {
            let (gate, up) = (random(n, 8.0), random(n + 1, 1.0));
            for act in acts {
                let mut out = vec![0f32; n];
                activate(run, act, &gate, Some(&up[1..]), &mut out);
                for i in 0..n {
                    let value = define(act, f64::from(gate[i]));
                    let expected = value * f64::from(up[i + 1]);
                    let error = (f64::from(out[i]) - expected).abs();
                    let bound = 1e-6 * expected.abs().max(f64::from(up[i + 1].abs()) * 0.3);
                    assert!(error <= bound, "{act:?} {}: {} {expected}", gate[i], out[i]);
                }
            }
        }
    });
}

#[test]
fn exp_is_accurate_over_its_range_and_ends_right() {
    for_levels(|run| {
        let x: Vec<f32> = (0..40_000).map(|i| -87.0 + i as f32 * (175.0 / 40_000.0)).collect();
        let mut out = vec![0f32; x.len()];
        activate(run, Activation::Exp, &x, None, &mut out);
        for (x, y) in x.iter().zip(&out) {
            let expected = f64::from(*x).exp();
            assert!((f64::from(*y) / expected - 1.0).abs() < 3e-7, "e^{x}: {y} {expected}");
        }
        let ends = [f32::NEG_INFINITY, -200.0, 200.0, f32::INFINITY, 0.0, f32::NAN];
        let mut out = [0f32; 6];
        activate(run, Activation::Exp, &ends, None, &mut out);
        assert_eq!(&out[..5], &[0.0, 0.0, f32::INFINITY, f32::INFINITY, 1.0]);
        assert!(out[5].is_nan());
    });
}

#[test]
fn softmax_matches_the_definition() {
    for_levels(|run| {
        for width in [1, 16, 50, 333] {
            let x = random(4 * width, 5.0);
            let mut out = x.clone();
            softmax(run, &mut out, width);
            for (x, out) in x.chunks(width).zip(out.chunks(width)) {
                let total: f64 = x.iter().map(|v| f64::from(*v).exp()).sum();
                for (x, out) in x.iter().zip(out) {
                    assert!((f64::from(*out) - f64::from(*x).exp() / total).abs() < 1e-6);
                }
            }
        }
    });
}

#[test]
fn rope_rotates_the_chosen_pairs() {
    for_levels(|run| {
        let (heads, head_dim, start, n_rot, n_rows) = (3, 40, 4, 34, 5);
        let angles = random(n_rows * n_rot / 2, 2.0);
        let (cos, sin): (Vec<f32>, Vec<f32>) = angles.iter().map(|a| (a.cos(), a.sin())).unzip();
        for pairs in [RopePairs::Halves, RopePairs::Neighbours] {
            let x = random(n_rows * heads * head_dim, 1.0);
            let mut out = x.clone();
            rope(run, RopeShape { heads, head_dim, start, n_rot, pairs }, &cos, &sin, &mut out);
            let mut expected = x.clone();
            for row in 0..n_rows {
                for head in 0..heads {
                    for i in 0..n_rot / 2 {
                        let (a, b) = match pairs {
                            RopePairs::Halves => (i, i + n_rot / 2),
                            RopePairs::Neighbours => (2 * i, 2 * i + 1),
                        };
                        let at = (row * heads + head) * head_dim + start;
                        let (c, s) = (cos[row * n_rot / 2 + i], sin[row * n_rot / 2 + i]);
                        expected[at + a] = x[at + a] * c - x[at + b] * s;
                        expected[at + b] = x[at + a] * s + x[at + b] * c;
                    }
                }
            }
            for (a, b) in out.iter().zip(&expected) {
                assert!((a - b).abs() < 1e-6);
            }
        }
    });
}

#[test]
fn halves_are_rounded_to_nearest() {
    for_levels(|run| {
        let mut x = random(10_003, 100.0);
        x[..4].copy_from_slice(&[1e6, -1e-9, 6e-8, 65_519.0]);
        let mut out = vec![f16::ZERO; x.len()];
        to_half(run, &x, &mut out);
        assert!(out.iter().zip(&x).all(|(h, x)| *h == f16::from_f32(*x)));
    });
}

#[test]
fn sums_are_elementwise() {
    for_levels(|run| {
        let (a, b) = (random(10_001, 1.0), random(10_001, 2.0));
        let mut out = vec![0f32; a.len()];
        add(run, &a, &b, &mut out);
        assert!(out.iter().zip(a.iter().zip(&b)).all(|(o, (a, b))| *o == a + b));
    });
}
