//! TQ1_0: 256 values `d * (trit - 1)`, five base-3 digits a byte.
//!
//! Bytes: 32 bytes of five trits, 16 bytes of five, 4 bytes of four, d (f16); the trits of equal rank of a
//! run stand together. A byte is ceil(256 / 243 * number), so trit t is the carry out of the byte when
//! `byte * 3^t mod 256` is multiplied by three.

use super::Codec;
use super::bytes::{
    RandomScale, change_each, decode_each, encode_each, f16_at, finite_f16, put_f16,
};
use super::search::{inverse, largest, round_away};
use crate::DType;

/// Values in a block.
pub const LEN: usize = DType::TQ1_0.block_len();
/// Bytes of a block.
pub const BYTES: usize = DType::TQ1_0.block_bytes();

/// Root mean square of a uniform trit from -1 to 1.
const RMS: f32 = 0.816_496_6;

/// First byte, number of bytes and trits a byte of the three runs.
const RUNS: [(usize, usize, usize); 3] = [(0, 32, 5), (32, 16, 5), (48, 4, 4)];

/// Powers of three.
const POWERS: [u8; 5] = [1, 3, 9, 27, 81];

/// Expands one block.
#[inline]
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let d = f16_at(block, 52);
    let mut at = 0;
    for (first, bytes, trits) in RUNS {
        for power in &POWERS[..trits] {
            for (v, byte) in out[at..at + bytes].iter_mut().zip(&block[first..]) {
                let trit = (u16::from(byte.wrapping_mul(*power)) * 3) >> 8;
                *v = d * (f32::from(trit) - 1.0);
            }
            at += bytes;
        }
    }
}

/// Rounds one block to minus, zero or plus its largest magnitude.
pub fn encode_block(values: &[f32; LEN], block: &mut [u8; BYTES]) {
    let d = largest(values).abs();
    let inverse = inverse(d);
    let mut at = 0;
    for (first, bytes, trits) in RUNS {
        for i in 0..bytes {
            let number = (0..trits).fold(0, |number, t| {
                let trit = round_away(values[at + t * bytes + i] * inverse) + 1;
                number + trit as u16 * u16::from(POWERS[4 - t])
            });
            block[first + i] = scaled_number(number);
        }
        at += bytes * trits;
    }
    put_f16(block, 52, finite_f16(d));
}

/// The byte that stores a five-digit number.
#[inline]
fn scaled_number(number: u16) -> u8 {
    (number * 256).div_ceil(243) as u8
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
            for byte in &mut b[..48] {
                *byte = scaled_number((u16::from(*byte) * 243) >> 8);
            }
            for byte in &mut b[48..52] {
                *byte = scaled_number(((u16::from(*byte) * 81) >> 8) * 3);
            }
            put_f16(b, 52, scale.positive(rng()));
        });
    }
}
