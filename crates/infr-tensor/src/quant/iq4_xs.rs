//! IQ4_XS: 256 values `d * scale * VALUES[q]`, q of four bits, 6-bit scale (-32 to 31) per 32.
//!
//! Bytes: d (f16), u16 of top scale bits, 4 of low scale nibbles, 128 of nibbles; the code book is that of
//! IQ4_NL, and each 32 values have 16 bytes in the order of Q4_0.

use super::Codec;
use super::bytes::{RandomScale, change_each, decode_each, encode_each, f16_at, put_f16, u16_at};
use super::iq4_nl::{self, CodeBook, VALUES, nearest_code};
use super::search::sub_scales;
use crate::DType;

/// Values in a block.
pub const LEN: usize = DType::IQ4_XS.block_len();
/// Bytes of a block.
pub const BYTES: usize = DType::IQ4_XS.block_bytes();

/// Root mean square of a uniform scale.
const SCALE_RMS: f32 = 18.479_72;

/// Expands one block.
#[inline]
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let d = f16_at(block, 0);
    let top = u16_at(block, 2);
    for (sub, values) in out.chunks_exact_mut(32).enumerate() {
        let low = (block[4 + sub / 2] >> (sub % 2 * 4)) & 15;
        let field = low | (((top >> (2 * sub)) & 3) as u8) << 4;
        let scale = d * (f32::from(field) - 32.0);
        for (i, &byte) in block[8 + 16 * sub..][..16].iter().enumerate() {
            values[i] = scale * f32::from(VALUES[usize::from(byte & 15)]);
            values[i + 16] = scale * f32::from(VALUES[usize::from(byte >> 4)]);
        }
    }
}

/// Rounds one block by a search for the least squared error.
pub fn encode_block(values: &[f32; LEN], block: &mut [u8; BYTES]) {
    let found = sub_scales::<LEN, 8, _>(values, CodeBook, -32);
    put_f16(block, 0, found.d);
    let mut top = 0u16;
    block[4..8].fill(0);
    for (sub, &scale) in found.scales.iter().enumerate() {
        let field = (scale + 32) as u8;
        block[4 + sub / 2] |= (field & 15) << (sub % 2 * 4);
        top |= u16::from(field >> 4) << (2 * sub);
    }
    block[2..4].copy_from_slice(&top.to_le_bytes());
    for (i, byte) in block[8..].iter_mut().enumerate() {
        let first = i / 16 * 32 + i % 16;
        let (low, up) = (found.levels[first], found.levels[first + 16]);
        *byte = nearest_code(low) | nearest_code(up) << 4;
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
        let scale = RandomScale::new(spread, SCALE_RMS * iq4_nl::RMS);
        change_each(blocks, |b: &mut [u8; BYTES]| put_f16(b, 0, scale.signed(rng())));
    }
}
