//! F32, F16, BF16 and F64: one value a block, nothing shared.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use super::Codec;
use super::bytes::{decode_each, encode_each};

/// Twice the square root of three over 2^32: spreads a uniform `i32` to a standard deviation of one.
const UNIFORM: f32 = 3.464_101_6 / 4_294_967_296.0;

/// Halves that are converted together.
const PIECE: usize = 64;

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
        let (halves, rest) = blocks.as_chunks::<2>();
        assert!(rest.is_empty() && halves.len() == out.len(), "as many halves as values");
        // In pieces, because the conversion instructions take eight at once.
        for (halves, values) in halves.chunks(PIECE).zip(out.chunks_mut(PIECE)) {
            let mut aligned = [f16::ZERO; PIECE];
            for (half, bytes) in aligned.iter_mut().zip(halves) {
                *half = f16::from_le_bytes(*bytes);
            }
            aligned[..values.len()].convert_to_f32_slice(values);
        }
    }

    fn encode(&self, values: &[f32], out: &mut [u8]) -> bool {
        let (halves, rest) = out.as_chunks_mut::<2>();
        assert!(rest.is_empty() && halves.len() == values.len(), "as many halves as values");
        for (halves, values) in halves.chunks_mut(PIECE).zip(values.chunks(PIECE)) {
            let mut aligned = [f16::ZERO; PIECE];
            aligned[..values.len()].convert_from_f32_slice(values);
            for (bytes, half) in halves.iter_mut().zip(&aligned) {
                *bytes = half.to_le_bytes();
            }
        }
        true
    }

    fn can_encode(&self) -> bool {
        true
    }

    fn shape_random(&self, blocks: &mut [u8], spread: f32, _rng: &mut dyn FnMut() -> u64) {
        let mut values = [0.0; PIECE];
        for halves in blocks.chunks_mut(2 * PIECE) {
            let values = &mut values[..halves.len() / 2];
            for (v, bits) in values.iter_mut().zip(halves.as_chunks::<2>().0) {
                *v = uniform16(u16::from_le_bytes(*bits), spread);
            }
            self.encode(values, halves);
        }
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
