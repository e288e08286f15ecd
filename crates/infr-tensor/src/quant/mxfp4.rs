//! MXFP4: 32 values `E2M1 * 2^(s - 127)` of the OCP microscaling formats specification.
//!
//! Bytes: s (E8M0), 16 bytes of nibbles in the order of Q4_0. Codes are looked up doubled, so the factor is
//! 2^(s - 128).

use super::Codec;
use super::bytes::{change_each, decode_each, encode_each};
use super::search::largest;
use crate::DType;

/// Values in a block.
pub const LEN: usize = DType::MXFP4.block_len();
/// Bytes of a block.
pub const BYTES: usize = DType::MXFP4.block_bytes();

/// Values of the E2M1 codes, doubled.
pub const VALUES: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// Mean square of the doubled code values.
pub(crate) const MEAN_SQUARE: f32 = 34.25;

/// The factor 2^(s - 128) of the doubled codes; the first two are subnormal.
#[inline]
pub fn half_power(s: u8) -> f32 {
    match s {
        0 | 1 => f32::from_bits(0x0020_0000 << s),
        _ => f32::from_bits(u32::from(s - 1) << 23),
    }
}

/// Code whose doubled value is nearest to `v`, the smaller magnitude of equals.
#[inline]
pub(crate) fn nearest_code(v: f32) -> u8 {
    // Midpoints of the doubled magnitudes.
    let magnitude = v.abs();
    let code =
        [0.5, 1.5, 2.5, 3.5, 5.0, 7.0, 10.0].iter().map(|&m| u8::from(magnitude > m)).sum::<u8>();
    if v < 0.0 && code != 0 { code | 8 } else { code }
}

/// Expands one block.
#[inline]
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let scale = half_power(block[0]);
    for (i, &byte) in block[1..].iter().enumerate() {
        out[i] = scale * f32::from(VALUES[usize::from(byte & 15)]);
        out[i + 16] = scale * f32::from(VALUES[usize::from(byte >> 4)]);
    }
}

/// Rounds one block; the largest magnitude falls into the top binade of the codes.
pub fn encode_block(values: &[f32; LEN], block: &mut [u8; BYTES]) {
    let exponent = (largest(values).abs().to_bits() >> 23) as u8;
    let s = exponent.saturating_sub(2);
    // Exact in double precision for every s.
    let scale = f64::from(half_power(s));
    let code = |v: f32| nearest_code((f64::from(v) / scale) as f32);
    block[0] = s;
    for i in 0..16 {
        block[1 + i] = code(values[i]) | code(values[i + 16]) << 4;
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
        // Powers of two are mixed so that the mean square comes out right.
        let target = f64::from(spread) * f64::from(spread) / f64::from(MEAN_SQUARE);
        let low = (target.log2() / 2.0).floor();
        let share = (target / 4f64.powf(low) - 1.0) / 3.0;
        let threshold = (share * 65536.0) as u64;
        let s = (low + 128.0).clamp(0.0, 251.0) as u8;
        change_each(blocks, |b: &mut [u8; BYTES]| b[0] = s + u8::from(rng() & 0xffff < threshold));
    }
}
