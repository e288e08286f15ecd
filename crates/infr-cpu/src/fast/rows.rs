//! Row operations: norms, rotary embedding, gates, softmax. Rows are independent and spread over the threads.

use super::Runner;
use super::math::{exp, sigmoid, tanh};
use super::pool::Shared;
use super::simd::{LANES, Simd, simd_entry};

/// Elements that one task computes at least.
const TASK_ELEMENTS: usize = 8 * 1024;

/// Calls `each(first_row, rows)` for parts of the rows of `out`, in parallel.
fn for_rows(
    run: Runner<'_>,
    out: &mut [f32],
    width: usize,
    each: &(dyn Fn(usize, &mut [f32]) + Sync),
) {
    if width == 0 || out.is_empty() {
        return;
    }
    let n_rows = out.len() / width;
    assert_eq!(n_rows * width, out.len(), "whole rows of {width}");
    let per_task = (TASK_ELEMENTS / width).max(1);
    let target = Shared::new(out);
    run.pool.run(n_rows.div_ceil(per_task), &|task| {
        let first = task * per_task;
        let n = per_task.min(n_rows - first);
        // SAFETY: the rows of a task lie inside `out` and belong to that task alone.
        each(first, unsafe { target.part(first * width, n * width) });
    });
}

/// `x / sqrt(mean(x²) + eps) · weight` for every row of `width` elements (Zhang and Sennrich, 2019).
///
/// # Panics
/// When sizes disagree.
pub fn rms_norm(run: Runner<'_>, x: &[f32], weight: Option<&[f32]>, eps: f32, out: &mut [f32]) {
    let width = weight.map_or(out.len(), <[f32]>::len);
    rms_norm_rows(run, (x, width), weight, eps, out);
}

/// As [`rms_norm`], with rows (or heads) of `width` elements whether or not there is a weight.
///
/// # Panics
/// When sizes disagree.
pub fn rms_norm_rows(
    run: Runner<'_>,
    (x, width): (&[f32], usize),
    weight: Option<&[f32]>,
    eps: f32,
    out: &mut [f32],
) {
    assert_eq!(x.len(), out.len(), "as many outputs as inputs");
    assert!(weight.is_none_or(|w| w.len() == width), "one weight per element");
    let level = run.level.or_scalar();
    for_rows(run, out, width, &|first, out| {
        for (i, out) in out.chunks_exact_mut(width).enumerate() {
            let x = &x[(first + i) * width..][..width];
            // SAFETY: the level is available and the slices have one length.
            unsafe { rms_norm_row(level, x, weight, eps, out) }
        }
    });
}

simd_entry! {
    unsafe fn rms_norm_row(x: &[f32], weight: Option<&[f32]>, eps: f32, out: &mut [f32])
        = rms_norm_generic
}

#[inline(always)]
unsafe fn rms_norm_generic<S: Simd>(x: &[f32], weight: Option<&[f32]>, eps: f32, out: &mut [f32]) {
    let (n, whole) = (x.len(), x.len() / LANES * LANES);
    // SAFETY: whole vectors lie inside the slices, which have one length.
    unsafe {
        let mut squares = S::splat(0.0);
        for i in (0..whole).step_by(LANES) {
            let v = S::load(x.as_ptr().add(i));
            squares = S::fma(v, v, squares);
        }
        let sum = S::sum(squares) + x[whole..].iter().map(|v| v * v).sum::<f32>();
        let factor = 1.0 / (sum / n as f32 + eps).sqrt();
        for i in (0..whole).step_by(LANES) {
            let mut v = S::mul(S::load(x.as_ptr().add(i)), S::splat(factor));
            if let Some(weight) = weight {
                v = S::mul(v, S::load(weight.as_ptr().add(i)));
            }
            S::store(out.as_mut_ptr().add(i), v);
        }
        for i in whole..n {
            out[i] = x[i] * factor * weight.map_or(1.0, |w| w[i]);
        }
    }
}

/// `a + b`, element by element.
///
/// # Panics
/// When lengths differ.
pub fn add(run: Runner<'_>, a: &[f32], b: &[f32], out: &mut [f32]) {
    assert!(a.len() == out.len() && b.len() == out.len(), "one length");
    let level = run.level.or_scalar();
    for_parts(run, out, &|first, out| {
        let n = out.len();
        // SAFETY: the level is available and the slices have one length.
        unsafe { add_part(level, &a[first..][..n], &b[first..][..n], out) }
    });
}

/// Calls `each(first, part)` for parts of `out`, in parallel.
fn for_parts(run: Runner<'_>, out: &mut [f32], each: &(dyn Fn(usize, &mut [f32]) + Sync)) {
    let len = out.len();
    let target = Shared::new(out);
    run.pool.run(len.div_ceil(TASK_ELEMENTS), &|task| {
        let first = task * TASK_ELEMENTS;
        let n = TASK_ELEMENTS.min(len - first);
        // SAFETY: the part lies inside `out` and belongs to this task alone.
        each(first, unsafe { target.part(first, n) });
    });
}

simd_entry! { unsafe fn add_part(a: &[f32], b: &[f32], out: &mut [f32]) = add_generic }

#[inline(always)]
unsafe fn add_generic<S: Simd>(a: &[f32], b: &[f32], out: &mut [f32]) {
    // The compiler vectorises this for the level's instructions.
    for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
        *out = a + b;
    }
}

/// A function that gates or activates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// `x·sigmoid(x)`.
    Silu,
    /// GELU in its tanh form (Hendrycks and Gimpel, 2016).
    Gelu,
    /// `sigmoid(x)`.
    Sigmoid,
    /// `max(x, 0)²`.
    ReluSquared,
    /// `tanh(x)`.
    Tanh,
    /// `e^x`.
    Exp,
}

/// `act(gate)·up`, or `act(gate)` alone.
///
/// # Panics
/// When lengths differ.
pub fn activate(
    run: Runner<'_>,
    act: Activation,
    gate: &[f32],
    up: Option<&[f32]>,
    out: &mut [f32],
) {
    assert!(gate.len() == out.len() && up.is_none_or(|u| u.len() == out.len()), "one length");
    let level = run.level.or_scalar();
    for_parts(run, out, &|first, out| {
        let n = out.len();
        let up = up.map(|u| &u[first..][..n]);
        // SAFETY: the level is available and the slices have one length.
        unsafe { activate_part(level, act, &gate[first..][..n], up, out) }
    });
}

simd_entry! {
    unsafe fn activate_part(act: Activation, gate: &[f32], up: Option<&[f32]>, out: &mut [f32])
        = activate_generic
}

#[inline(always)]
unsafe fn activate_generic<S: Simd>(
    act: Activation,
    gate: &[f32],
    up: Option<&[f32]>,
    out: &mut [f32],
) {
    let whole = out.len() / LANES * LANES;
    // SAFETY: whole vectors lie inside the slices, which have one length; the rest goes through a buffer.
    unsafe {
        for i in (0..whole).step_by(LANES) {
            let mut v = function::<S>(act, S::load(gate.as_ptr().add(i)));
            if let Some(up) = up {
                v = S::mul(v, S::load(up.as_ptr().add(i)));
            }
            S::store(out.as_mut_ptr().add(i), v);
        }
        let mut rest = [0f32; LANES];
        let n = out.len() - whole;
        rest[..n].copy_from_slice(&gate[whole..]);
        let v = function::<S>(act, S::load(rest.as_ptr()));
        S::store(rest.as_mut_ptr(), v);
        for i in 0..n {
            out[whole + i] = rest[i] * up.map_or(1.0, |u| u[whole + i]);
        }
    }
}

#[inline(always)]
unsafe fn function<S: Simd>(act: Activation, x: S::F) -> S::F {
    // SAFETY: the caller's contract.
    unsafe {
        match act {
            Activation::Silu => S::mul(x, sigmoid::<S>(x)),
            Activation::Gelu => {
                // 0.5·(1 + tanh(z)) is sigmoid(2z).
                let cube = S::fma(S::mul(x, x), S::splat(0.044_715), S::splat(1.0));
                let twice = S::mul(S::mul(x, cube), S::splat(1.595_769_1));
                S::mul(x, sigmoid::<S>(twice))
            }
            Activation::Sigmoid => sigmoid::<S>(x),
            Activation::ReluSquared => {
                let x = S::max(S::splat(0.0), x);
                S::mul(x, x)
            }
            Activation::Tanh => tanh::<S>(x),
            Activation::Exp => exp::<S>(x),
        }
    }
}

/// Softmax of every row of `width` elements, in place.
///
/// # Panics
/// When `x` is no whole number of rows.
pub fn softmax(run: Runner<'_>, x: &mut [f32], width: usize) {
    let level = run.level.or_scalar();
    for_rows(run, x, width, &|_, rows| {
        for row in rows.chunks_exact_mut(width) {
            // SAFETY: the level is available.
            unsafe { softmax_row(level, row) }
        }
    });
}

simd_entry! { unsafe fn softmax_row(x: &mut [f32]) = softmax_generic }

#[inline(always)]
unsafe fn softmax_generic<S: Simd>(x: &mut [f32]) {
    let whole = x.len() / LANES * LANES;
    let p = x.as_mut_ptr();
    // SAFETY: whole vectors lie inside `x`; the rest goes through a buffer.
    unsafe {
        let mut rest = [f32::NEG_INFINITY; LANES];
        rest[..x.len() - whole].copy_from_slice(&x[whole..]);
        let mut top = S::load(rest.as_ptr());
        for i in (0..whole).step_by(LANES) {
            top = S::max(top, S::load(p.add(i)));
        }
        let top = S::splat(S::largest(top));
        let last = exp::<S>(S::sub(S::load(rest.as_ptr()), top));
        let mut total = last;
        for i in (0..whole).step_by(LANES) {
            let v = exp::<S>(S::sub(S::load(p.add(i)), top));
            total = S::add(total, v);
            S::store(p.add(i), v);
        }
        let factor = S::splat(1.0 / S::sum(total));
        for i in (0..whole).step_by(LANES) {
            S::store(p.add(i), S::mul(S::load(p.add(i)), factor));
        }
        S::store(rest.as_mut_ptr(), S::mul(last, factor));
        let n = x.len() - whole;
        x[whole..].copy_from_slice(&rest[..n]);
    }
}

/// How the elements of a head are paired for rotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RopePairs {
    /// `(i, i + n/2)`.
    Halves,
    /// `(2i, 2i + 1)`.
    Neighbours,
}

/// Where the rotated elements of a head stand.
#[derive(Debug, Clone, Copy)]
pub struct RopeShape {
    /// Heads in a row.
    pub heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// First rotated element of a head.
    pub start: usize,
    /// Rotated elements, an even number.
    pub n_rot: usize,
    /// Pairs.
    pub pairs: RopePairs,
}

/// Rotates the heads of every row in place (Su et al., 2021).
///
/// `cos` and `sin` have `n_rot / 2` angles per row.
///
/// # Panics
/// When sizes disagree.
pub fn rope(run: Runner<'_>, shape: RopeShape, cos: &[f32], sin: &[f32], x: &mut [f32]) {
    let RopeShape { heads, head_dim, start, n_rot, .. } = shape;
    let (width, half) = (heads * head_dim, n_rot / 2);
    assert!(n_rot.is_multiple_of(2) && start + n_rot <= head_dim, "rotated part inside a head");
    assert!(
        width > 0 && cos.len() >= x.len() / width * half && sin.len() >= x.len() / width * half
    );
    let level = run.level.or_scalar();
    for_rows(run, x, width, &|first, rows| {
        for (i, row) in rows.chunks_exact_mut(width).enumerate() {
            let (cos, sin) =
                (&cos[(first + i) * half..][..half], &sin[(first + i) * half..][..half]);
            // SAFETY: the level is available.
            unsafe { rope_row(level, shape, cos, sin, row) }
        }
    });
}

simd_entry! {
    unsafe fn rope_row(shape: RopeShape, cos: &[f32], sin: &[f32], row: &mut [f32]) = rope_generic
}

#[inline(always)]
unsafe fn rope_generic<S: Simd>(shape: RopeShape, cos: &[f32], sin: &[f32], row: &mut [f32]) {
    let RopeShape { head_dim, start, n_rot, pairs, .. } = shape;
    for head in row.chunks_exact_mut(head_dim) {
        let part = &mut head[start..start + n_rot];
        // The compiler vectorises both loops for the level's instructions.
        match pairs {
            RopePairs::Halves => {
                let (low, high) = part.split_at_mut(n_rot / 2);
                for (((low, high), c), s) in low.iter_mut().zip(high).zip(cos).zip(sin) {
                    (*low, *high) = (*low * c - *high * s, *low * s + *high * c);
                }
            }
            RopePairs::Neighbours => {
                for ((pair, c), s) in part.chunks_exact_mut(2).zip(cos).zip(sin) {
                    (pair[0], pair[1]) = (pair[0] * c - pair[1] * s, pair[0] * s + pair[1] * c);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
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
                            assert!(
                                (f64::from(*out) - expected).abs() < 1e-6 * (1.0 + expected.abs())
                            );
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
            let (cos, sin): (Vec<f32>, Vec<f32>) =
                angles.iter().map(|a| (a.cos(), a.sin())).unzip();
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
    fn sums_are_elementwise() {
        for_levels(|run| {
            let (a, b) = (random(10_001, 1.0), random(10_001, 2.0));
            let mut out = vec![0f32; a.len()];
            add(run, &a, &b, &mut out);
            assert!(out.iter().zip(a.iter().zip(&b)).all(|(o, (a, b))| *o == a + b));
        });
    }
}
