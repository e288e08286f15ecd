//! Q6_K: 256 values `d * scale * q`, q of six bits (-32 to 31), signed byte scale per 16.
//!
//! Bytes: 128 of low nibbles, 64 of top bits, 16 scales, d (f16). Value e = 128n + 32j + l has nibble j / 2
//! of low byte 64n + 32 (j % 2) + l and bits 2j and 2j + 1 of top byte 32n + l.

use super::Codec;
use super::bytes::{RandomScale, change_each, decode_each, encode_each, f16_at, put_f16};
use super::search::{Integers, sub_scales};
use crate::DType;

/// Values in a block.
pub const LEN: usize = DType::Q6_K.block_len();
/// Bytes of a block.
pub const BYTES: usize = DType::Q6_K.block_bytes();

/// Root mean square of `scale * q` for uniform fields.
const RMS: f32 = 1_365.687_5;

/// Expands one block.
#[inline]
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let d = f16_at(block, 208);
    for (sub, values) in out.chunks_exact_mut(16).enumerate() {
        let scale = d * f32::from(block[192 + sub] as i8);
        let (half, j, column) = (sub / 8, sub % 8 / 2, sub % 2 * 16);
        let low = &block[64 * half + j % 2 * 32 + column..][..16];
        let high = &block[128 + 32 * half + column..][..16];
        for ((v, low), high) in values.iter_mut().zip(low).zip(high) {
            let code = (low >> (j / 2 * 4)) & 15 | ((high >> (2 * j)) & 3) << 4;
            *v = scale * (f32::from(code) - 32.0);
        }
    }
}

/// Rounds one block by a search for the least squared error.
pub fn encode_block(values: &[f32; LEN], block: &mut [u8; BYTES]) {
    let found = sub_scales::<LEN, 16, _>(values, Integers::<-32, 31>, -128);
    block[..192].fill(0);
    for (e, level) in found.levels.iter().enumerate() {
        let code = (level + 32.0) as u8;
        let (half, j, l) = (e / 128, e % 128 / 32, e % 32);
        block[64 * half + j % 2 * 32 + l] |= (code & 15) << (j / 2 * 4);
        block[128 + 32 * half + l] |= (code >> 4) << (2 * j);
    }
    for (byte, &scale) in block[192..208].iter_mut().zip(&found.scales) {
        *byte = scale as u8;
    }
    put_f16(block, 208, found.d);
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
        change_each(blocks, |b: &mut [u8; BYTES]| put_f16(b, 208, scale.signed(rng())));
    }
}
