//! Rotary position embedding from tables of cosines and sines.

use super::{Runner, for_rows};
use crate::fast::simd::{Simd, simd_entry};

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
