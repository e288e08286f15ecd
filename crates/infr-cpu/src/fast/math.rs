//! Elementary functions on vectors of lanes.

use super::simd::Simd;

/// e^x with a relative error of about 1e-7; 0 below -88 (also for minus infinity), infinite above 89.
///
/// Range reduction by Cody and Waite (1980), polynomial of Cephes' `expf`.
///
/// # Safety
/// The level of `S` exists.
#[inline(always)]
pub(crate) unsafe fn exp<S: Simd>(x: S::F) -> S::F {
    // SAFETY: the caller's contract.
    unsafe {
        // The bound comes first so that a NaN passes through.
        let x = S::min(S::splat(89.0), S::max(S::splat(-88.0), x));
        let n = S::to_int(S::mul(x, S::splat(std::f32::consts::LOG2_E)));
        let whole = S::to_float(n);
        let r = S::fma(whole, S::splat(-0.693_359_4), x);
        let r = S::fma(whole, S::splat(2.121_944_4e-4), r);
        let mut p = S::splat(1.987_569_1e-4);
        p = S::fma(p, r, S::splat(1.398_199_9e-3));
        p = S::fma(p, r, S::splat(8.333_452e-3));
        p = S::fma(p, r, S::splat(4.166_579_6e-2));
        p = S::fma(p, r, S::splat(1.666_666_6e-1));
        p = S::fma(p, r, S::splat(0.5));
        p = S::fma(p, S::mul(r, r), S::add(r, S::splat(1.0)));
        // 2^n; the smallest n gives the bits of zero.
        S::mul(p, S::bits_to_float(S::shl_int::<23>(S::add_int(n, S::splat_int(127)))))
    }
}

/// 2^x for x up to 127, with a relative error of about 2e-7; 0 below -126.5, also for minus infinity.
///
/// A minimax polynomial on -0.5..0.5 that is exact at 0.
///
/// # Safety
/// The level of `S` exists.
#[inline(always)]
pub(crate) unsafe fn exp2<S: Simd>(x: S::F) -> S::F {
    // SAFETY: the caller's contract.
    unsafe {
        let x = S::max(S::splat(-127.0), x);
        let n = S::round(x);
        let r = S::sub(x, n);
        let mut p = S::splat(1.326_47e-3);
        p = S::fma(p, r, S::splat(9.671_51e-3));
        p = S::fma(p, r, S::splat(5.550_734e-2));
        p = S::fma(p, r, S::splat(2.402_224_2e-1));
        p = S::fma(p, r, S::splat(std::f32::consts::LN_2));
        p = S::fma(p, r, S::splat(1.0));
        S::scale(p, n)
    }
}

/// 1 / (1 + e^-x).
///
/// # Safety
/// The level of `S` exists.
#[inline(always)]
pub(crate) unsafe fn sigmoid<S: Simd>(x: S::F) -> S::F {
    // SAFETY: the caller's contract.
    unsafe {
        let one = S::splat(1.0);
        S::div(one, S::add(one, exp::<S>(S::sub(S::splat(0.0), x))))
    }
}

/// Hyperbolic tangent, with an absolute error of about 1e-7.
///
/// # Safety
/// The level of `S` exists.
#[inline(always)]
pub(crate) unsafe fn tanh<S: Simd>(x: S::F) -> S::F {
    // SAFETY: the caller's contract.
    unsafe {
        let one = S::splat(1.0);
        let e = exp::<S>(S::add(x, x));
        S::sub(one, S::div(S::splat(2.0), S::add(e, one)))
    }
}
