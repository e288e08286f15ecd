//! One codec per weight type: decode blocks to `f32`, encode where a rounding rule exists, and shape
//! random bytes into blocks that look like weights.
//!
//! A block format is one file with `LEN`, `BYTES`, `decode_block`, `encode_block` where it exists, and
//! `Format`, its [`Codec`]. Formulas and layouts are those of GGUF files; decoders compute in `f32` in
//! the order that the format's definition gives, so their results are exact to the bit.
//!
//! Reading order: [`q4_0`] (the simplest), [`q4_k`], [`iq2_xxs`], then `search` (how K-quants choose
//! their scales). [`grids`] holds the code books of the i-quants, [`i2s`] a format that stands outside
//! the data type table because it is not made of blocks.

mod bytes;
mod k_scales;
mod search;

pub mod grids;
pub mod i2s;
pub mod iq1_m;
pub mod iq1_s;
pub mod iq2_s;
pub mod iq2_xs;
pub mod iq2_xxs;
pub mod iq3_s;
pub mod iq3_xxs;
pub mod iq4_nl;
pub mod iq4_xs;
pub mod mxfp4;
pub mod nvfp4;
pub mod plain;
pub mod q1_0;
pub mod q2_0;
pub mod q2_k;
pub mod q3_k;
pub mod q4_0;
pub mod q4_1;
pub mod q4_k;
pub mod q5_0;
pub mod q5_1;
pub mod q5_k;
pub mod q6_k;
pub mod q8_0;
pub mod tq1_0;
pub mod tq2_0;

use crate::DType;

/// Decodes, and where it is defined encodes, whole blocks of one data type.
pub trait Codec: Sync {
    /// Expands `blocks` into `out`.
    ///
    /// `out.len()` is a multiple of the block length and `blocks.len()` its exact size in bytes; the
    /// callers' sizes come from a validated tensor, so anything else is a bug and panics.
    fn decode(&self, blocks: &[u8], out: &mut [f32]);

    /// Rounds `values` into blocks. Returns `false`, and writes nothing, when the type has no encoder.
    ///
    /// Sizes as in [`Codec::decode`]. Finite values give blocks that decode to no NaN.
    fn encode(&self, _values: &[f32], _out: &mut [u8]) -> bool {
        false
    }

    /// Whether [`Codec::encode`] does anything.
    fn can_encode(&self) -> bool {
        false
    }

    /// Turns blocks of random bytes into blocks that an encoder could have written, whose values have a
    /// mean of about zero and a standard deviation of about `spread`.
    ///
    /// Replaces the scale fields, and the codes that no encoder uses.
    fn shape_random(&self, blocks: &mut [u8], spread: f32, rng: &mut dyn FnMut() -> u64);
}

/// The codec of `dtype`, `None` for integer types that are no weights.
pub fn codec(dtype: DType) -> Option<&'static dyn Codec> {
    Some(match dtype {
        DType::F32 => &plain::F32,
        DType::F16 => &plain::F16,
        DType::BF16 => &plain::BF16,
        DType::F64 => &plain::F64,
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => return None,
        DType::Q4_0 => &q4_0::Format,
        DType::Q4_1 => &q4_1::Format,
        DType::Q5_0 => &q5_0::Format,
        DType::Q5_1 => &q5_1::Format,
        DType::Q8_0 => &q8_0::Format,
        DType::Q2_K => &q2_k::Format,
        DType::Q3_K => &q3_k::Format,
        DType::Q4_K => &q4_k::Format,
        DType::Q5_K => &q5_k::Format,
        DType::Q6_K => &q6_k::Format,
        DType::IQ2_XXS => &iq2_xxs::Format,
        DType::IQ2_XS => &iq2_xs::Format,
        DType::IQ3_XXS => &iq3_xxs::Format,
        DType::IQ1_S => &iq1_s::Format,
        DType::IQ4_NL => &iq4_nl::Format,
        DType::IQ3_S => &iq3_s::Format,
        DType::IQ2_S => &iq2_s::Format,
        DType::IQ4_XS => &iq4_xs::Format,
        DType::IQ1_M => &iq1_m::Format,
        DType::TQ1_0 => &tq1_0::Format,
        DType::TQ2_0 => &tq2_0::Format,
        DType::MXFP4 => &mxfp4::Format,
        DType::NVFP4 => &nvfp4::Format,
        DType::Q1_0 => &q1_0::Format,
        DType::Q2_0 => &q2_0::Format,
    })
}

/// Expands one row. Returns `false`, and writes nothing, when `dtype` is no weight type.
///
/// Panics when the sizes do not fit each other, as [`Codec::decode`] does.
#[must_use]
pub fn decode_row(dtype: DType, row: &[u8], out: &mut [f32]) -> bool {
    let Some(codec) = codec(dtype) else { return false };
    codec.decode(row, out);
    true
}

/// Whether values can be rounded to `dtype`.
pub fn can_encode(dtype: DType) -> bool {
    codec(dtype).is_some_and(Codec::can_encode)
}

/// Rounds one row into `out`. Returns `false`, and writes nothing, when `dtype` has no encoder.
///
/// Panics when the sizes do not fit each other, as [`Codec::encode`] does.
#[must_use]
pub fn encode_row(dtype: DType, row: &[f32], out: &mut [u8]) -> bool {
    codec(dtype).is_some_and(|codec| codec.encode(row, out))
}

/// Rounds rows of `width` values each. `None` when `dtype` has no encoder, or when a row is not a whole
/// number of blocks, or `values` not a whole number of rows.
pub fn encode_rows(dtype: DType, values: &[f32], width: usize) -> Option<Vec<u8>> {
    if !values.len().is_multiple_of(width) || !width.is_multiple_of(dtype.block_len()) {
        return None;
    }
    let bytes = dtype.bytes_for(values.len() as u64)?;
    let mut out = vec![0; usize::try_from(bytes).ok()?];
    encode_row(dtype, values, &mut out).then_some(out)
}

/// Fills `out` with valid blocks of random codes whose values have a mean of about zero and a standard
/// deviation of about `spread`. Returns `false`, and writes nothing, when `dtype` is no weight type.
///
/// `rng` gives 64 uniform bits a call. Panics when `out` is not a whole number of blocks.
#[must_use]
pub fn random_blocks(
    dtype: DType,
    rng: &mut impl FnMut() -> u64,
    spread: f32,
    out: &mut [u8],
) -> bool {
    let Some(codec) = codec(dtype) else { return false };
    // Pieces that stay in the cache between the two passes; a multiple of every block size.
    let piece = dtype.block_bytes() * 256;
    for blocks in out.chunks_mut(piece) {
        let (words, tail) = blocks.as_chunks_mut::<8>();
        for word in words {
            *word = rng().to_le_bytes();
        }
        let last = rng().to_le_bytes();
        tail.copy_from_slice(&last[..tail.len()]);
        codec.shape_random(blocks, spread, rng);
    }
    true
}
