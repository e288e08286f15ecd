//! IQ2_S: 256 values `d * (scale + 1/2) / 4 * grid * sign`, 4-bit scale per 16.
//!
//! Bytes: d (f16), 32 of low index bits, 32 of signs, 8 of top index bits (two per 8 values), 8 of scales.

use super::Codec;
use super::bytes::{RandomScale, change_each, decode_each, f16_at, put_f16, sign};
use super::grids::{iq2_s::GRID, mean_square8};
use crate::DType;

/// Values in a block.
pub const LEN: usize = DType::IQ2_S.block_len();
/// Bytes of a block.
pub const BYTES: usize = DType::IQ2_S.block_bytes();

/// Mean square of the values of a block with d = 1 and uniform fields.
const MEAN_SQUARE: f32 = 85.25 / 16.0 * mean_square8(&GRID);

/// Expands one block.
#[inline]
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let d = f16_at(block, 0);
    for (k, values) in out.chunks_exact_mut(8).enumerate() {
        let high = u16::from((block[66 + k / 4] >> (k % 4 * 2)) & 3);
        let index = u16::from(block[2 + k]) | high << 8;
        let field = (block[74 + k / 4] >> (k / 2 % 2 * 4)) & 15;
        let scale = d * (0.5 + f32::from(field)) * 0.25;
        let signs = block[34 + k];
        let entry = GRID[usize::from(index)].to_le_bytes();
        for (i, v) in values.iter_mut().enumerate() {
            *v = scale * f32::from(entry[i]) * sign(signs, i);
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
