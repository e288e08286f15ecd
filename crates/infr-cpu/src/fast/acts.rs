//! Activations as the matrix kernels read them: tiles of up to 16 rows, as bytes with a scale per 16 or as `f32`.
//!
//! A tile of `t` rows stores block after block, and in each block row after row, so that a kernel reads one
//! stream whatever the number of rows. Only the last tile has fewer than 16 rows. Quantising follows the
//! round-to-nearest rule of Q8_0 with an unrounded scale, d = max|x| / 127, q = round(x / d), per 16
//! elements: half of Q8_0's block, since the rounding of activations is the largest error of a
//! quantised product and falls with the square of the scale.

use std::ops::Range;

use super::Runner;
use super::pool::Shared;
use super::simd::{LANES, Simd, simd_entry};

/// Elements of a block: two halves with a scale each.
pub(crate) const BLOCK: usize = 32;
/// Rows of a full tile.
pub(crate) const TILE: usize = 16;

/// Scales and sums of 32 quantised activations.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct BlockMeta {
    /// Scale of the first 16 bytes.
    pub(crate) d_low: f32,
    /// Scale of the last 16 bytes.
    pub(crate) d_high: f32,
    /// Sum of the 32 values that the bytes and scales stand for.
    pub(crate) d_sum: f32,
    /// Minus the sum of the first 16 bytes.
    pub(crate) minus_low: i16,
    /// Minus the sum of the last 16 bytes.
    pub(crate) minus_high: i16,
}

/// Which form of activations a weight's kernel takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ActsKind {
    /// Signed bytes with a scale per 16 elements.
    Q8,
    /// Single precision.
    F32,
}

/// Rows of activations in kernel layout. Buffers are kept between fills.
#[derive(Debug, Default)]
pub struct Acts {
    n_rows: usize,
    width: usize,
    kind: Option<ActsKind>,
    pub(crate) q: Vec<i8>,
    pub(crate) meta: Vec<BlockMeta>,
    pub(crate) x: Vec<f32>,
}

/// Rows of a row-major matrix, all of them or chosen ones.
#[derive(Debug, Clone, Copy)]
pub enum RowChoice<'a> {
    /// The first `n` rows.
    First(usize),
    /// These rows in this order; rows may repeat.
    Picked(&'a [u32]),
}

impl RowChoice<'_> {
    /// Number of rows.
    pub fn len(&self) -> usize {
        match self {
            RowChoice::First(n) => *n,
            RowChoice::Picked(rows) => rows.len(),
        }
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn source(&self, row_idx: usize) -> usize {
        match self {
            RowChoice::First(_) => row_idx,
            RowChoice::Picked(rows) => rows[row_idx] as usize,
        }
    }
}

impl Acts {
    /// An empty buffer.
    pub fn new() -> Acts {
        Acts::default()
    }

    /// Number of rows.
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// Elements per row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The form that the buffer holds, `None` before the first fill.
    pub fn kind(&self) -> Option<ActsKind> {
        self.kind
    }

    /// Fills the buffer with `rows` of the row-major matrix `x` of `width` columns.
    ///
    /// # Panics
    /// When a row lies outside `x`, or for [`ActsKind::Q8`] when `width` is not a multiple of 32.
    pub fn fill(
        &mut self,
        run: Runner<'_>,
        kind: ActsKind,
        x: &[f32],
        width: usize,
        rows: RowChoice<'_>,
    ) {
        let level = run.level.or_scalar();
        let n_rows = rows.len();
        let blocks = match kind {
            ActsKind::Q8 => {
                assert!(width.is_multiple_of(BLOCK), "width {width} is no multiple of {BLOCK}");
                width / BLOCK
            }
            ActsKind::F32 => 0,
        };
        for row_idx in 0..n_rows {
            assert!((rows.source(row_idx) + 1) * width <= x.len(), "row outside the matrix");
        }
        (self.n_rows, self.width, self.kind) = (n_rows, width, Some(kind));
        match kind {
            ActsKind::Q8 => {
                grow(&mut self.q, n_rows * width);
                grow(&mut self.meta, n_rows * blocks);
            }
            ActsKind::F32 => grow(&mut self.x, n_rows * width),
        }
        let q = Shared::new(&mut self.q);
        let meta = Shared::new(&mut self.meta);
        let out = Shared::new(&mut self.x);
        let fill_row = |row_idx: usize| {
            let source = &x[rows.source(row_idx) * width..][..width];
            let (tile, in_tile) = (row_idx / TILE, row_idx % TILE);
            let tile_rows = (n_rows - tile * TILE).min(TILE);
            let first = tile * TILE * width;
            match kind {
                // SAFETY: the level is available; each row writes its own places of its own tile, all
                // inside the buffers, which were sized for `n_rows` rows.
                ActsKind::Q8 => unsafe {
                    let q = q.ptr().add(first + in_tile * BLOCK);
                    let meta = meta.ptr().add(tile * TILE * blocks + in_tile);
                    quantise_row(level, source, q, meta, tile_rows);
                },
                ActsKind::F32 => {
                    // SAFETY: as above.
                    unsafe {
                        let mut out = out.ptr().add(first + in_tile);
                        for value in source {
                            out.write(*value);
                            out = out.add(tile_rows);
                        }
                    }
                }
            }
        };
        let chunk = (16 * 1024 / width.max(1)).max(1);
        run.pool.run(n_rows.div_ceil(chunk), &|i| {
            (i * chunk..((i + 1) * chunk).min(n_rows)).for_each(fill_row);
        });
    }

    /// First row and number of rows of tile `tile`.
    pub(crate) fn tile(&self, tile: usize) -> Range<usize> {
        tile * TILE..((tile + 1) * TILE).min(self.n_rows)
    }

    /// The bytes, scale and sums of one row, block by block: for tests and the plain definition.
    #[cfg(test)]
    pub(crate) fn row_blocks(&self, row_idx: usize) -> Vec<(Vec<i8>, BlockMeta)> {
        let range = self.tile(row_idx / TILE);
        let (t, r) = (range.len(), row_idx - range.start);
        (0..self.width / BLOCK)
            .map(|b| {
                let q = &self.q[range.start * self.width + (b * t + r) * BLOCK..][..BLOCK];
                let meta = self.meta[range.start * self.width / BLOCK + b * t + r];
                (q.to_vec(), meta)
            })
            .collect()
    }
}

/// Makes `buffer` at least `len` long; what it holds is overwritten before it is read.
fn grow<T: Clone + Default>(buffer: &mut Vec<T>, len: usize) {
    if buffer.len() < len {
        buffer.resize(len, T::default());
    }
}

simd_entry! {
    /// Quantises one row into its places of a tile of `tile_rows` rows.
    unsafe fn quantise_row(x: &[f32], q: *mut i8, meta: *mut BlockMeta, tile_rows: usize)
        = quantise_row_generic
}

/// # Safety
/// `q` and `meta` are valid for `x.len() / 32` blocks with a stride of `tile_rows` blocks.
#[inline(always)]
unsafe fn quantise_row_generic<S: Simd>(
    x: &[f32],
    q: *mut i8,
    meta: *mut BlockMeta,
    tile_rows: usize,
) {
    for (b, block) in x.chunks_exact(BLOCK).enumerate() {
        // SAFETY: the caller's contract; a block has two vectors of values.
        unsafe {
            let q = q.add(b * tile_rows * BLOCK);
            let (d_low, sum_low) = quantise_half::<S>(block.as_ptr(), q);
            let (d_high, sum_high) = quantise_half::<S>(block.as_ptr().add(LANES), q.add(LANES));
            meta.add(b * tile_rows).write(BlockMeta {
                d_low,
                d_high,
                d_sum: d_low * sum_low as f32 + d_high * sum_high as f32,
                minus_low: -sum_low as i16,
                minus_high: -sum_high as i16,
            });
        }
    }
}

/// Quantises 16 values; gives their scale and the sum of the bytes (at most 16 · 127 either way).
///
/// # Safety
/// `x` and `q` are valid for 16 elements.
#[inline(always)]
unsafe fn quantise_half<S: Simd>(x: *const f32, q: *mut i8) -> (f32, i32) {
    // SAFETY: the caller's contract.
    unsafe {
        let x = S::load(x);
        let d = S::largest(S::abs(x)) / 127.0;
        // Below this the reciprocal overflows; such values are zero at any useful precision.
        let (d, inverse) = if d > 1e-37 { (d, 1.0 / d) } else { (0.0, 0.0) };
        let codes = S::to_int(S::mul(x, S::splat(inverse)));
        S::store_i8(q, codes);
        (d, S::sum_int(codes))
    }
}
