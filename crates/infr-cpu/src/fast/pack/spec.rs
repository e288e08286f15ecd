//! The table of packed formats: where each format's header fields stand and how its codes are read.

use infr_tensor::DType;

use super::codes;
use crate::fast::acts::BLOCK;

/// A header field of a block: `count` values of `width` bytes from `offset`.
pub(crate) struct Field {
    pub(crate) offset: usize,
    pub(crate) width: usize,
    pub(crate) count: usize,
}

/// How a block format is packed.
pub(crate) struct PackSpec {
    pub(crate) dtype: DType,
    /// Bits of a code in the first plane.
    pub(crate) low_bits: u32,
    /// Bits of a code in the second plane.
    pub(crate) high_bits: u32,
    pub(crate) fields: &'static [Field],
    /// Reads the 32 codes of one sub-block.
    pub(crate) codes: fn(block: &[u8], sub: usize, out: &mut [u8; BLOCK]),
}

/// The spec of `dtype`, `None` when the type has no integer kernel.
pub(crate) fn spec(dtype: DType) -> Option<&'static PackSpec> {
    SPECS.iter().find(|s| s.dtype == dtype)
}

const fn field(offset: usize, width: usize, count: usize) -> Field {
    Field { offset, width, count }
}

macro_rules! specs {
    ($($dtype:ident: $low:literal + $high:literal bits, [$($field:expr),*], $codes:path;)*) => {
        pub(crate) static SPECS: &[PackSpec] = &[$(PackSpec {
            dtype: DType::$dtype,
            low_bits: $low,
            high_bits: $high,
            fields: &[$($field),*],
            codes: $codes,
        }),*];
    };
}

specs! {
    Q4_0: 4 + 0 bits, [field(0, 2, 1)], codes::nibbles_at_2;
    Q4_1: 4 + 0 bits, [field(0, 2, 2)], codes::nibbles_at_4;
    Q5_0: 4 + 1 bits, [field(0, 2, 1)], codes::five_bits_at_2;
    Q5_1: 4 + 1 bits, [field(0, 2, 2)], codes::five_bits_at_4;
    Q8_0: 8 + 0 bits, [field(0, 2, 1)], codes::bytes_at_2;
    Q2_K: 2 + 0 bits, [field(80, 2, 2), field(0, 1, 16)], codes::q2_k;
    Q3_K: 2 + 1 bits, [field(108, 2, 1), field(96, 1, 12)], codes::q3_k;
    Q4_K: 4 + 0 bits, [field(0, 2, 2), field(4, 1, 12)], codes::q4_k;
    Q5_K: 4 + 1 bits, [field(0, 2, 2), field(4, 1, 12)], codes::q5_k;
    Q6_K: 4 + 2 bits, [field(208, 2, 1), field(192, 1, 16)], codes::q6_k;
    IQ4_NL: 4 + 0 bits, [field(0, 2, 1)], codes::nibbles_at_2;
    IQ4_XS: 4 + 0 bits, [field(0, 2, 2), field(4, 1, 4)], codes::iq4_xs;
    MXFP4: 4 + 0 bits, [field(0, 1, 1)], codes::nibbles_at_1;
    NVFP4: 4 + 0 bits, [field(0, 1, 4)], codes::nvfp4;
    TQ1_0: 2 + 0 bits, [field(52, 2, 1)], codes::tq1_0;
    TQ2_0: 2 + 0 bits, [field(64, 2, 1)], codes::tq2_0;
    Q1_0: 0 + 1 bits, [field(0, 2, 1)], codes::q1_0;
    Q2_0: 2 + 0 bits, [field(0, 2, 1)], codes::q2_0;
}
