//! Q3_K: 256 values `d * scale * q`, q of three bits (-4 to 3), 6-bit scale per 16.
//!
//! Bytes: 32 of high bits, 64 of low code bits, 12 of scales, d (f16). The low bits stand as in Q2_K; bit
//! e / 32 of high byte e % 32 is clear when four is to be subtracted. Scale k has its low nibble in
//! byte k % 8, nibble k / 8, and its top two bits in byte 8 + k % 4, bits 2 (k / 4).

use super::Codec;
use super::bytes::{RandomScale, change_each, decode_each, encode_each, f16_at, put_f16};
use super::search::{Integers, sub_scales};
use crate::DType;

/// Values in a block.
pub const LEN: usize = DType::Q3_K.block_len();
/// Bytes of a block.
pub const BYTES: usize = DType::Q3_K.block_bytes();

/// Root mean square of `scale * q` for uniform fields.
const RMS: f32 = 43.338_78;

/// Scales of the sixteen sub-blocks, -32 to 31.
#[inline]
pub fn unpack_scales(packed: &[u8; 12]) -> [i8; 16] {
    std::array::from_fn(|k| {
        let low = (packed[k % 8] >> (k / 8 * 4)) & 15;
        let high = (packed[8 + k % 4] >> (k / 4 * 2)) & 3;
        (low | high << 4) as i8 - 32
    })
}

/// Inverse of [`unpack_scales`].
#[inline]
pub fn pack_scales(scales: &[i8; 16]) -> [u8; 12] {
    let mut packed = [0; 12];
    for (k, &scale) in scales.iter().enumerate() {
        let field = (scale + 32) as u8;
        packed[k % 8] |= (field & 15) << (k / 8 * 4);
        packed[8 + k % 4] |= (field >> 4) << (k / 4 * 2);
    }
    packed
}

/// Expands one block.
#[inline]
pub fn decode_block(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let (high, rest) = block.split_at(32);
    let (low, rest) = rest.split_at(64);
    let packed: &[u8; 12] = rest.first_chunk().expect("the block has 14 bytes after its codes");
    let scales = unpack_scales(packed);
    let d = f16_at(block, 108);
    for (sub, values) in out.chunks_exact_mut(16).enumerate() {
        let scale = d * f32::from(scales[sub]);
        let (half, j, column) = (sub / 8, sub % 8 / 2, sub % 2 * 16);
        let low = &low[32 * half + column..][..16];
        let high = &high[column..][..16];
        for ((v, low), high) in values.iter_mut().zip(low).zip(high) {
            let code = (low >> (2 * j)) & 3 | ((high >> (sub / 2)) & 1) << 2;
            *v = scale * (f32::from(code) - 4.0);
        }
    }
}

/// Rounds one block by a search for the least squared error.
pub fn encode_block(values: &[f32; LEN], block: &mut [u8; BYTES]) {
    let found = sub_scales::<LEN, 16, _>(values, Integers::<-4, 3>, -32);
    block[..96].fill(0);
    for (e, level) in found.levels.iter().enumerate() {
        let code = (level + 4.0) as u8;
        block[e % 32] |= (code >> 2) << (e / 32);
        block[32 + e / 128 * 32 + e % 32] |= (code & 3) << (e % 128 / 32 * 2);
    }
    block[96..108].copy_from_slice(&pack_scales(&found.scales));
    put_f16(block, 108, found.d);
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
        change_each(blocks, |b: &mut [u8; BYTES]| put_f16(b, 108, scale.signed(rng())));
    }
}
