//! Q4_0: 32 values `d * (q - 8)`, q of four bits.
//!
//! Bytes: d (f16), 16 bytes of nibbles; value e < 16 is the low nibble of byte e, the rest the high ones.

use super::Codec;
use super::bytes::{
    RandomScale, change_each, decode_each, encode_each, f16_at, finite_f16, put_f16,
};
use crate::DType;

/// Values in a block.
pub const LEN: usize = DType::Q4_0.block_len();
/// Bytes of a block.
pub const BYTES: usize = DType::Q4_0.block_bytes();

/// Root mean square of the codes -8 to 7.
const RMS: f32 = 4.636_809;

/// Expands one block.
#[inline]
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let d = f16_at(block, 0);
    for (i, &byte) in block[2..].iter().enumerate() {
        out[i] = d * (f32::from(byte & 15) - 8.0);
        out[i + 16] = d * (f32::from(byte >> 4) - 8.0);
    }
}

/// Rounds one block: the value of largest magnitude becomes code 0, that is minus eight.
#[inline]
pub fn encode_block(values: &[f32; LEN], block: &mut [u8; BYTES]) {
    let d = super::search::largest(values) / -8.0;
    let inverse = super::search::inverse(d);
    let code = |v: f32| ((v * inverse + 8.5) as u8).min(15);
    put_f16(block, 0, finite_f16(d));
    for i in 0..16 {
        block[2 + i] = code(values[i]) | code(values[i + 16]) << 4;
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
