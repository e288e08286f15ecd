//! Q1_0: 128 values, plus d where the bit is set and minus d where it is clear.
//!
//! Bytes: d (f16), 16 of bits, lowest first.

use super::Codec;
use super::bytes::{
    RandomScale, change_each, decode_each, encode_each, f16_at, finite_f16, put_f16,
};
use crate::DType;

/// Values in a block.
pub const LEN: usize = DType::Q1_0.block_len();
/// Bytes of a block.
pub const BYTES: usize = DType::Q1_0.block_bytes();

/// Expands one block.
#[inline]
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let d = f16_at(block, 0);
    for (values, byte) in out.chunks_exact_mut(8).zip(&block[2..]) {
        for (i, v) in values.iter_mut().enumerate() {
            *v = if (byte >> i) & 1 == 1 { d } else { -d };
        }
    }
}

/// Rounds one block to its signs; the mean magnitude is the scale of least squared error.
pub fn encode_block(values: &[f32; LEN], block: &mut [u8; BYTES]) {
    let sum: f64 = values.iter().map(|v| f64::from(v.abs())).sum();
    put_f16(block, 0, finite_f16((sum / LEN as f64) as f32));
    for (byte, values) in block[2..].iter_mut().zip(values.chunks_exact(8)) {
        *byte = values.iter().enumerate().fold(0, |bits, (i, v)| bits | u8::from(*v >= 0.0) << i);
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
        let scale = RandomScale::new(spread, 1.0);
        change_each(blocks, |b: &mut [u8; BYTES]| put_f16(b, 0, scale.positive(rng())));
    }
}
