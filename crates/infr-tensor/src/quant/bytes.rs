//! Byte access, block iteration and random scales shared by the codec files.

use half::f16;

/// Largest finite half.
const F16_MAX: f32 = 65504.0;

/// Little-endian half at byte `at`.
#[inline]
pub(crate) fn f16_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// Little-endian `u16` at byte `at`.
#[inline]
pub(crate) fn u16_at(block: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([block[at], block[at + 1]])
}

/// Little-endian `u32` at byte `at`.
#[inline]
pub(crate) fn u32_at(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
}

/// Writes `value` as a little-endian half at byte `at`.
#[inline]
pub(crate) fn put_f16(block: &mut [u8], at: usize, value: f16) {
    block[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

/// Nearest half, saturating: an infinite scale would turn zero codes into NaN.
#[inline]
pub(crate) fn finite_f16(value: f32) -> f16 {
    f16::from_f32(value.clamp(-F16_MAX, F16_MAX))
}

/// Bit `i` of `bytes`, lowest first, as a sign: set is negative.
#[inline]
pub(crate) fn sign(bits: u8, i: usize) -> f32 {
    if (bits >> i) & 1 == 1 { -1.0 } else { 1.0 }
}

/// Calls `decode` for every block; panics unless both slices hold the same whole number of blocks.
#[inline]
pub(crate) fn decode_each<const BYTES: usize, const LEN: usize>(
    blocks: &[u8],
    out: &mut [f32],
    decode: impl Fn(&[u8; BYTES], &mut [f32; LEN]),
) {
    let (blocks, rest) = blocks.as_chunks::<BYTES>();
    let (out, rest_out) = out.as_chunks_mut::<LEN>();
    assert!(rest.is_empty() && rest_out.is_empty(), "not a whole number of blocks");
    assert_eq!(blocks.len(), out.len(), "as many blocks of bytes as of values");
    for (block, values) in blocks.iter().zip(out) {
        decode(block, values);
    }
}

/// Calls `encode` for every block; panics unless both slices hold the same whole number of blocks.
#[inline]
pub(crate) fn encode_each<const BYTES: usize, const LEN: usize>(
    values: &[f32],
    out: &mut [u8],
    encode: impl Fn(&[f32; LEN], &mut [u8; BYTES]),
) {
    let (values, rest) = values.as_chunks::<LEN>();
    let (out, rest_out) = out.as_chunks_mut::<BYTES>();
    assert!(rest.is_empty() && rest_out.is_empty(), "not a whole number of blocks");
    assert_eq!(values.len(), out.len(), "as many blocks of bytes as of values");
    for (values, block) in values.iter().zip(out) {
        encode(values, block);
    }
}

/// Calls `change` for every block; panics unless `blocks` is a whole number of them.
#[inline]
pub(crate) fn change_each<const BYTES: usize>(
    blocks: &mut [u8],
    mut change: impl FnMut(&mut [u8; BYTES]),
) {
    let (blocks, rest) = blocks.as_chunks_mut::<BYTES>();
    assert!(rest.is_empty(), "not a whole number of blocks");
    for block in blocks {
        change(block);
    }
}

/// Random block scales around one size.
pub(crate) struct RandomScale {
    base: f32,
}

impl RandomScale {
    /// Scales that give codes of root mean square `rms` a standard deviation of `spread`.
    pub(crate) fn new(spread: f32, rms: f32) -> RandomScale {
        // The factor u of `positive` is uniform in [1/2, 3/2), so its mean square is 1 + 1/12.
        RandomScale { base: spread / (rms * (13.0f32 / 12.0).sqrt()) }
    }

    /// A scale between half and one and a half times the base.
    #[inline]
    pub(crate) fn positive(&self, bits: u64) -> f16 {
        let u = 0.5 + (bits & 0xffff) as f32 / 65536.0;
        finite_f16(self.base * u)
    }

    /// As [`RandomScale::positive`] with a random sign, which cancels the mean of lopsided codes.
    #[inline]
    pub(crate) fn signed(&self, bits: u64) -> f16 {
        let scale = self.positive(bits);
        if bits >> 63 == 1 { -scale } else { scale }
    }
}
