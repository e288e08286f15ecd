//! Matrix products: activations times the rows of a weight, for one row (decode) or many (prefill) alike.
//!
//! Work is cut into (activation tiles) x (weight groups) rectangles that stay in a core's caches; threads
//! claim rectangles. Reading order: [`format`] (how a header becomes scales), [`kernel`], this file.

mod format;
mod kernel;
#[cfg(test)]
mod tests;

use std::ops::Range;

use infr_tensor::DType;
use infr_tensor::quant::Codec;

use self::kernel::TileJob;
use super::Runner;
use super::acts::{Acts, ActsKind, BLOCK, TILE};
use super::pack::{Layout, PackError, PackedWeight, WeightView, acts_kind, group_bytes};
use super::pool::Shared;
use super::simd::{LANES, SimdLevel, simd_entry};

/// Where results go: row `i` of the activations fills `data[i * stride..][..rows of the weight]`.
#[derive(Debug)]
pub struct Output<'a> {
    /// The rows.
    pub data: &'a mut [f32],
    /// Elements from one row to the next.
    pub stride: usize,
}

/// Bytes of weights that one task of a single-row product streams.
const STREAM_BYTES: usize = 64 * 1024;
/// Activation tiles of one task of a many-row product: they stay in the second-level cache.
const TASK_TILES: usize = 8;

/// `out[i] = weight[rows] · acts[i]` for every activation row `i`.
///
/// `rows` chooses weight rows; its start is a multiple of 16. A row's result does not depend on how many other
/// rows are computed with it.
///
/// # Panics
/// When the activations have another width or form than the weight takes, or `out` is too small.
pub fn linear(
    run: Runner<'_>,
    weight: &PackedWeight,
    rows: Range<usize>,
    acts: &Acts,
    out: Output<'_>,
) {
    let source = Source {
        layout: weight.layout,
        inner: weight.inner,
        outer: weight.outer,
        group_bytes: weight.group_bytes,
        data: Data::Packed(weight),
    };
    run_source(run, &source, rows, acts, out);
}

/// As [`linear`], for a weight that stays as it is in its file: groups are packed when they are used.
///
/// # Errors
/// When the type is no weight type or the sizes disagree.
///
/// # Panics
/// As [`linear`].
pub fn linear_unpacked(
    run: Runner<'_>,
    weight: WeightView<'_>,
    rows: Range<usize>,
    acts: &Acts,
    out: Output<'_>,
) -> Result<(), PackError> {
    let source = Source {
        layout: weight.layout()?,
        inner: weight.inner,
        outer: weight.outer,
        group_bytes: group_bytes(&weight),
        data: Data::File(weight),
    };
    run_source(run, &source, rows, acts, out);
    Ok(())
}

/// The form of activations that `weight` takes.
///
/// # Errors
/// When the type is no weight type or the sizes disagree.
pub fn acts_kind_of(weight: WeightView<'_>) -> Result<ActsKind, PackError> {
    Ok(acts_kind(weight.layout()?))
}

enum Data<'a> {
    Packed(&'a PackedWeight),
    File(WeightView<'a>),
}

/// A weight of either form.
struct Source<'a> {
    layout: Layout,
    inner: usize,
    outer: usize,
    group_bytes: usize,
    data: Data<'a>,
}

fn run_source(
    run: Runner<'_>,
    source: &Source<'_>,
    rows: Range<usize>,
    acts: &Acts,
    out: Output<'_>,
) {
    let n_rows = acts.n_rows();
    let n_outputs = rows.len();
    if n_rows == 0 || n_outputs == 0 {
        return;
    }
    let kind = acts_kind(source.layout);
    assert_eq!(acts.kind(), Some(kind), "form of the activations");
    assert_eq!(acts.width(), source.inner, "width of the activations");
    assert!(rows.start.is_multiple_of(LANES) && rows.end <= source.outer, "weight rows {rows:?}");
    assert!(n_outputs <= out.stride, "stride {} for {n_outputs} outputs", out.stride);
    assert!((n_rows - 1) * out.stride + n_outputs <= out.data.len(), "output is too small");

    let level = run.level.or_scalar();
    let groups = rows.start / LANES..rows.end.div_ceil(LANES);
    let tiles = n_rows.div_ceil(TILE);
    let plan = Plan::new(groups.len(), source.group_bytes, tiles, run.pool.n_threads());
    let target = Shared::new(out.data);
    let multiply = |group: *const u8, g: usize, tile: usize| {
        let range = acts.tile(tile);
        let first = range.start * source.inner;
        // SAFETY: the tile lies inside the buffer of its form, whose size was fixed by `fill`.
        let (q, meta, x) = unsafe {
            match kind {
                ActsKind::Q8 => {
                    let meta = acts.meta.as_ptr().add(first / BLOCK);
                    (acts.q.as_ptr().add(first), meta, std::ptr::null())
                }
                ActsKind::F32 => (std::ptr::null(), std::ptr::null(), acts.x.as_ptr().add(first)),
            }
        };
        // SAFETY: the outputs of this group and tile lie inside `out` and belong to this call alone; all
        // sizes were checked above.
        unsafe {
            let job = TileJob {
                group,
                inner: source.inner,
                q,
                meta,
                x,
                tile_rows: range.len(),
                out: target.ptr().add(range.start * out.stride + g * LANES - rows.start),
                out_stride: out.stride,
                n_outputs: (rows.end - g * LANES).min(LANES),
            };
            run_tile(source.layout, level, &job);
        }
    };
    run.pool.run(plan.n_tasks(), &|task| {
        let (group_part, tiles) = plan.task(task);
        let group_part = groups.start + group_part.start..groups.start + group_part.end;
        if let Some(weight) = source.in_place() {
            // The tile stays in the first-level cache while the groups stream past it.
            for tile in tiles {
                group_part.clone().for_each(|g| multiply(weight.group(g), g, tile));
            }
        } else {
            let mut scratch = Vec::new();
            for g in group_part {
                let group = source.expand(g, &mut scratch);
                tiles.clone().for_each(|tile| multiply(group, g, tile));
            }
        }
    });
}

impl Source<'_> {
    /// The weight when its kernel reads it where it lies.
    fn in_place(&self) -> Option<&PackedWeight> {
        match (&self.data, self.layout) {
            (Data::Packed(weight), Layout::Blocks(_) | Layout::Floats(_)) => Some(weight),
            (Data::Packed(_), Layout::Decoded(_)) | (Data::File(_), _) => None,
        }
    }

    /// Makes what the kernel reads of group `g` in `scratch`.
    fn expand(&self, g: usize, scratch: &mut Vec<f32>) -> *const u8 {
        let first_row = g * LANES;
        let n_rows = (self.outer - first_row).min(LANES);
        match (&self.data, self.layout) {
            (Data::Packed(weight), Layout::Blocks(_) | Layout::Floats(_)) => weight.group(g),
            (Data::Packed(weight), Layout::Decoded(codec)) => {
                let len = self.group_bytes / LANES * n_rows;
                // SAFETY: a group of this layout holds the bytes of its rows.
                let bytes = unsafe { std::slice::from_raw_parts(weight.group(g), len) };
                decode_group(codec, bytes, (self.group_bytes / LANES, self.inner), scratch)
            }
            (Data::File(view), Layout::Decoded(codec)) => {
                let row_bytes = self.group_bytes / LANES;
                let bytes = &view.bytes[first_row * row_bytes..][..n_rows * row_bytes];
                decode_group(codec, bytes, (self.group_bytes / LANES, self.inner), scratch)
            }
            (Data::File(view), layout) => {
                scratch.resize(self.group_bytes.div_ceil(4) + LANES, 0.0);
                let bytes: &mut [u8] = bytemuck::cast_slice_mut(scratch);
                view.pack_group(layout, first_row, &mut bytes[..self.group_bytes]);
                scratch.as_ptr().cast()
            }
        }
    }
}

/// Decodes up to 16 rows of `row_bytes` bytes into interleaved `f32`.
fn decode_group(
    codec: &dyn Codec,
    rows: &[u8],
    (row_bytes, inner): (usize, usize),
    scratch: &mut Vec<f32>,
) -> *const u8 {
    scratch.clear();
    scratch.resize(LANES * inner + inner, 0.0);
    let (group, row) = scratch.split_at_mut(LANES * inner);
    for (r, bytes) in rows.chunks_exact(row_bytes).enumerate() {
        codec.decode(bytes, row);
        for (k, value) in row.iter().enumerate() {
            group[k * LANES + r] = *value;
        }
    }
    scratch.as_ptr().cast()
}

/// How a product is cut into tasks.
struct Plan {
    groups: usize,
    tiles: usize,
    task_groups: usize,
    task_tiles: usize,
}

impl Plan {
    fn new(groups: usize, group_bytes: usize, tiles: usize, n_threads: usize) -> Plan {
        let task_tiles = tiles.min(TASK_TILES);
        let tile_parts = tiles.div_ceil(task_tiles);
        // A task streams enough weights to be worth claiming, and each thread gets a few of them.
        let by_bytes = (STREAM_BYTES / group_bytes.max(1)).max(1);
        let by_share = (groups * tile_parts).div_ceil(n_threads * 4).max(1);
        let task_groups = by_bytes.min(by_share).min(groups);
        Plan { groups, tiles, task_groups, task_tiles }
    }

    fn n_tasks(&self) -> usize {
        self.groups.div_ceil(self.task_groups) * self.tiles.div_ceil(self.task_tiles)
    }

    /// Groups and tiles of a task; neighbours in task order share their activations.
    fn task(&self, task: usize) -> (Range<usize>, Range<usize>) {
        let group_parts = self.groups.div_ceil(self.task_groups);
        let part = |i: usize, step: usize, len: usize| i * step..((i + 1) * step).min(len);
        (
            part(task % group_parts, self.task_groups, self.groups),
            part(task / group_parts, self.task_tiles, self.tiles),
        )
    }
}

/// # Safety
/// The pointers of `job` are valid for its sizes, its group has the layout, and the level is available.
unsafe fn run_tile(layout: Layout, level: SimdLevel, job: &TileJob) {
    // SAFETY: the caller's contract.
    unsafe {
        match layout {
            Layout::Blocks(spec) => run_blocks(spec.dtype, level, job),
            Layout::Floats(DType::F16) => half(level, job),
            Layout::Floats(DType::BF16) => brain(level, job),
            Layout::Floats(_) | Layout::Decoded(_) => single(level, job),
        }
    }
}

macro_rules! block_kernels {
    ($($dtype:ident => $entry:ident: $format:ident;)*) => {
        mod entries {
            use super::format::*;
            use super::kernel::{TileJob, blocks};
            use crate::fast::simd::{Simd, simd_entry};
            $(
                pub(super) mod $entry {
                    use super::*;
                    #[inline(always)]
                    unsafe fn generic<S: Simd>(job: &TileJob) {
                        // SAFETY: forwarded to the caller.
                        unsafe { blocks::<S, $format>(job) }
                    }
                    simd_entry! { pub(in super::super) unsafe fn run(job: &TileJob) = generic }
                }
            )*
        }
        /// # Safety
        /// As [`run_tile`].
        unsafe fn run_blocks(dtype: DType, level: SimdLevel, job: &TileJob) {
            // SAFETY: the caller's contract.
            unsafe {
                match dtype {
                    $(DType::$dtype => entries::$entry::run(level, job),)*
                    other => unreachable!("{other} has a pack spec and no kernel"),
                }
            }
        }
    };
}

block_kernels! {
    Q4_0 => q4_0: Q40;
    Q4_1 => q4_1: Q41;
    Q5_0 => q5_0: Q50;
    Q5_1 => q5_1: Q51;
    Q8_0 => q8_0: Q80;
    Q2_K => q2_k: Q2K;
    Q3_K => q3_k: Q3K;
    Q4_K => q4_k: Q4K;
    Q5_K => q5_k: Q5K;
    Q6_K => q6_k: Q6K;
    IQ4_NL => iq4_nl: Iq4Nl;
    IQ4_XS => iq4_xs: Iq4Xs;
    MXFP4 => mxfp4: Mxfp4;
    NVFP4 => nvfp4: Nvfp4;
    TQ1_0 => tq1_0: Ternary;
    TQ2_0 => tq2_0: Ternary;
    Q1_0 => q1_0: Q10;
    Q2_0 => q2_0: Q20;
}

simd_entry! { unsafe fn single(job: &TileJob) = single_generic }
simd_entry! { unsafe fn half(job: &TileJob) = half_generic }
simd_entry! { unsafe fn brain(job: &TileJob) = brain_generic }

#[inline(always)]
unsafe fn single_generic<S: super::simd::Simd>(job: &TileJob) {
    // SAFETY: forwarded to the caller.
    unsafe { kernel::floats::<S, kernel::Single>(job) }
}

#[inline(always)]
unsafe fn half_generic<S: super::simd::Simd>(job: &TileJob) {
    // SAFETY: forwarded to the caller.
    unsafe { kernel::floats::<S, kernel::Half>(job) }
}

#[inline(always)]
unsafe fn brain_generic<S: super::simd::Simd>(job: &TileJob) {
    // SAFETY: forwarded to the caller.
    unsafe { kernel::floats::<S, kernel::Brain>(job) }
}
