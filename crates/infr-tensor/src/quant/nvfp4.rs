//! NVFP4: 64 values `E2M1 * scale`, an unsigned E4M3 scale per 16.
//!
//! Bytes: 4 scales, 32 bytes of nibbles: per 16 values 8 bytes, the first 8 values in the low nibbles. Codes
//! are looked up doubled, so the factor is half the scale. A tensor may have one more factor beside it.

use super::Codec;
use super::bytes::{change_each, decode_each, encode_each};
use super::mxfp4::{MEAN_SQUARE, VALUES, nearest_code};
use super::search::largest;
use crate::DType;

/// Values in a block.
pub const LEN: usize = DType::NVFP4.block_len();
/// Bytes of a block.
pub const BYTES: usize = DType::NVFP4.block_bytes();

/// Largest scale byte that encoders use: 448.
const TOP: u8 = 0x7e;

/// Half the value of an unsigned E4M3 byte (bias 7); 0x7f, which is NaN in E4M3, counts as zero.
#[inline]
pub fn half_scale(byte: u8) -> f32 {
    let exponent = (byte >> 3) & 15;
    let mantissa = f32::from(byte & 7);
    if byte == 0x7f {
        0.0
    } else if exponent == 0 {
        mantissa * (0.5 / 512.0)
    } else {
        // 2^(exponent - 8) by its bits.
        (1.0 + mantissa / 8.0) * f32::from_bits((u32::from(exponent) + 119) << 23)
    }
}

/// Largest scale byte whose value is not above `scale`.
fn scale_below(scale: f32) -> u8 {
    // Bytes sort as their values do.
    (1..=TOP).take_while(|&byte| 2.0 * half_scale(byte) <= scale).last().unwrap_or(0)
}

/// Expands one block.
#[inline]
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    for (sub, values) in out.chunks_exact_mut(16).enumerate() {
        let scale = half_scale(block[sub]);
        for (i, &byte) in block[4 + 8 * sub..][..8].iter().enumerate() {
            values[i] = scale * f32::from(VALUES[usize::from(byte & 15)]);
            values[i + 8] = scale * f32::from(VALUES[usize::from(byte >> 4)]);
        }
    }
}

/// Rounds one block; each scale is the one of least squared error around largest magnitude / 6.
pub fn encode_block(values: &[f32; LEN], block: &mut [u8; BYTES]) {
    for (sub, x) in values.chunks_exact(16).enumerate() {
        let centre = scale_below(largest(x).abs() / 6.0);
        let mut least = f64::INFINITY;
        for candidate in centre.saturating_sub(2)..=(centre + 2).min(TOP) {
            let scale = half_scale(candidate);
            let inverse = super::search::inverse(scale);
            let error = x.iter().fold(0.0, |sum, &v| {
                let code = nearest_code(v * inverse);
                let rest = f64::from(v) - f64::from(scale * f32::from(VALUES[usize::from(code)]));
                sum + rest * rest
            });
            if error < least {
                least = error;
                block[sub] = candidate;
            }
        }
        let inverse = super::search::inverse(half_scale(block[sub]));
        for i in 0..8 {
            let (low, up) = (nearest_code(x[i] * inverse), nearest_code(x[i + 8] * inverse));
            block[4 + 8 * sub + i] = low | up << 4;
        }
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
        // Two neighbouring scales are mixed so that the mean square comes out right.
        let target = spread * spread / MEAN_SQUARE;
        let low = scale_below(2.0 * target.sqrt()).min(TOP - 1);
        let (a, b) = (half_scale(low), half_scale(low + 1));
        let threshold = ((target - a * a) / (b * b - a * a) * 65536.0) as u64;
        change_each(blocks, |block: &mut [u8; BYTES]| {
            let bits = rng();
            for (sub, scale) in block[..4].iter_mut().enumerate() {
                *scale = low + u8::from((bits >> (16 * sub)) & 0xffff < threshold);
            }
        });
    }
}
