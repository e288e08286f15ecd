//! The directory of tensors: types, shapes and where the bytes lie.

use infr_tensor::DType;

/// A tensor of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// Name, such as `blk.0.attn_q.weight`.
    pub name: String,
    /// Extents in GGUF order: `ne[0]`, the fastest, first. Rank 1 to 4, every extent at least 1;
    /// a tensor of rank 0 in the file is one element here.
    pub dims: Vec<u64>,
    /// How elements are stored.
    pub dtype: TensorType,
    /// Which part of a split model holds it, from 0.
    pub part: u16,
    /// Where its bytes start, counted from the start of that part's file.
    pub offset: u64,
    /// Number of bytes, without padding.
    pub bytes: u64,
}

impl TensorInfo {
    /// Number of elements.
    pub fn elements(&self) -> u64 {
        // The reader has checked that the product fits.
        self.dims.iter().product()
    }
}

/// How a tensor's elements are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TensorType {
    /// A type of the GGUF table.
    Known(DType),
    /// Microsoft's ternary BitNet format under the removed id 36: a quarter byte of code for each
    /// element of the whole tensor, then one `f32` scale directly behind. Files pad it to the
    /// alignment; [`TensorInfo::bytes`] counts codes and scale only.
    I2S,
}
