//! IQ3_XXS: 256 values `d * (scale + 1/2) / 2 * grid * sign`, 4-bit scale per 32.
//!
//! Bytes: d (f16), 64 code book indices (one per 4 values), per 32 values a u32 as in IQ2_XXS.

use super::Codec;
use super::bytes::{RandomScale, change_each, decode_each, f16_at, put_f16, sign, u32_at};
use super::grids::{even_signs, iq3_xxs::GRID, mean_square4};
use crate::DType;

/// Values in a block.
pub const LEN: usize = DType::IQ3_XXS.block_len();
/// Bytes of a block.
pub const BYTES: usize = DType::IQ3_XXS.block_bytes();

/// Mean square of the values of a block with d = 1 and uniform fields.
const MEAN_SQUARE: f32 = 85.25 / 4.0 * mean_square4(&GRID);

/// Expands one block.
#[inline]
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let d = f16_at(block, 0);
    for (k, values) in out.chunks_exact_mut(8).enumerate() {
        let word = u32_at(block, 66 + k / 4 * 4);
        let scale = d * (0.5 + (word >> 28) as f32) * 0.5;
        let signs = even_signs((word >> (k % 4 * 7)) as u8);
        for (i, v) in values.iter_mut().enumerate() {
            let entry = GRID[usize::from(block[2 + 2 * k + i / 4])].to_le_bytes();
            *v = scale * f32::from(entry[i % 4]) * sign(signs, i);
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
        change_each(blocks, |b: &mut [u8; BYTES]| put_f16(b, 0, scale.positive(rng())));
    }
}
