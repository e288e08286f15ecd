//! How the encoders choose scales.
//!
//! Simple formats divide the largest magnitude or the range by the number of steps. Formats with a
//! search minimise the squared error: for each of a few candidate step sizes the values are rounded, and
//! the scale (and offset) that fits the rounded codes best follows from linear least squares; rounding
//! again with the fitted scale is Lloyd's iteration. The super-block then rounds its sub-scales to their
//! small integers, and each sub-block takes the neighbouring integers that give the least error.
//!
//! Searches run on values scaled by a power of two to a largest magnitude in [1, 2), which is exact and
//! keeps squares of huge and of tiny inputs in range.

use half::f16;

use super::bytes::finite_f16;

/// The value of largest magnitude, the first of equals.
#[inline]
pub(crate) fn largest(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |best: f32, &v| if v.abs() > best.abs() { v } else { best })
}

/// Smallest and largest value.
#[inline]
pub(crate) fn min_max(values: &[f32]) -> (f32, f32) {
    values
        .iter()
        .fold((f32::INFINITY, f32::NEG_INFINITY), |(min, max), &v| (v.min(min), v.max(max)))
}

/// One over `d`, zero for zero.
#[inline]
pub(crate) fn inverse(d: f32) -> f32 {
    if d == 0.0 { 0.0 } else { 1.0 / d }
}

/// A grid of values symmetric around zero or nearly so, on which codes lie.
pub(crate) trait Levels: Copy {
    /// Lowest level.
    const LOW: f32;
    /// Highest level.
    const HIGH: f32;
    /// The level nearest to `v`; any level for NaN.
    fn nearest(self, v: f32) -> f32;
}

/// All integers from `LO` to `HI`.
#[derive(Clone, Copy)]
pub(crate) struct Integers<const LO: i32, const HI: i32>;

impl<const LO: i32, const HI: i32> Levels for Integers<LO, HI> {
    const LOW: f32 = LO as f32;
    const HIGH: f32 = HI as f32;

    #[inline]
    fn nearest(self, v: f32) -> f32 {
        round(v.clamp(Self::LOW, Self::HIGH))
    }
}

/// Values scaled by a power of two to a largest magnitude in [1, 2).
struct Normalised<const N: usize> {
    values: [f32; N],
    unit: f64,
}

impl<const N: usize> Normalised<N> {
    /// `None` when all values are zero.
    fn new(values: &[f32; N]) -> Option<Normalised<N>> {
        let peak = f64::from(largest(values).abs());
        if peak == 0.0 {
            return None;
        }
        // A double with the exponent of `peak` alone; every float is a normal double.
        let unit = f64::from_bits(peak.to_bits() & (0x7ff << 52));
        Some(Normalised { values: values.map(|v| (f64::from(v) / unit) as f32), unit })
    }

    /// A scale as the block stores it, and what that is worth on the normalised values.
    fn stored(&self, scale: f32) -> (f16, f32) {
        let stored = finite_f16((f64::from(scale) * self.unit) as f32);
        (stored, (stored.to_f64() / self.unit) as f32)
    }
}

/// Levels and scales that a search chose for a block of `N` values in `SUBS` sub-blocks.
pub(crate) struct Scaled<const N: usize, const SUBS: usize> {
    /// Block scale.
    pub(crate) d: f16,
    /// Integer factors of the sub-blocks.
    pub(crate) scales: [i8; SUBS],
    /// The level of each value.
    pub(crate) levels: [f32; N],
}

/// Fits `d * level` to a block with one scale.
pub(crate) fn one_scale<const N: usize, L: Levels>(values: &[f32; N], grid: L) -> Scaled<N, 1> {
    let mut result = Scaled { d: f16::ZERO, scales: [1], levels: [grid.nearest(0.0); N] };
    let Some(block) = Normalised::new(values) else { return result };
    let (d, step) = block.stored(fit_scale(&block.values, grid));
    result.d = d;
    let inverse = inverse(step);
    result.levels = block.values.map(|v| grid.nearest(v * inverse));
    result
}

/// Fits `d * scale * level` to a super-block, its scales the signed integers from `scale_low` to
/// `-scale_low - 1`.
pub(crate) fn sub_scales<const N: usize, const SUBS: usize, L: Levels>(
    values: &[f32; N],
    grid: L,
    scale_low: i32,
) -> Scaled<N, SUBS> {
    let mut result = Scaled { d: f16::ZERO, scales: [0; SUBS], levels: [grid.nearest(0.0); N] };
    let Some(block) = Normalised::new(values) else { return result };
    let width = N / SUBS;
    let mut fitted = [0.0; SUBS];
    for (scale, x) in fitted.iter_mut().zip(block.values.chunks_exact(width)) {
        *scale = fit_scale(x, grid);
    }
    let (d, step) = block.stored(largest(&fitted) / scale_low as f32);
    result.d = d;
    let inverse_step = inverse(step);
    let subs = block.values.chunks_exact(width).zip(result.levels.chunks_exact_mut(width));
    for ((x, levels), (fit, scale)) in subs.zip(fitted.iter().zip(&mut result.scales)) {
        let centre = (fit * inverse_step).round() as i32;
        let mut least = f32::INFINITY;
        for candidate in centre.saturating_sub(1)..=centre.saturating_add(1) {
            let candidate = candidate.clamp(scale_low, -scale_low - 1);
            let size = step * candidate as f32;
            let inverse = inverse(size);
            let error = sum(x, |v| square(v - size * grid.nearest(v * inverse)));
            if error < least {
                least = error;
                *scale = candidate as i8;
            }
        }
        let inverse = inverse(step * f32::from(*scale));
        for (level, &v) in levels.iter_mut().zip(x) {
            *level = grid.nearest(v * inverse);
        }
    }
    result
}

/// The scale that gives `scale * level` the least squared error on normalised values.
fn fit_scale<L: Levels>(x: &[f32], grid: L) -> f32 {
    let peak = largest(x);
    if peak.abs() < f32::MIN_POSITIVE {
        return 0.0;
    }
    // With the best scale the error is sum(x^2) - gain, gain = sum(x*l)^2 / sum(l^2).
    let (mut best, mut best_gain) = (0.0, 0.0);
    for edge in [L::LOW, L::HIGH] {
        for step in 0..CANDIDATES {
            // Above one, the largest values are clipped to the last level.
            let reach = 0.85 + 0.05 * step as f32;
            let mut inverse = edge * reach / peak;
            for _ in 0..ROUNDS {
                let [xl, ll] = sums(x, |v| {
                    let level = grid.nearest(v * inverse);
                    [v * level, level * level]
                });
                let gain = xl * xl / ll;
                if gain > best_gain {
                    (best, best_gain) = (xl / ll, gain);
                }
                inverse = ll / xl;
            }
        }
    }
    best
}

/// Step sizes tried per sub-block.
const CANDIDATES: u32 = 12;
/// Roundings per step size.
const ROUNDS: u32 = 2;

/// What a search chose for a K-quant super-block `d * scale * code - dmin * min`.
pub(crate) struct Affine<const SUBS: usize> {
    /// Unit of the scales.
    pub(crate) d: f16,
    /// Unit of the minima.
    pub(crate) dmin: f16,
    /// Integer scales of the sub-blocks.
    pub(crate) scales: [u8; SUBS],
    /// Integer minima of the sub-blocks.
    pub(crate) mins: [u8; SUBS],
    /// The code of each value.
    pub(crate) codes: [u8; 256],
}

/// `step * code - min`, with `min` not negative.
#[derive(Clone, Copy)]
struct Line {
    step: f32,
    min: f32,
}

impl Line {
    #[inline]
    fn code(self, inverse: f32, top: f32, v: f32) -> f32 {
        round(((v + self.min) * inverse).clamp(0.0, top))
    }

    fn error(self, x: &[f32], top: f32) -> f32 {
        let inverse = inverse(self.step);
        sum(x, |v| square(self.step * self.code(inverse, top, v) - self.min - v))
    }
}

/// Fits codes from 0 to `top` and fields from 0 to `field_top` to a super-block.
pub(crate) fn affine<const SUBS: usize>(
    values: &[f32; 256],
    top: u8,
    field_top: u8,
) -> Affine<SUBS> {
    let mut result = Affine {
        d: f16::ZERO,
        dmin: f16::ZERO,
        scales: [0; SUBS],
        mins: [0; SUBS],
        codes: [0; 256],
    };
    let Some(block) = Normalised::new(values) else { return result };
    let width = 256 / SUBS;
    let (top, field_top) = (f32::from(top), f32::from(field_top));
    let mut lines = [Line { step: 0.0, min: 0.0 }; SUBS];
    let (mut step_peak, mut min_peak) = (0.0f32, 0.0f32);
    for (line, x) in lines.iter_mut().zip(block.values.chunks_exact(width)) {
        *line = fit_line(x, top);
        step_peak = step_peak.max(line.step);
        min_peak = min_peak.max(line.min);
    }
    let (d, d_step) = block.stored(step_peak / field_top);
    let (dmin, min_step) = block.stored(min_peak / field_top);
    (result.d, result.dmin) = (d, dmin);
    let (d_inverse, min_inverse) = (inverse(d_step), inverse(min_step));
    for (sub, x) in block.values.chunks_exact(width).enumerate() {
        let scale = (lines[sub].step * d_inverse).round();
        let min = (lines[sub].min * min_inverse).round();
        let mut least = f32::INFINITY;
        let mut best = Line { step: 0.0, min: 0.0 };
        for (ds, dm) in NEIGHBOURS {
            let scale = (scale + ds).clamp(0.0, field_top);
            let min = (min + dm).clamp(0.0, field_top);
            let line = Line { step: d_step * scale, min: min_step * min };
            let error = line.error(x, top);
            if error < least {
                (least, best) = (error, line);
                (result.scales[sub], result.mins[sub]) = (scale as u8, min as u8);
            }
        }
        let inverse = inverse(best.step);
        for (code, &v) in result.codes[sub * width..].iter_mut().zip(x) {
            *code = best.code(inverse, top, v) as u8;
        }
    }
    result
}

/// Changes of (scale, min) that a sub-block tries.
const NEIGHBOURS: [(f32, f32); 9] = [
    (0.0, 0.0),
    (0.0, -1.0),
    (0.0, 1.0),
    (-1.0, 0.0),
    (1.0, 0.0),
    (-1.0, -1.0),
    (-1.0, 1.0),
    (1.0, -1.0),
    (1.0, 1.0),
];

/// The line of least squared error on normalised values.
fn fit_line(x: &[f32], top: f32) -> Line {
    let (low, high) = min_max(x);
    let low = low.min(0.0);
    let mut best = Line { step: 0.0, min: -low };
    if high - low < f32::MIN_POSITIVE {
        return best;
    }
    let mut least = best.error(x, top);
    for candidate in 0..CANDIDATES {
        // Below one, values at both ends are clipped to the last codes.
        let reach = 1.05 - 0.05 * candidate as f32;
        let step = (high - low) * reach / top;
        let mut line = Line { step, min: (0.5 * (top * step - low - high)).max(0.0) };
        for _ in 0..ROUNDS {
            line = refit(x, line, top);
            let error = line.error(x, top);
            if error < least {
                (least, best) = (error, line);
            }
        }
    }
    best
}

/// Least squares through the codes that `line` gives.
fn refit(x: &[f32], line: Line, top: f32) -> Line {
    let inverse = inverse(line.step);
    let n = x.len() as f32;
    let [sum_q, sum_qq, sum_x, sum_xq] = sums(x, |v| {
        let q = line.code(inverse, top, v);
        [q, q * q, v, v * q]
    });
    let determinant = n * sum_qq - sum_q * sum_q;
    if determinant <= 0.0 {
        return line;
    }
    let min = (sum_q * sum_xq - sum_qq * sum_x) / determinant;
    if min < 0.0 {
        return Line { step: (sum_xq / sum_qq).max(0.0), min: 0.0 };
    }
    Line { step: ((n * sum_xq - sum_q * sum_x) / determinant).max(0.0), min }
}

#[inline]
fn square(v: f32) -> f32 {
    v * v
}

/// Nearest integer, halves to even, for magnitudes below 2^22: adding 1.5 * 2^23 leaves no fraction bits.
#[inline]
fn round(v: f32) -> f32 {
    const NO_FRACTION: f32 = 12_582_912.0;
    (v + NO_FRACTION) - NO_FRACTION
}

/// Nearest integer, halves away from zero, for magnitudes below 2^22; zero for NaN.
///
/// The largest float below one half, added, crosses the next integer exactly from a half on.
#[inline]
pub(crate) fn round_away(v: f32) -> i32 {
    (v + 0.499_999_97f32.copysign(v)) as i32
}

/// Sums of the terms that `f` gives for each value.
#[inline]
fn sums<const K: usize>(x: &[f32], f: impl Fn(f32) -> [f32; K]) -> [f32; K] {
    // Eight partial sums each, so that the additions of a vector are independent.
    let mut partial = [[0.0f32; 8]; K];
    let (chunks, rest) = x.as_chunks::<8>();
    debug_assert!(rest.is_empty(), "sub-blocks are multiples of eight values");
    for chunk in chunks {
        for lane in 0..8 {
            let terms = f(chunk[lane]);
            for (partial, term) in partial.iter_mut().zip(terms) {
                partial[lane] += term;
            }
        }
    }
    partial.map(|lanes| lanes.iter().sum())
}

/// Sum of what `f` gives for each value.
#[inline]
fn sum(x: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    let [total] = sums(x, |v| [f(v)]);
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_round_away_from_zero() {
        for v in [0.5f32, 0.499_999_97, 1.5, 2.5, 126.5, 126.499_99, 1e-40, 0.0, 1.0, 127.0] {
            assert_eq!(round_away(v), v.round() as i32, "{v}");
            assert_eq!(round_away(-v), (-v).round() as i32, "-{v}");
        }
    }

    #[test]
    fn a_line_on_the_grid_is_found() {
        let x: [f32; 32] = std::array::from_fn(|i| 0.125 * (i % 16) as f32 - 0.75);
        let line = fit_line(&x, 15.0);
        assert!((line.step - 0.125).abs() < 1e-6 && (line.min - 0.75).abs() < 1e-6);
        assert!(line.error(&x, 15.0) < 1e-10);
    }

    #[test]
    fn a_scale_on_the_grid_is_found() {
        // 1 down to -0.75: only a negative scale reaches code -4 with the largest value.
        let x: [f32; 16] = std::array::from_fn(|i| 1.0 - 0.25 * (i % 8) as f32);
        let scale = fit_scale(&x, Integers::<-4, 3>);
        assert!((scale + 0.25).abs() < 1e-6, "{scale}");
    }
}
