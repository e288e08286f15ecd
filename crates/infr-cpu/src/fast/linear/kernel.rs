//! The two matrix kernels: one packed group of 16 weight rows times `M` activation rows.
//!
//! Sums run over the blocks of a row in order and do not depend on `M` or on the neighbours of an activation
//! row, so a row's result is the same bits in every batch.

use super::format::{Format, Scales};
use crate::fast::acts::{BLOCK, BlockMeta};
use crate::fast::simd::{LANES, NARROW, SIGNED, Simd, WIDE};

/// One group of weights against one tile of activations.
#[derive(Clone, Copy)]
pub(super) struct TileJob {
    /// The packed group; readable 64 bytes past its end.
    pub(super) group: *const u8,
    /// Row length.
    pub(super) inner: usize,
    /// Quantised tile (or null).
    pub(super) q: *const i8,
    pub(super) meta: *const BlockMeta,
    /// `f32` tile (or null).
    pub(super) x: *const f32,
    /// Rows of the tile.
    pub(super) tile_rows: usize,
    /// Where the group's outputs of the tile's first row go.
    pub(super) out: *mut f32,
    /// Elements from one row's outputs to the next.
    pub(super) out_stride: usize,
    /// Weight rows in the group.
    pub(super) n_outputs: usize,
}

/// Runs `$kernel::<S, .., M>` over the rows of a tile in steps of the largest `M` that fits.
macro_rules! by_rows {
    ($job:expr, $max:expr, |$first:ident, $m:ident| $call:expr) => {{
        let mut $first = 0;
        while $first < $job.tile_rows {
            let left = ($job.tile_rows - $first).min($max);
            match left {
                16.. => by_rows!(@ 16, $first, $m, $call),
                8.. => by_rows!(@ 8, $first, $m, $call),
                4.. => by_rows!(@ 4, $first, $m, $call),
                2.. => by_rows!(@ 2, $first, $m, $call),
                _ => by_rows!(@ 1, $first, $m, $call),
            }
        }
    }};
    (@ $n:literal, $first:ident, $m:ident, $call:expr) => {{
        const $m: usize = $n;
        $call;
        $first += $n;
    }};
}

/// Integer kernel of format `F`.
///
/// # Safety
/// All pointers of `job` are valid for its sizes.
#[inline(always)]
pub(super) unsafe fn blocks<S: Simd, F: Format>(job: &TileJob) {
    // SAFETY: the caller's contract.
    unsafe {
        by_rows!(job, S::MAX_ROWS, |first, M| if M <= S::MAX_ROWS {
            blocks_of_rows::<S, F, M>(job, first)
        });
    }
}

#[inline(always)]
unsafe fn blocks_of_rows<S: Simd, F: Format, const M: usize>(job: &TileJob, first: usize) {
    let sub_bytes = LANES * BLOCK * (F::LOW_BITS + F::HIGH_BITS) as usize / 8;
    let signed = F::TABLE.is_some() || F::LOW_BITS == 8;
    let offset = if signed && S::SIGNED_BIASED { Some(7) } else { F::OFFSET };
    // SAFETY: the caller's contract; every step advances by what it reads.
    unsafe {
        let mut acc = [S::splat(0.0); M];
        let mut w = job.group;
        let mut q = job.q.add(first * BLOCK);
        let mut meta = job.meta.add(first);
        for _ in 0..job.inner / (BLOCK * F::SUBS) {
            let header = w;
            w = w.add(F::HEADER * LANES);
            for sub in 0..F::SUBS {
                let codes = unpack::<S, F>(w);
                w = w.add(sub_bytes);
                let scales = F::scales::<S>(header, sub);
                for (m, acc) in acc.iter_mut().enumerate() {
                    let meta = &*meta.add(m);
                    let q = q.add(m * BLOCK);
                    *acc = block_dot::<S, F>(offset, &codes, &scales, q, meta, *acc);
                }
                q = q.add(job.tile_rows * BLOCK);
                meta = meta.add(job.tile_rows);
            }
        }
        for (m, acc) in acc.iter().enumerate() {
            store::<S>(job, first + m, *acc);
        }
    }
}

/// Minus the sum of activations times the codes' offset.
#[inline(always)]
unsafe fn start<S: Simd>(offset: Option<u32>, minus_sum: i32) -> S::I {
    // SAFETY: the caller's contract.
    unsafe {
        match offset {
            Some(0) => S::splat_int(minus_sum),
            Some(2) => S::shl_int::<2>(S::splat_int(minus_sum)),
            Some(3) => S::shl_int::<3>(S::splat_int(minus_sum)),
            Some(4) => S::shl_int::<4>(S::splat_int(minus_sum)),
            Some(5) => S::shl_int::<5>(S::splat_int(minus_sum)),
            Some(_) => S::shl_int::<7>(S::splat_int(minus_sum)),
            None => S::splat_int(0),
        }
    }
}

/// Adds the products of one sub-block with 32 activations to `acc`.
#[inline(always)]
unsafe fn block_dot<S: Simd, F: Format>(
    offset: Option<u32>,
    codes: &[S::V; 8],
    scales: &Scales<S>,
    q: *const i8,
    meta: &BlockMeta,
    acc: S::F,
) -> S::F {
    // SAFETY: the caller's contract.
    unsafe {
        let first = [codes[0], codes[1], codes[2], codes[3]];
        let last = [codes[4], codes[5], codes[6], codes[7]];
        let minus_low = i32::from(meta.minus_low);
        let minus_high = i32::from(meta.minus_high);
        let low = dot16::<S, F>(start::<S>(offset, minus_low), first, q);
        let high = dot16::<S, F>(start::<S>(offset, minus_high), last, q.add(16));
        let low = S::mul(S::to_float(low), S::splat(meta.d_low));
        let mut acc = acc;
        if F::SPLIT {
            let high = S::mul(S::to_float(high), S::splat(meta.d_high));
            acc = S::fma(low, scales.low, acc);
            acc = S::fma(high, scales.high, acc);
            if F::MINS {
                let sum_low = S::splat(meta.d_low * -minus_low as f32);
                let sum_high = S::splat(meta.d_high * -minus_high as f32);
                acc = S::fma(scales.min_low, sum_low, acc);
                acc = S::fma(scales.min_high, sum_high, acc);
            }
        } else {
            let both = S::fma(S::to_float(high), S::splat(meta.d_high), low);
            acc = S::fma(both, scales.low, acc);
            if F::MINS {
                acc = S::fma(scales.min_low, S::splat(meta.d_sum), acc);
            }
        }
        acc
    }
}

#[inline(always)]
unsafe fn dot16<S: Simd, F: Format>(acc: S::I, w: [S::V; 4], q: *const i8) -> S::I {
    // SAFETY: the caller's contract.
    unsafe {
        if F::TABLE.is_some() || F::LOW_BITS == 8 {
            S::dot16::<SIGNED>(acc, w, q)
        } else if F::LOW_BITS + F::HIGH_BITS == 6 {
            S::dot16::<WIDE>(acc, w, q)
        } else {
            S::dot16::<NARROW>(acc, w, q)
        }
    }
}

/// The `i`-th 64 bytes of a plane.
#[inline(always)]
unsafe fn plane<S: Simd>(plane: *const u8, i: usize) -> S::V {
    // SAFETY: the caller's contract.
    unsafe { S::load_bytes(plane.add(64 * i)) }
}

/// Codes of one sub-block as eight vectors of four elements per row.
#[inline(always)]
unsafe fn unpack<S: Simd, F: Format>(w: *const u8) -> [S::V; 8] {
    // SAFETY: the caller's contract: the planes of the sub-block are readable.
    unsafe {
        let high = w.add(LANES * BLOCK * F::LOW_BITS as usize / 8);
        let mut codes = match F::LOW_BITS {
            8 => [
                plane::<S>(w, 0),
                plane::<S>(w, 1),
                plane::<S>(w, 2),
                plane::<S>(w, 3),
                plane::<S>(w, 4),
                plane::<S>(w, 5),
                plane::<S>(w, 6),
                plane::<S>(w, 7),
            ],
            4 => {
                let (a, b, c, d) =
                    (plane::<S>(w, 0), plane::<S>(w, 1), plane::<S>(w, 2), plane::<S>(w, 3));
                [
                    S::shr_mask::<0>(a, 15),
                    S::shr_mask::<0>(b, 15),
                    S::shr_mask::<0>(c, 15),
                    S::shr_mask::<0>(d, 15),
                    S::shr_mask::<4>(a, 15),
                    S::shr_mask::<4>(b, 15),
                    S::shr_mask::<4>(c, 15),
                    S::shr_mask::<4>(d, 15),
                ]
            }
            2 => {
                let (a, b) = (plane::<S>(w, 0), plane::<S>(w, 1));
                [
                    S::shr_mask::<0>(a, 3),
                    S::shr_mask::<2>(a, 3),
                    S::shr_mask::<4>(a, 3),
                    S::shr_mask::<6>(a, 3),
                    S::shr_mask::<0>(b, 3),
                    S::shr_mask::<2>(b, 3),
                    S::shr_mask::<4>(b, 3),
                    S::shr_mask::<6>(b, 3),
                ]
            }
            _ => bits::<S, 0>(plane::<S>(high, 0)),
        };
        if F::LOW_BITS > 0 && F::HIGH_BITS == 1 {
            let high = if F::LOW_BITS == 4 {
                bits::<S, 4>(plane::<S>(high, 0))
            } else {
                bits::<S, 2>(plane::<S>(high, 0))
            };
            for (code, high) in codes.iter_mut().zip(high) {
                *code = S::or_bytes(*code, high);
            }
        }
        if F::HIGH_BITS == 2 {
            for i in 0..2 {
                let x = plane::<S>(high, i);
                let c = &mut codes[4 * i..][..4];
                c[0] = S::or_bytes(c[0], S::shl_mask::<4>(x, 0x30));
                c[1] = S::or_bytes(c[1], S::shl_mask::<2>(x, 0x30));
                c[2] = S::or_bytes(c[2], S::shr_mask::<0>(x, 0x30));
                c[3] = S::or_bytes(c[3], S::shr_mask::<2>(x, 0x30));
            }
        }
        if let Some(table) = F::TABLE {
            for code in &mut codes {
                *code = S::lookup(table.as_ptr().cast(), *code);
            }
        }
        if F::TABLE.is_some() || F::LOW_BITS == 8 {
            for code in &mut codes {
                *code = S::prepare_signed(*code);
            }
        }
        codes
    }
}

/// Bit `j` of every byte at place `TO`, for the eight vectors `j`.
#[inline(always)]
unsafe fn bits<S: Simd, const TO: u32>(x: S::V) -> [S::V; 8] {
    // SAFETY: the caller's contract.
    unsafe {
        match TO {
            4 => [
                S::shl_mask::<4>(x, 16),
                S::shl_mask::<3>(x, 16),
                S::shl_mask::<2>(x, 16),
                S::shl_mask::<1>(x, 16),
                S::shr_mask::<0>(x, 16),
                S::shr_mask::<1>(x, 16),
                S::shr_mask::<2>(x, 16),
                S::shr_mask::<3>(x, 16),
            ],
            2 => [
                S::shl_mask::<2>(x, 4),
                S::shl_mask::<1>(x, 4),
                S::shr_mask::<0>(x, 4),
                S::shr_mask::<1>(x, 4),
                S::shr_mask::<2>(x, 4),
                S::shr_mask::<3>(x, 4),
                S::shr_mask::<4>(x, 4),
                S::shr_mask::<5>(x, 4),
            ],
            _ => [
                S::shr_mask::<0>(x, 1),
                S::shr_mask::<1>(x, 1),
                S::shr_mask::<2>(x, 1),
                S::shr_mask::<3>(x, 1),
                S::shr_mask::<4>(x, 1),
                S::shr_mask::<5>(x, 1),
                S::shr_mask::<6>(x, 1),
                S::shr_mask::<7>(x, 1),
            ],
        }
    }
}

/// A float element type of interleaved weights.
pub(super) trait Element {
    const BYTES: usize;
    /// # Safety
    /// `p` is valid for 16 elements.
    unsafe fn load<S: Simd>(p: *const u8) -> S::F;
}

pub(super) struct Single;
pub(super) struct Half;
pub(super) struct Brain;

impl Element for Single {
    const BYTES: usize = 4;
    #[inline(always)]
    unsafe fn load<S: Simd>(p: *const u8) -> S::F {
        // SAFETY: the trait's contract.
        unsafe { S::load(p.cast()) }
    }
}

impl Element for Half {
    const BYTES: usize = 2;
    #[inline(always)]
    unsafe fn load<S: Simd>(p: *const u8) -> S::F {
        // SAFETY: the trait's contract.
        unsafe { S::load_f16(p.cast()) }
    }
}

impl Element for Brain {
    const BYTES: usize = 2;
    #[inline(always)]
    unsafe fn load<S: Simd>(p: *const u8) -> S::F {
        // SAFETY: the trait's contract.
        unsafe { S::bits_to_float(S::shl_int::<16>(S::load_u16(p.cast()))) }
    }
}

/// Float kernel of element type `E`.
///
/// # Safety
/// All pointers of `job` are valid for its sizes.
#[inline(always)]
pub(super) unsafe fn floats<S: Simd, E: Element>(job: &TileJob) {
    // SAFETY: the caller's contract.
    unsafe {
        by_rows!(job, S::MAX_ROWS, |first, M| if M <= S::MAX_ROWS {
            floats_of_rows::<S, E, M>(job, first)
        });
    }
}

#[inline(always)]
unsafe fn floats_of_rows<S: Simd, E: Element, const M: usize>(job: &TileJob, first: usize) {
    // SAFETY: the caller's contract.
    unsafe {
        let mut acc = [S::splat(0.0); M];
        let mut w = job.group;
        let mut x = job.x.add(first);
        for _ in 0..job.inner {
            let weights = E::load::<S>(w);
            w = w.add(E::BYTES * LANES);
            for (m, acc) in acc.iter_mut().enumerate() {
                *acc = S::fma(weights, S::splat(*x.add(m)), *acc);
            }
            x = x.add(job.tile_rows);
        }
        for (m, acc) in acc.iter().enumerate() {
            store::<S>(job, first + m, *acc);
        }
    }
}

/// Stores the outputs of row `row_idx` of the tile.
#[inline(always)]
unsafe fn store<S: Simd>(job: &TileJob, row_idx: usize, acc: S::F) {
    // SAFETY: the caller's contract.
    unsafe {
        let out = job.out.add(row_idx * job.out_stride);
        if job.n_outputs == LANES {
            S::store(out, acc);
        } else {
            let mut lanes = [0f32; LANES];
            S::store(lanes.as_mut_ptr(), acc);
            std::ptr::copy_nonoverlapping(lanes.as_ptr(), out, job.n_outputs);
        }
    }
}
