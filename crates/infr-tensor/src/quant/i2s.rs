//! I2_S, the ternary tensors of Microsoft's BitNet files: one scale for a whole tensor, no blocks.
//!
//! A quarter byte a value, then the scale (f32). Value `128g + 32j + m` has bits `6 - 2j` and `7 - 2j` of
//! byte `32g + m`, and is `(code - 1) * scale`. This is the packing of the x86 builds. The files use type
//! id 36, which is no id of the data type table; loaders convert to [`super::tq2_0`].

use super::bytes::u32_at;
use crate::DType;

/// Type id in BitNet files.
pub const GGML_ID: u32 = 36;

/// Values of a group of 32 bytes.
const GROUP: usize = 128;

/// Bytes of `elements` values with their scale, `None` when they are not whole groups of 128.
pub fn bytes_for(elements: u64) -> Option<u64> {
    elements.is_multiple_of(GROUP as u64).then_some(elements / 4 + 4)
}

/// Expands a whole tensor.
///
/// `out.len()` is a multiple of 128 and `bytes` at least as long as [`bytes_for`] says; padding after the
/// scale is ignored. Anything else is a bug of the caller and panics.
pub fn decode(bytes: &[u8], out: &mut [f32]) {
    let scale = scale(bytes, out.len());
    for (codes, values) in bytes.chunks_exact(32).zip(out.chunks_exact_mut(GROUP)) {
        for (j, values) in values.chunks_exact_mut(32).enumerate() {
            for (v, byte) in values.iter_mut().zip(codes) {
                *v = (f32::from((byte >> (6 - 2 * j)) & 3) - 1.0) * scale;
            }
        }
    }
}

/// Repacks a tensor of `elements` values into TQ2_0 blocks with d = 1, and returns them with the scale by
/// which products are to be multiplied. Lossless.
///
/// `elements` is a multiple of 256 (so are the rows of every BitNet matrix); sizes as in [`decode`].
pub fn to_tq2_0(bytes: &[u8], elements: usize) -> (Vec<u8>, f32) {
    assert!(elements.is_multiple_of(super::tq2_0::LEN), "whole TQ2_0 blocks");
    let scale = scale(bytes, elements);
    let mut blocks = Vec::with_capacity(elements / super::tq2_0::LEN * DType::TQ2_0.block_bytes());
    for codes in bytes[..elements / 4].chunks_exact(64) {
        // Both formats keep the same four values in a byte, in opposite order.
        blocks.extend(codes.iter().map(|c| c >> 6 | (c >> 2) & 0x0c | (c << 2) & 0x30 | c << 6));
        blocks.extend(half::f16::ONE.to_le_bytes());
    }
    (blocks, scale)
}

fn scale(bytes: &[u8], elements: usize) -> f32 {
    assert!(elements.is_multiple_of(GROUP), "whole groups of 128 values");
    f32::from_bits(u32_at(bytes, elements / 4))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::decode_row;

    #[test]
    fn decodes_the_first_group_in_order() {
        let mut bytes = vec![0b0101_0101u8; 32];
        bytes[3] = 0b00_10_01_11;
        bytes.extend(0.5f32.to_le_bytes());
        bytes.extend([0xff; 28]);
        let mut out = [9.0; 128];
        decode(&bytes, &mut out);
        assert_eq!([out[3], out[35], out[67], out[99]], [-0.5, 0.5, 0.0, 1.0]);
        assert!(out.iter().enumerate().all(|(i, &v)| i % 32 == 3 || v == 0.0));
    }

    #[test]
    fn repacking_is_lossless() {
        let mut bytes: Vec<u8> = (0..128u32).map(|i| (i * 37 + 11) as u8).collect();
        bytes.extend(0.375f32.to_le_bytes());
        let mut direct = [0.0; 512];
        decode(&bytes, &mut direct);
        let (blocks, scale) = to_tq2_0(&bytes, 512);
        let mut repacked = [0.0; 512];
        assert!(decode_row(DType::TQ2_0, &blocks, &mut repacked));
        assert_eq!(direct, repacked.map(|v| v * scale));
        assert_eq!(bytes_for(512), Some(bytes.len() as u64));
        assert_eq!(bytes_for(100), None);
    }
}
