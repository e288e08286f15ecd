//! IQ4_NL: 32 values `d * VALUES[q]`, q of four bits.
//!
//! Bytes: d (f16), 16 bytes of nibbles in the order of Q4_0.

use super::Codec;
use super::bytes::{RandomScale, change_each, decode_each, encode_each, f16_at, put_f16};
use super::search::{Levels, one_scale};
use crate::DType;

/// Values in a block.
pub const LEN: usize = DType::IQ4_NL.block_len();
/// Bytes of a block.
pub const BYTES: usize = DType::IQ4_NL.block_bytes();

/// The non-linear code book.
pub const VALUES: [i8; 16] =
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Root mean square of the code book.
pub(crate) const RMS: f32 = 69.664_91;

/// Code whose value is nearest to `v`.
#[inline]
pub(crate) fn nearest_code(v: f32) -> u8 {
    // Twice the midpoints are integers; the code is the number of midpoints below v.
    let v = 2.0 * v;
    (1..16).map(|i| u8::from(v > f32::from(i16::from(VALUES[i - 1]) + i16::from(VALUES[i])))).sum()
}

/// The code book as a grid for the search.
#[derive(Clone, Copy)]
pub(crate) struct CodeBook;

impl Levels for CodeBook {
    const LOW: f32 = VALUES[0] as f32;
    const HIGH: f32 = VALUES[15] as f32;

    #[inline]
    fn nearest(self, v: f32) -> f32 {
        // The gaps below the midpoints that v has passed; no look-up, so that it vectorises.
        let v = 2.0 * v;
        VALUES.windows(2).fold(Self::LOW, |level, pair| {
            let (below, above) = (f32::from(pair[0]), f32::from(pair[1]));
            level + if v > below + above { above - below } else { 0.0 }
        })
    }
}

/// Expands one block.
#[inline]
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let d = f16_at(block, 0);
    for (i, &byte) in block[2..].iter().enumerate() {
        out[i] = d * f32::from(VALUES[usize::from(byte & 15)]);
        out[i + 16] = d * f32::from(VALUES[usize::from(byte >> 4)]);
    }
}

/// Rounds one block by a search for the least squared error.
pub fn encode_block(values: &[f32; LEN], block: &mut [u8; BYTES]) {
    let found = one_scale(values, CodeBook);
    put_f16(block, 0, found.d);
    for i in 0..16 {
        let (low, up) = (found.levels[i], found.levels[i + 16]);
        block[2 + i] = nearest_code(low) | nearest_code(up) << 4;
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
