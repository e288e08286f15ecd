//! TQ2_0: 256 values `d * (q - 1)`, q of two bits; encoders use 0 to 2 only.
//!
//! Bytes: 64 of codes, d (f16). Value e = 128h + 32j + m has bits 2j and 2j + 1 of byte 32h + m.

use super::Codec;
use super::bytes::{
    RandomScale, change_each, decode_each, encode_each, f16_at, finite_f16, put_f16,
};
use super::search::{inverse, largest, round_away};
use crate::DType;

/// Values in a block.
pub const LEN: usize = DType::TQ2_0.block_len();
/// Bytes of a block.
pub const BYTES: usize = DType::TQ2_0.block_bytes();

/// Root mean square of the shaped random codes: -1 and 1 in a quarter of the cases each.
const RMS: f32 = std::f32::consts::FRAC_1_SQRT_2;

/// Expands one block.
#[inline]
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let d = f16_at(block, 64);
    for (row, values) in out.chunks_exact_mut(32).enumerate() {
        let (half, j) = (row / 4, row % 4);
        for (v, &byte) in values.iter_mut().zip(&block[32 * half..][..32]) {
            *v = d * (f32::from((byte >> (2 * j)) & 3) - 1.0);
        }
    }
}

/// Rounds one block to minus, zero or plus its largest magnitude.
pub fn encode_block(values: &[f32; LEN], block: &mut [u8; BYTES]) {
    let d = largest(values).abs();
    let inverse = inverse(d);
    for (i, byte) in block[..64].iter_mut().enumerate() {
        let at = |j: usize| {
            let v = values[i / 32 * 128 + 32 * j + i % 32];
            (round_away(v * inverse) + 1) as u8
        };
        *byte = at(0) | at(1) << 2 | at(2) << 4 | at(3) << 6;
    }
    put_f16(block, 64, finite_f16(d));
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
            for byte in &mut b[..64] {
                // Code 3, which encoders do not use, becomes 1.
                *byte &= !((*byte & (*byte >> 1) & 0x55) << 1);
            }
            put_f16(b, 64, scale.positive(rng()));
        });
    }
}
