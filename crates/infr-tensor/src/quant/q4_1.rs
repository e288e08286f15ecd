//! Q4_1: 32 values `d * q + m`, q of four bits.
//!
//! Bytes: d, m (f16), 16 bytes of nibbles in the order of Q4_0.

use super::Codec;
use super::bytes::{
    RandomScale, change_each, decode_each, encode_each, f16_at, finite_f16, put_f16,
};
use super::search::{inverse, min_max};
use crate::DType;

/// Values in a block.
pub const LEN: usize = DType::Q4_1.block_len();
/// Bytes of a block.
pub const BYTES: usize = DType::Q4_1.block_bytes();

/// Root mean square of 0 to 15 about its mean.
const RMS: f32 = 4.609_772;

/// Expands one block.
#[inline]
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let (d, m) = (f16_at(block, 0), f16_at(block, 2));
    for (i, &byte) in block[4..].iter().enumerate() {
        out[i] = d * f32::from(byte & 15) + m;
        out[i + 16] = d * f32::from(byte >> 4) + m;
    }
}

/// Rounds one block between its smallest and its largest value.
#[inline]
pub fn encode_block(values: &[f32; LEN], block: &mut [u8; BYTES]) {
    let (min, max) = min_max(values);
    let d = (max - min) / 15.0;
    let inverse = inverse(d);
    let code = |v: f32| (((v - min) * inverse + 0.5) as u8).min(15);
    put_f16(block, 0, finite_f16(d));
    put_f16(block, 2, finite_f16(min));
    for i in 0..16 {
        block[4 + i] = code(values[i]) | code(values[i + 16]) << 4;
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
            put_f16(b, 2, finite_f16(d.to_f32() * -7.5));
        });
    }
}
