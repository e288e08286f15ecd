//! IQ1_S: 256 values `d * (2 * scale + 1) * (grid + shift)`, 3-bit scale and sign of the shift per 32.
//!
//! Bytes: d (f16), 32 of low index bits (one byte per 8 values), per 32 values a u16 of four times three top
//! index bits, the scale and the sign of the shift of 1/8.

use super::Codec;
use super::bytes::{RandomScale, change_each, decode_each, f16_at, put_f16, u16_at};
use super::grids::{iq1::GRID, mean_square8};
use crate::DType;

/// Values in a block.
pub const LEN: usize = DType::IQ1_S.block_len();
/// Bytes of a block.
pub const BYTES: usize = DType::IQ1_S.block_bytes();

/// Shift of the code book, plus or minus.
pub const SHIFT: f32 = 0.125;

/// Mean square of the values of a block with d = 1 and uniform fields.
const MEAN_SQUARE: f32 = 85.0 * (mean_square8(&GRID) + SHIFT * SHIFT);

/// Expands one block.
#[inline]
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let d = f16_at(block, 0);
    for (group, values) in out.chunks_exact_mut(32).enumerate() {
        let word = u16_at(block, 34 + 2 * group);
        let scale = d * f32::from(2 * ((word >> 12) & 7) + 1);
        let shift = if word & 0x8000 == 0 { SHIFT } else { -SHIFT };
        for (k, values) in values.chunks_exact_mut(8).enumerate() {
            let index = u16::from(block[2 + 4 * group + k]) | ((word >> (3 * k)) & 7) << 8;
            let entry = GRID[usize::from(index)].to_le_bytes();
            for (v, &code) in values.iter_mut().zip(&entry) {
                *v = scale * (f32::from(code as i8) + shift);
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
