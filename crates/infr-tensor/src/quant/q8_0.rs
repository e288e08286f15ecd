//! Q8_0: 32 values `d * q`, q a signed byte.
//!
//! Bytes: d (f16), 32 signed bytes.

use super::Codec;
use super::bytes::{
    RandomScale, change_each, decode_each, encode_each, f16_at, finite_f16, put_f16,
};
use super::search::{inverse, largest, round_away};
use crate::DType;

/// Values in a block.
pub const LEN: usize = DType::Q8_0.block_len();
/// Bytes of a block.
pub const BYTES: usize = DType::Q8_0.block_bytes();

/// Root mean square of the codes -127 to 127.
const RMS: f32 = 73.611_82;

/// Expands one block.
#[inline]
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let d = f16_at(block, 0);
    for (v, &code) in out.iter_mut().zip(&block[2..]) {
        *v = f32::from(code as i8) * d;
    }
}

/// Rounds one block, halves away from zero; the largest magnitude becomes code 127.
#[inline]
pub fn encode_block(values: &[f32; LEN], block: &mut [u8; BYTES]) {
    let d = largest(values).abs() / 127.0;
    let inverse = inverse(d);
    put_f16(block, 0, finite_f16(d));
    for (code, &v) in block[2..].iter_mut().zip(values) {
        *code = round_away(v * inverse) as i8 as u8;
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
            put_f16(b, 0, scale.positive(rng()));
            for code in &mut b[2..] {
                // Encoders do not use -128, whose magnitude is no signed byte.
                *code = if *code == 0x80 { 0x81 } else { *code };
            }
        });
    }
}
