//! The 12 bytes in which Q4_K and Q5_K pack eight 6-bit scales and eight 6-bit minima.
//!
//! Bytes 0 to 3 and 4 to 7 hold the first four scales and minima in their low six bits; their top two
//! bits are the top bits of the last four, whose low nibbles share bytes 8 to 11.

/// Scales and minima of the eight sub-blocks.
#[inline]
pub(crate) fn unpack(packed: &[u8; 12]) -> ([u8; 8], [u8; 8]) {
    let (mut scales, mut mins) = ([0; 8], [0; 8]);
    for j in 0..4 {
        scales[j] = packed[j] & 63;
        mins[j] = packed[j + 4] & 63;
        scales[j + 4] = (packed[j + 8] & 15) | (packed[j] >> 6) << 4;
        mins[j + 4] = (packed[j + 8] >> 4) | (packed[j + 4] >> 6) << 4;
    }
    (scales, mins)
}

/// Inverse of [`unpack`].
#[inline]
pub(crate) fn pack(scales: &[u8; 8], mins: &[u8; 8]) -> [u8; 12] {
    let mut packed = [0; 12];
    for j in 0..4 {
        packed[j] = scales[j] | (scales[j + 4] >> 4) << 6;
        packed[j + 4] = mins[j] | (mins[j + 4] >> 4) << 6;
        packed[j + 8] = (scales[j + 4] & 15) | (mins[j + 4] & 15) << 4;
    }
    packed
}

/// Random scales with equal minima, so that every sub-block of a random block is centred.
#[inline]
pub(crate) fn random_centred(bits: u64) -> [u8; 12] {
    let scales = (bits & 0x3f3f_3f3f_3f3f_3f3f).to_le_bytes();
    pack(&scales, &scales)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packing_keeps_every_bit() {
        for bit in 0..96 {
            let mut packed = [0u8; 12];
            packed[bit / 8] = 1 << (bit % 8);
            let (scales, mins) = unpack(&packed);
            let ones: u32 = scales.iter().chain(&mins).map(|v| v.count_ones()).sum();
            assert_eq!(ones, 1, "bit {bit} lands in one field");
            assert_eq!(pack(&scales, &mins), packed);
        }
    }
}
