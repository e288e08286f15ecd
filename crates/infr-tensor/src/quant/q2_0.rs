//! Q2_0: 64 values `d * (q - 1)`, q of two bits.
//!
//! Bytes: d (f16), 16 of codes, four a byte, lowest first.

use super::Codec;
use super::bytes::{RandomScale, change_each, decode_each, encode_each, f16_at, put_f16};
use super::search::{Integers, one_scale};
use crate::DType;

/// Values in a block.
pub const LEN: usize = DType::Q2_0.block_len();
/// Bytes of a block.
pub const BYTES: usize = DType::Q2_0.block_bytes();

/// Root mean square of the codes -1 to 2.
const RMS: f32 = 1.224_744_9;

/// Expands one block.
#[inline]
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let d = f16_at(block, 0);
    for (values, byte) in out.chunks_exact_mut(4).zip(&block[2..]) {
        for (i, v) in values.iter_mut().enumerate() {
            *v = d * (f32::from((byte >> (2 * i)) & 3) - 1.0);
        }
    }
}

/// Rounds one block by a search for the least squared error.
pub fn encode_block(values: &[f32; LEN], block: &mut [u8; BYTES]) {
    let found = one_scale(values, Integers::<-1, 2>);
    put_f16(block, 0, found.d);
    for (byte, levels) in block[2..].iter_mut().zip(found.levels.chunks_exact(4)) {
        *byte = levels
            .iter()
            .enumerate()
            .fold(0, |bits, (i, level)| bits | ((level + 1.0) as u8) << (2 * i));
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
        change_each(blocks, |b: &mut [u8; BYTES]| put_f16(b, 0, scale.signed(rng())));
    }
}
