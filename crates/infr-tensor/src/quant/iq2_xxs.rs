//! IQ2_XXS: 256 values `d * (scale + 1/2) / 4 * grid * sign`, 4-bit scale per 32.
//!
//! Bytes: d (f16), then per 32 values four code book indices and a u32 of four 7-bit sign codes and, on
//! top, the scale.

use super::Codec;
use super::bytes::{RandomScale, change_each, decode_each, f16_at, put_f16, sign, u32_at};
use super::grids::{even_signs, iq2_xxs::GRID, mean_square8};
use crate::DType;

/// Values in a block.
pub const LEN: usize = DType::IQ2_XXS.block_len();
/// Bytes of a block.
pub const BYTES: usize = DType::IQ2_XXS.block_bytes();

/// Mean square of the values of a block with d = 1 and uniform fields.
const MEAN_SQUARE: f32 = 85.25 / 16.0 * mean_square8(&GRID);

/// Expands one block.
#[inline]
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let d = f16_at(block, 0);
    for (group, values) in out.chunks_exact_mut(32).enumerate() {
        let indices = &block[2 + 8 * group..][..4];
        let word = u32_at(block, 6 + 8 * group);
        let scale = d * (0.5 + (word >> 28) as f32) * 0.25;
        for (k, values) in values.chunks_exact_mut(8).enumerate() {
            let signs = even_signs((word >> (7 * k)) as u8);
            let entry = GRID[usize::from(indices[k])].to_le_bytes();
            for (i, v) in values.iter_mut().enumerate() {
                *v = scale * f32::from(entry[i]) * sign(signs, i);
            }
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
