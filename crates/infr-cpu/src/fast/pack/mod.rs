//! Weights as the matrix kernels read them: groups of 16 rows, interleaved so that a vector lane is a row.
//!
//! Within a group, each block of a format becomes its header fields (each field 16 times, row after row) and then
//! its codes by sub-blocks of 32: first the plane of low bits, then the plane of high bits. A 64-byte vector of
//! codes holds four consecutive elements of each row. The packed form has the size of the file's form (rows
//! rounded up to 16), is read front to back, and needs no sums across lanes.

mod codes;
mod memory;
mod spec;

use infr_tensor::DType;
use infr_tensor::quant::{Codec, codec};

use super::acts::{ActsKind, BLOCK};
use super::pool::Shared;
use super::simd::LANES;
use crate::threads::ThreadPool;
use memory::Region;
pub use memory::WeightArena;
pub(crate) use spec::{Field, PackSpec, spec};

/// Why a weight cannot be used by the matrix kernels.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PackError {
    /// The type is no weight type.
    #[error("{0} is no weight type")]
    NotAWeight(DType),
    /// Rows are not whole blocks.
    #[error("rows of {inner} elements are no whole blocks of {dtype} ({block_len})")]
    Ragged {
        /// Weight type.
        dtype: DType,
        /// Row length.
        inner: usize,
        /// Elements of one block.
        block_len: usize,
    },
    /// The bytes do not match the shape.
    #[error("{dtype} [{outer}, {inner}] takes {wanted} bytes, found {found}")]
    Size {
        /// Weight type.
        dtype: DType,
        /// Number of rows.
        outer: usize,
        /// Row length.
        inner: usize,
        /// Bytes that the shape takes.
        wanted: usize,
        /// Bytes given.
        found: usize,
    },
    /// The system has no memory left for the packed form.
    #[error("no memory for a packed weight of {wanted} bytes")]
    OutOfMemory {
        /// Bytes asked for.
        wanted: usize,
    },
}

/// A weight matrix as it stands in a file: `outer` rows of `inner` elements.
#[derive(Debug, Clone, Copy)]
pub struct WeightView<'a> {
    /// Element or block type.
    pub dtype: DType,
    /// The rows, one after the other.
    pub bytes: &'a [u8],
    /// Number of rows: outputs.
    pub outer: usize,
    /// Elements of a row: inputs.
    pub inner: usize,
}

/// How a group is stored and which kernel reads it.
#[derive(Clone, Copy)]
pub(crate) enum Layout {
    /// Interleaved blocks of integer codes.
    Blocks(&'static PackSpec),
    /// Interleaved elements of a float type.
    Floats(DType),
    /// Rows as in the file, decoded to `f32` when used.
    Decoded(&'static dyn Codec),
}

impl WeightView<'_> {
    /// The bytes of one row.
    fn row_bytes(&self) -> usize {
        self.inner / self.dtype.block_len() * self.dtype.block_bytes()
    }

    pub(crate) fn layout(&self) -> Result<Layout, PackError> {
        let block_len = self.dtype.block_len();
        if !self.inner.is_multiple_of(block_len) {
            let (dtype, inner) = (self.dtype, self.inner);
            return Err(PackError::Ragged { dtype, inner, block_len });
        }
        let wanted = self.row_bytes() * self.outer;
        if wanted != self.bytes.len() {
            let found = self.bytes.len();
            let &WeightView { dtype, outer, inner, .. } = self;
            return Err(PackError::Size { dtype, outer, inner, wanted, found });
        }
        if let Some(spec) = spec(self.dtype) {
            return Ok(Layout::Blocks(spec));
        }
        match self.dtype {
            DType::F32 | DType::F16 | DType::BF16 => Ok(Layout::Floats(self.dtype)),
            other => codec(other).map(Layout::Decoded).ok_or(PackError::NotAWeight(other)),
        }
    }

    /// Writes the packed form of 16 rows from `first_row` (fewer at the end: the rest is zero).
    pub(crate) fn pack_group(&self, layout: Layout, first_row: usize, out: &mut [u8]) {
        let row_bytes = self.row_bytes();
        let n_rows = (self.outer - first_row).min(LANES);
        let rows = &self.bytes[first_row * row_bytes..][..n_rows * row_bytes];
        match layout {
            Layout::Blocks(spec) => spec.pack(rows, n_rows, row_bytes, out),
            Layout::Floats(DType::F32) => interleave::<4>(rows, row_bytes, out),
            Layout::Floats(_) => interleave::<2>(rows, row_bytes, out),
            Layout::Decoded(_) => out[..rows.len()].copy_from_slice(rows),
        }
    }
}

/// A weight matrix in kernel layout, made once when a model is opened.
pub struct PackedWeight {
    pub(crate) dtype: DType,
    pub(crate) outer: usize,
    pub(crate) inner: usize,
    pub(crate) layout: Layout,
    pub(crate) group_bytes: usize,
    memory: Region,
}

impl PackedWeight {
    /// Packs `weight` into memory of its own, group by group on the threads of `pool`.
    ///
    /// # Errors
    /// When the type is no weight type, the sizes disagree, or memory is short.
    pub fn pack(pool: &ThreadPool, weight: WeightView<'_>) -> Result<PackedWeight, PackError> {
        let layout = weight.layout()?;
        PackedWeight::pack_into(pool, weight, layout, Region::alone(memory_bytes(&weight))?)
    }

    /// As [`PackedWeight::pack`], in memory shared with the other weights of the model.
    ///
    /// # Errors
    /// As [`PackedWeight::pack`].
    pub fn pack_in(
        pool: &ThreadPool,
        arena: &WeightArena,
        weight: WeightView<'_>,
    ) -> Result<PackedWeight, PackError> {
        let layout = weight.layout()?;
        PackedWeight::pack_into(pool, weight, layout, arena.take(memory_bytes(&weight))?)
    }

    fn pack_into(
        pool: &ThreadPool,
        weight: WeightView<'_>,
        layout: Layout,
        mut memory: Region,
    ) -> Result<PackedWeight, PackError> {
        let group_bytes = group_bytes(&weight);
        let out = Shared::new(memory.bytes_mut());
        pool.run(weight.outer.div_ceil(LANES), &|g| {
            // SAFETY: group `g` owns its `group_bytes` bytes, which lie inside the region.
            let group = unsafe { out.part(g * group_bytes, group_bytes) };
            weight.pack_group(layout, g * LANES, group);
        });
        let WeightView { dtype, outer, inner, .. } = weight;
        Ok(PackedWeight { dtype, outer, inner, layout, group_bytes, memory })
    }

    /// Type of the weight in its file.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Number of rows: outputs.
    pub fn outer(&self) -> usize {
        self.outer
    }

    /// Elements of a row: inputs.
    pub fn inner(&self) -> usize {
        self.inner
    }

    /// Bytes that the packed form takes.
    pub fn packed_bytes(&self) -> usize {
        self.memory.len()
    }

    /// The form of activations that the weight's kernel takes.
    pub fn acts_kind(&self) -> ActsKind {
        acts_kind(self.layout)
    }

    /// Start of group `g`; valid for `group_bytes` bytes and a line behind.
    pub(crate) fn group(&self, g: usize) -> *const u8 {
        assert!(g * LANES < self.outer, "group {g} of {} rows", self.outer);
        // SAFETY: the group lies inside the region.
        unsafe { self.memory.ptr().add(g * self.group_bytes) }
    }
}

impl std::fmt::Debug for PackedWeight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PackedWeight({} [{}, {}])", self.dtype, self.outer, self.inner)
    }
}

/// Bytes of the packed form, with room behind the last group for whole vectors of a header field.
fn memory_bytes(weight: &WeightView<'_>) -> usize {
    weight.outer.div_ceil(LANES) * group_bytes(weight) + 64
}

/// Bytes of one packed group of `weight`.
pub(crate) fn group_bytes(weight: &WeightView<'_>) -> usize {
    match spec(weight.dtype) {
        Some(spec) => weight.inner / spec.dtype.block_len() * spec.block_bytes(),
        None => weight.row_bytes() * LANES,
    }
}

/// The form of activations that the kernel of `layout` takes.
pub(crate) fn acts_kind(layout: Layout) -> ActsKind {
    match layout {
        Layout::Blocks(_) => ActsKind::Q8,
        Layout::Floats(_) | Layout::Decoded(_) => ActsKind::F32,
    }
}

impl PackSpec {
    /// Bytes of the header of one packed block.
    pub(crate) fn header_bytes(&self) -> usize {
        LANES * self.fields.iter().map(|f| f.width * f.count).sum::<usize>()
    }

    /// Bytes of one packed block.
    pub(crate) fn block_bytes(&self) -> usize {
        let subs = self.dtype.block_len() / BLOCK;
        self.header_bytes() + subs * LANES * BLOCK * (self.low_bits + self.high_bits) as usize / 8
    }

    fn pack(&self, rows: &[u8], n_rows: usize, row_bytes: usize, out: &mut [u8]) {
        let source_bytes = self.dtype.block_bytes();
        let subs = self.dtype.block_len() / BLOCK;
        let sub_bytes = LANES * BLOCK * (self.low_bits + self.high_bits) as usize / 8;
        let packed = out.chunks_exact_mut(self.block_bytes());
        for (b, packed) in packed.enumerate() {
            let block = |r: usize| &rows[r * row_bytes + b * source_bytes..][..source_bytes];
            let (header, planes) = packed.split_at_mut(self.header_bytes());
            header.fill(0);
            let mut at = 0;
            for &Field { offset, width, count } in self.fields {
                for i in 0..count {
                    let field = &mut header[at..at + LANES * width];
                    for r in 0..n_rows {
                        let value = &block(r)[offset + i * width..];
                        // One and two bytes are all there is; a copy of unknown length costs a call.
                        field[r * width] = value[0];
                        if width == 2 {
                            field[2 * r + 1] = value[1];
                        }
                    }
                    at += LANES * width;
                }
            }
            let mut codes = [[0u8; BLOCK]; LANES];
            for (sub, planes) in planes.chunks_exact_mut(sub_bytes).enumerate().take(subs) {
                for (r, codes) in codes.iter_mut().enumerate().take(n_rows) {
                    (self.codes)(block(r), sub, codes);
                }
                self.pack_planes(&codes, planes);
            }
        }
    }

    /// Splits the codes of 16 rows into their bit planes.
    fn pack_planes(&self, codes: &[[u8; BLOCK]; LANES], out: &mut [u8]) {
        let (low, high) = out.split_at_mut(LANES * BLOCK * self.low_bits as usize / 8);
        for (from, width, plane) in [(0, self.low_bits, low), (self.low_bits, self.high_bits, high)]
        {
            match width {
                0 => {}
                1 => pack_plane::<1>(codes, from, plane),
                2 => pack_plane::<2>(codes, from, plane),
                4 => pack_plane::<4>(codes, from, plane),
                _ => pack_plane::<8>(codes, from, plane),
            }
        }
    }
}

/// Writes element `k` of up to 16 rows side by side, for every `k`.
fn interleave<const WIDTH: usize>(rows: &[u8], row_bytes: usize, out: &mut [u8]) {
    let (elements, _) = out.as_chunks_mut::<WIDTH>();
    let n_rows = rows.len() / row_bytes.max(1);
    for (k, lanes) in elements.chunks_exact_mut(LANES).enumerate() {
        for (r, lane) in lanes.iter_mut().enumerate() {
            *lane = [0; WIDTH];
            if r < n_rows {
                lane.copy_from_slice(&rows[r * row_bytes + k * WIDTH..][..WIDTH]);
            }
        }
    }
}

/// Packs bits `from..from + WIDTH` of the codes; a byte holds the same place of `8 / WIDTH` vectors.
fn pack_plane<const WIDTH: usize>(codes: &[[u8; BLOCK]; LANES], from: u32, out: &mut [u8]) {
    let mask = (0xFFu32 >> (8 - WIDTH)) * 0x0101_0101;
    let per_byte = 8 / WIDTH;
    let n_planes = BLOCK / 4 / per_byte;
    let out = &mut out[..n_planes * LANES * 4];
    for (r, codes) in codes.iter().enumerate() {
        for plane in 0..n_planes {
            let mut word = 0u32;
            for i in 0..per_byte {
                // Nibbles keep each half of a block together; narrower codes are four or eight neighbours.
                let vector = if WIDTH == 4 { plane + 4 * i } else { plane * per_byte + i };
                let four = &codes[vector * 4..vector * 4 + 4];
                let four = u32::from_le_bytes([four[0], four[1], four[2], four[3]]);
                word |= ((four >> from) & mask) << (WIDTH * i);
            }
            out[(plane * LANES + r) * 4..][..4].copy_from_slice(&word.to_le_bytes());
        }
    }
}
