//! Q4_K: 256 values `d * scale * q - dmin * min`, q of four bits, 6-bit scale and minimum per 32.
//!
//! Bytes: d, dmin (f16), 12 of packed scales and minima, 128 of nibbles: sub-block j has nibble j % 2 of
//! the 32 bytes from 32 (j / 2).

use super::Codec;
use super::bytes::{RandomScale, change_each, decode_each, encode_each, f16_at, put_f16};
use super::{k_scales, search};
use crate::DType;

/// Values in a block.
pub const LEN: usize = DType::Q4_K.block_len();
/// Bytes of a block.
pub const BYTES: usize = DType::Q4_K.block_bytes();

/// Root mean square of `scale * (q - 7.5)` for uniform fields.
const RMS: f32 = 168.336_97;

/// Scales and minima of the eight sub-blocks, each 0 to 63.
#[inline]
pub fn scales_mins(block: &[u8; BYTES]) -> ([u8; 8], [u8; 8]) {
    k_scales::unpack(block[4..].first_chunk().expect("the block is longer than 16 bytes"))
}

/// Expands one block.
#[inline]
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let (d, dmin) = (f16_at(block, 0), f16_at(block, 2));
    let (scales, mins) = scales_mins(block);
    for (j, values) in out.chunks_exact_mut(32).enumerate() {
        let scale = d * f32::from(scales[j]);
        let min = dmin * f32::from(mins[j]);
        let nibbles = &block[16 + j / 2 * 32..][..32];
        for (v, &byte) in values.iter_mut().zip(nibbles) {
            *v = scale * f32::from((byte >> (j % 2 * 4)) & 15) - min;
        }
    }
}

/// Rounds one block by a search for the least squared error.
pub fn encode_block(values: &[f32; LEN], block: &mut [u8; BYTES]) {
    let found = search::affine::<8>(values, 15, 63);
    put_f16(block, 0, found.d);
    put_f16(block, 2, found.dmin);
    block[4..16].copy_from_slice(&k_scales::pack(&found.scales, &found.mins));
    for (i, byte) in block[16..].iter_mut().enumerate() {
        let first = i / 32 * 64 + i % 32;
        *byte = found.codes[first] | found.codes[first + 32] << 4;
    }
}

/// The codec.
pub struct Format;

impl Codec for Format {
    fn decode(&self, blocks: &[u8], out: &mut [f32]) {
        decode_each(blocks, out, decode_block);
    }

    fn encode(&self, values: &[f32], out: &mut [u8]) -> bool {
        encode_each(values, out, encode_block);
        true
    }

    fn can_encode(&self) -> bool {
        true
    }

    fn shape_random(&self, blocks: &mut [u8], spread: f32, rng: &mut dyn FnMut() -> u64) {
        let scale = RandomScale::new(spread, RMS);
        change_each(blocks, |b: &mut [u8; BYTES]| {
            let d = scale.positive(rng());
            put_f16(b, 0, d);
            put_f16(b, 2, half::f16::from_f32(d.to_f32() * 7.5));
            b[4..16].copy_from_slice(&k_scales::random_centred(rng()));
        });
    }
}
