//! The one table of data types.
//!
//! Adding a type is a row here and, when it is a block format, a codec file in [`crate::quant`].

/// Static facts about a data type: its name, GGUF id and block geometry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DTypeInfo {
    /// Name as GGUF tools print it, upper case (`Q4_K`).
    pub name: &'static str,
    /// Type id in GGUF files, `None` when the type never stands in a file.
    pub ggml_id: Option<u32>,
    /// Elements in one block.
    pub block_len: u16,
    /// Bytes of one block.
    pub block_bytes: u16,
}

macro_rules! dtypes {
    ($($(#[$doc:meta])* $variant:ident $name:literal $id:expr, $len:literal, $bytes:literal;)*) => {
        /// Every element or block type that a tensor can have.
        #[allow(non_camel_case_types)]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum DType { $($(#[$doc])* $variant,)* }

        impl DType {
            /// All types, in table order.
            pub const ALL: &'static [DType] = &[$(DType::$variant,)*];

            /// The facts of this type.
            pub const fn info(self) -> DTypeInfo {
                match self {
                    $(DType::$variant => DTypeInfo {
                        name: $name, ggml_id: $id, block_len: $len, block_bytes: $bytes,
                    },)*
                }
            }
        }
    };
}

dtypes! {
    /// IEEE single precision.
    F32 "F32" Some(0), 1, 4;
    /// IEEE half precision.
    F16 "F16" Some(1), 1, 2;
    /// Upper half of an `F32`.
    BF16 "BF16" Some(30), 1, 2;
    /// IEEE double precision (accepted in files, converted when loaded).
    F64 "F64" Some(28), 1, 8;
    /// Signed bytes.
    I8 "I8" Some(24), 1, 1;
    /// Signed 16-bit integers.
    I16 "I16" Some(25), 1, 2;
    /// Signed 32-bit integers (token and expert ids).
    I32 "I32" Some(26), 1, 4;
    /// Signed 64-bit integers.
    I64 "I64" Some(27), 1, 8;
    /// 4-bit, one scale per 32.
    Q4_0 "Q4_0" Some(2), 32, 18;
    /// 4-bit, scale and minimum per 32.
    Q4_1 "Q4_1" Some(3), 32, 20;
    /// 5-bit, one scale per 32.
    Q5_0 "Q5_0" Some(6), 32, 22;
    /// 5-bit, scale and minimum per 32.
    Q5_1 "Q5_1" Some(7), 32, 24;
    /// 8-bit, one scale per 32.
    Q8_0 "Q8_0" Some(8), 32, 34;
    /// 2-bit K-quant.
    Q2_K "Q2_K" Some(10), 256, 84;
    /// 3-bit K-quant.
    Q3_K "Q3_K" Some(11), 256, 110;
    /// 4-bit K-quant.
    Q4_K "Q4_K" Some(12), 256, 144;
    /// 5-bit K-quant.
    Q5_K "Q5_K" Some(13), 256, 176;
    /// 6-bit K-quant.
    Q6_K "Q6_K" Some(14), 256, 210;
    /// i-quant, 2.06 bits.
    IQ2_XXS "IQ2_XXS" Some(16), 256, 66;
    /// i-quant, 2.31 bits.
    IQ2_XS "IQ2_XS" Some(17), 256, 74;
    /// i-quant, 3.06 bits.
    IQ3_XXS "IQ3_XXS" Some(18), 256, 98;
    /// i-quant, 1.56 bits.
    IQ1_S "IQ1_S" Some(19), 256, 50;
    /// 4-bit with a fixed non-linear code book, one scale per 32.
    IQ4_NL "IQ4_NL" Some(20), 32, 18;
    /// i-quant, 3.44 bits.
    IQ3_S "IQ3_S" Some(21), 256, 110;
    /// i-quant, 2.56 bits.
    IQ2_S "IQ2_S" Some(22), 256, 82;
    /// 4-bit non-linear code book with 6-bit sub-scales.
    IQ4_XS "IQ4_XS" Some(23), 256, 136;
    /// i-quant, 1.75 bits.
    IQ1_M "IQ1_M" Some(29), 256, 56;
    /// Ternary, five trits a byte.
    TQ1_0 "TQ1_0" Some(34), 256, 54;
    /// Ternary, two bits a value.
    TQ2_0 "TQ2_0" Some(35), 256, 66;
    /// OCP microscaling FP4.
    MXFP4 "MXFP4" Some(39), 32, 17;
    /// NVIDIA FP4 with E4M3 sub-scales.
    NVFP4 "NVFP4" Some(40), 64, 36;
    /// One bit: plus or minus the scale.
    Q1_0 "Q1_0" Some(41), 128, 18;
    /// Two bits: minus one to two times the scale.
    Q2_0 "Q2_0" Some(42), 64, 18;
}

impl DType {
    /// The type with this GGUF id, if there is one.
    pub fn from_ggml_id(id: u32) -> Option<DType> {
        DType::ALL.iter().copied().find(|t| t.info().ggml_id == Some(id))
    }

    /// The type with this name, in any case (`q4_k`).
    pub fn from_name(name: &str) -> Option<DType> {
        DType::ALL.iter().copied().find(|t| t.info().name.eq_ignore_ascii_case(name))
    }

    /// Name as GGUF tools print it.
    pub const fn name(self) -> &'static str {
        self.info().name
    }

    /// Elements in one block.
    pub const fn block_len(self) -> usize {
        self.info().block_len as usize
    }

    /// Bytes of one block.
    pub const fn block_bytes(self) -> usize {
        self.info().block_bytes as usize
    }

    /// Bytes of `elements` values, `None` when they are not a whole number of blocks or the size overflows.
    pub fn bytes_for(self, elements: u64) -> Option<u64> {
        let len = self.block_len() as u64;
        if !elements.is_multiple_of(len) {
            return None;
        }
        (elements / len).checked_mul(self.block_bytes() as u64)
    }

    /// Whether values are packed in blocks with shared scales.
    pub const fn is_quantised(self) -> bool {
        self.info().block_len > 1
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_names_find_their_type() {
        for &dtype in DType::ALL {
            assert_eq!(dtype.info().ggml_id.and_then(DType::from_ggml_id), Some(dtype));
            assert_eq!(DType::from_name(&dtype.name().to_lowercase()), Some(dtype));
            assert_eq!(format!("{dtype:?}"), dtype.to_string());
        }
    }

    #[test]
    fn removed_and_unknown_ids_are_refused() {
        for id in [4, 5, 9, 15, 31, 32, 33, 36, 37, 38, 43, u32::MAX] {
            assert_eq!(DType::from_ggml_id(id), None, "{id}");
        }
    }

    #[test]
    fn sizes_are_whole_blocks() {
        assert_eq!(DType::Q4_K.bytes_for(512), Some(288));
        assert_eq!(DType::Q4_K.bytes_for(128), None);
        assert_eq!(DType::F64.bytes_for(u64::MAX), None);
        assert_eq!(DType::IQ1_S.bytes_for(0), Some(0));
        assert!(DType::Q1_0.is_quantised() && !DType::BF16.is_quantised());
    }
}
