//! Q2_K: 256 values `d * scale * q - dmin * min`, q of two bits, 4-bit scale and minimum per 16.
//!
//! Bytes: 16 of scale (low nibble) and minimum (high nibble), 64 of codes, d, dmin (f16). Value
//! e = 128n + 32j + l has bits 2j and 2j + 1 of code byte 32n + l.

use super::Codec;
use super::bytes::{RandomScale, change_each, decode_each, encode_each, f16_at, put_f16};
use super::search;
use crate::DType;

/// Values in a block.
pub const LEN: usize = DType::Q2_K.block_len();
/// Bytes of a block.
pub const BYTES: usize = DType::Q2_K.block_bytes();

/// Root mean square of `scale * (q - 1.5)` for uniform fields.
const RMS: f32 = 9.842_51;

/// Expands one block.
#[inline]
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let (d, dmin) = (f16_at(block, 80), f16_at(block, 82));
    for (sub, values) in out.chunks_exact_mut(16).enumerate() {
        let field = block[sub];
        let scale = d * f32::from(field & 15);
        let min = dmin * f32::from(field >> 4);
        let (half, j, column) = (sub / 8, sub % 8 / 2, sub % 2 * 16);
        let codes = &block[16 + 32 * half + column..][..16];
        for (v, &byte) in values.iter_mut().zip(codes) {
            *v = scale * f32::from((byte >> (2 * j)) & 3) - min;
        }
    }
}

/// Rounds one block by a search for the least squared error.
pub fn encode_block(values: &[f32; LEN], block: &mut [u8; BYTES]) {
    let found = search::affine::<16>(values, 3, 15);
    for (field, (scale, min)) in block.iter_mut().zip(found.scales.iter().zip(&found.mins)) {
        *field = scale | min << 4;
    }
    for (i, byte) in block[16..80].iter_mut().enumerate() {
        let at = |j: usize| found.codes[i / 32 * 128 + 32 * j + i % 32];
        *byte = at(0) | at(1) << 2 | at(2) << 4 | at(3) << 6;
    }
    put_f16(block, 80, found.d);
    put_f16(block, 82, found.dmin);
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
            // Minima equal to the scales, in units of 1.5 d, centre every sub-block.
            for field in &mut b[..16] {
                *field = (*field & 15) * 17;
            }
            put_f16(b, 80, d);
            put_f16(b, 82, half::f16::from_f32(d.to_f32() * 1.5));
        });
    }
}
