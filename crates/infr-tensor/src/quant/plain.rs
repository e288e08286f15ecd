//! F32, F16, BF16 and F64: one value a block, nothing shared.

use half::{bf16, f16};

use super::Codec;
use super::bytes::{decode_each, encode_each};

/// Twice the square root of three over 2^32: spreads a uniform `i32` to a standard deviation of one.
const UNIFORM: f32 = 3.464_101_6 / 4_294_967_296.0;

/// Uniform random value of standard deviation `spread` from 32 random bits.
#[inline]
fn uniform(bits: u32, spread: f32) -> f32 {
    (bits as i32) as f32 * (spread * UNIFORM)
}

/// As [`uniform`] from 16 bits.
#[inline]
fn uniform16(bits: u16, spread: f32) -> f32 {
    uniform(u32::from(bits) << 16, spread)
}

/// IEEE single precision.
pub struct F32;

impl Codec for F32 {
    fn decode(&self, blocks: &[u8], out: &mut [f32]) {
        decode_each(blocks, out, |b: &[u8; 4], v: &mut [f32; 1]| v[0] = f32::from_le_bytes(*b));
    }

    fn encode(&self, values: &[f32], out: &mut [u8]) -> bool {
        encode_each(values, out, |v: &[f32; 1], b: &mut [u8; 4]| *b = v[0].to_le_bytes());
        true
    }

    fn can_encode(&self) -> bool {
        true
    }

    fn shape_random(&self, blocks: &mut [u8], spread: f32, _rng: &mut dyn FnMut() -> u64) {
        super::bytes::change_each(blocks, |b: &mut [u8; 4]| {
            *b = uniform(u32::from_le_bytes(*b), spread).to_le_bytes();
        });
    }
}

/// IEEE half precision; encoding rounds to nearest even.
pub struct F16;

impl Codec for F16 {
    fn decode(&self, blocks: &[u8], out: &mut [f32]) {
        decode_each(blocks, out, |b: &[u8; 2], v: &mut [f32; 1]| {
            v[0] = f16::from_le_bytes(*b).to_f32();
        });
    }

    fn encode(&self, values: &[f32], out: &mut [u8]) -> bool {
        encode_each(values, out, |v: &[f32; 1], b: &mut [u8; 2]| {
            *b = f16::from_f32(v[0]).to_le_bytes();
        });
        true
    }

    fn can_encode(&self) -> bool {
        true
    }

    fn shape_random(&self, blocks: &mut [u8], spread: f32, _rng: &mut dyn FnMut() -> u64) {
        super::bytes::change_each(blocks, |b: &mut [u8; 2]| {
            *b = f16::from_f32(uniform16(u16::from_le_bytes(*b), spread)).to_le_bytes();
        });
    }
}

/// Upper half of an `F32`; encoding rounds to nearest even.
pub struct BF16;

impl Codec for BF16 {
    fn decode(&self, blocks: &[u8], out: &mut [f32]) {
        decode_each(blocks, out, |b: &[u8; 2], v: &mut [f32; 1]| {
            v[0] = f32::from_bits(u32::from(u16::from_le_bytes(*b)) << 16);
        });
    }

    fn encode(&self, values: &[f32], out: &mut [u8]) -> bool {
        encode_each(values, out, |v: &[f32; 1], b: &mut [u8; 2]| {
            *b = bf16::from_f32(v[0]).to_le_bytes();
        });
        true
    }

    fn can_encode(&self) -> bool {
        true
    }

    fn shape_random(&self, blocks: &mut [u8], spread: f32, _rng: &mut dyn FnMut() -> u64) {
        super::bytes::change_each(blocks, |b: &mut [u8; 2]| {
            *b = bf16::from_f32(uniform16(u16::from_le_bytes(*b), spread)).to_le_bytes();
        });
    }
}

/// IEEE double precision; decoding rounds to nearest even.
pub struct F64;

impl Codec for F64 {
    fn decode(&self, blocks: &[u8], out: &mut [f32]) {
        decode_each(blocks, out, |b: &[u8; 8], v: &mut [f32; 1]| {
            v[0] = f64::from_le_bytes(*b) as f32;
        });
    }

    fn encode(&self, values: &[f32], out: &mut [u8]) -> bool {
        encode_each(values, out, |v: &[f32; 1], b: &mut [u8; 8]| {
            *b = f64::from(v[0]).to_le_bytes();
        });
        true
    }

    fn can_encode(&self) -> bool {
        true
    }

    fn shape_random(&self, blocks: &mut [u8], spread: f32, _rng: &mut dyn FnMut() -> u64) {
        super::bytes::change_each(blocks, |b: &mut [u8; 8]| {
            let bits = u64::from_le_bytes(*b) as u32;
            *b = f64::from(uniform(bits, spread)).to_le_bytes();
        });
    }
}
