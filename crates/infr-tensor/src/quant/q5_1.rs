//! Q5_1: 32 values `d * q + m`, q of five bits.
//!
//! Bytes: d, m (f16), the fifth bits (u32, bit e for value e), 16 bytes of nibbles in the order of Q4_0.

use super::Codec;
use super::bytes::{
    RandomScale, change_each, decode_each, encode_each, f16_at, finite_f16, put_f16, u32_at,
};
use super::search::{inverse, min_max};
use crate::DType;

/// Values in a block.
pub const LEN: usize = DType::Q5_1.block_len();
/// Bytes of a block.
pub const BYTES: usize = DType::Q5_1.block_bytes();

/// Root mean square of 0 to 31 about its mean.
const RMS: f32 = 9.233_093;

/// Expands one block.
#[inline]
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let (d, m) = (f16_at(block, 0), f16_at(block, 2));
    let high = u32_at(block, 4);
    for (i, &byte) in block[8..].iter().enumerate() {
        let low = u32::from(byte & 15) | ((high >> i) & 1) << 4;
        let up = u32::from(byte >> 4) | ((high >> (i + 16)) & 1) << 4;
        out[i] = d * low as f32 + m;
        out[i + 16] = d * up as f32 + m;
    }
}

/// Rounds one block between its smallest and its largest value.
#[inline]
pub fn encode_block(values: &[f32; LEN], block: &mut [u8; BYTES]) {
    let (min, max) = min_max(values);
    let d = (max - min) / 31.0;
    let inverse = inverse(d);
    let code = |v: f32| (((v - min) * inverse + 0.5) as u8).min(31);
    put_f16(block, 0, finite_f16(d));
    put_f16(block, 2, finite_f16(min));
    let mut high = 0u32;
    for i in 0..16 {
        let (low, up) = (code(values[i]), code(values[i + 16]));
        block[8 + i] = (low & 15) | (up & 15) << 4;
        high |= u32::from(low >> 4) << i | u32::from(up >> 4) << (i + 16);
    }
    block[4..8].copy_from_slice(&high.to_le_bytes());
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
            put_f16(b, 2, finite_f16(d.to_f32() * -15.5));
        });
    }
}
