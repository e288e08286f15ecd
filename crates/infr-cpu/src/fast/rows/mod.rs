//! Row operations: norms, rotary embedding, gates, softmax. Rows are independent and spread over the threads.

mod rope;
#[cfg(test)]
mod tests;

use half::f16;

use super::Runner;
use super::math::{exp, sigmoid, tanh};
use super::pool::Shared;
use super::simd::{LANES, Simd, simd_entry};

pub use rope::{RopePairs, RopeShape, rope};

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
fn for_parts<T: Send>(run: Runner<'_>, out: &mut [T], each: &(dyn Fn(usize, &mut [T]) + Sync)) {
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
                let twice = S::mul(S::mul(x, cube), S::splat(1.595_769));
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

/// Rounds to half precision.
///
/// # Panics
/// When lengths differ.
pub fn to_half(run: Runner<'_>, x: &[f32], out: &mut [f16]) {
    assert_eq!(x.len(), out.len(), "one length");
    let level = run.level.or_scalar();
    for_parts(run, out, &|first, out| {
        // SAFETY: the level is available and the slices have one length.
        unsafe { to_half_part(level, &x[first..][..out.len()], out) }
    });
}

simd_entry! { unsafe fn to_half_part(x: &[f32], out: &mut [f16]) = to_half_generic }

#[inline(always)]
unsafe fn to_half_generic<S: Simd>(x: &[f32], out: &mut [f16]) {
    let whole = x.len() / LANES * LANES;
    for i in (0..whole).step_by(LANES) {
        // SAFETY: whole vectors lie inside the slices, which have one length.
        unsafe { S::store_f16(out.as_mut_ptr().add(i).cast(), S::load(x.as_ptr().add(i))) }
    }
    for (out, x) in out[whole..].iter_mut().zip(&x[whole..]) {
        *out = f16::from_f32(*x);
    }
}
