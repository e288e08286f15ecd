//! IQ1_M: 256 values `d * (2 * scale + 1) * (grid + shift)`, 3-bit scale per 16.
//!
//! Bytes: 32 of low index bits (one byte per 8 values), 16 of nibbles (per 8 values three top index bits and
//! the sign of the shift of 1/8), four u16 of four 3-bit scales each; their top nibbles make up d (f16).

use super::Codec;
use super::bytes::{RandomScale, change_each, decode_each, u16_at};
use super::grids::{iq1::GRID, mean_square8};
use super::iq1_s::SHIFT;
use crate::DType;

/// Values in a block.
pub const LEN: usize = DType::IQ1_M.block_len();
/// Bytes of a block.
pub const BYTES: usize = DType::IQ1_M.block_bytes();

/// Mean square of the values of a block with d = 1 and uniform fields.
const MEAN_SQUARE: f32 = 85.0 * (mean_square8(&GRID) + SHIFT * SHIFT);

/// First of the scale words.
const SCALES: usize = 48;

/// Expands one block.
#[inline]
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let words: [u16; 4] = std::array::from_fn(|i| u16_at(block, SCALES + 2 * i));
    let bits = words.iter().enumerate().fold(0, |d, (i, w)| d | (w >> 12) << (4 * i));
    let d = half::f16::from_bits(bits).to_f32();
    for (k, values) in out.chunks_exact_mut(8).enumerate() {
        let nibble = (block[32 + k / 2] >> (k % 2 * 4)) & 15;
        let index = u16::from(block[k]) | u16::from(nibble & 7) << 8;
        let shift = if nibble & 8 == 0 { SHIFT } else { -SHIFT };
        let sub = k / 2;
        let scale = d * f32::from(2 * ((words[sub / 4] >> (sub % 4 * 3)) & 7) + 1);
        let entry = GRID[usize::from(index)].to_le_bytes();
        for (v, &code) in values.iter_mut().zip(&entry) {
            *v = scale * (f32::from(code as i8) + shift);
        }
    }
}

/// The codec.
pub struct Format;

impl Codec for Format {
    fn decode(&self, blocks: &[u8], out: &mut [f32]) {
        decode_each(blocks, out, decode_block);
    }

    fn shape_random(&self, blocks: &mut [u8], spread: f32, rng: &mut dyn FnMut() -> u64) {
        let scale = RandomScale::new(spread, MEAN_SQUARE.sqrt());
        change_each(blocks, |b: &mut [u8; BYTES]| {
            let d = scale.positive(rng()).to_bits();
            for i in 0..4 {
                let top = &mut b[SCALES + 2 * i + 1];
                *top = (*top & 15) | ((d >> (4 * i)) as u8) << 4;
            }
        });
    }
}
