//! Random weights of any type.

use infr_backend::HostTensor;
use infr_tensor::{DType, Shape, TensorDesc, quant};

use crate::rng::Rng;

/// A tensor of valid blocks whose values have about this spread.
///
/// # Panics
/// When the type is no weight type or a row is no whole number of blocks.
pub fn weight(rng: &mut Rng, dtype: DType, dims: &[u32], spread: f32) -> HostTensor {
    let shape = Shape::fixed(dims);
    let row = dims.last().copied().unwrap_or(1) as usize;
    assert!(row.is_multiple_of(dtype.block_len()), "rows of {row} are no whole {dtype} blocks");
    let elements = shape.elements().expect("a tensor of fixed size");
    let n_bytes = dtype.bytes_for(elements).expect("rows are whole blocks");
    let mut bytes = vec![0; n_bytes as usize];
    let known = quant::random_blocks(dtype, &mut || rng.bits(), spread, &mut bytes);
    assert!(known, "{dtype} is no weight type");
    HostTensor { desc: TensorDesc { dtype, shape }, bytes }
}

/// A tensor of these `f32` values.
pub fn vector(dims: &[u32], values: &[f32]) -> HostTensor {
    let desc = TensorDesc { dtype: DType::F32, shape: Shape::fixed(dims) };
    HostTensor { desc, bytes: values.iter().flat_map(|v| v.to_le_bytes()).collect() }
}

/// Values of a tensor.
///
/// # Panics
/// When its type is no weight type.
pub fn decode(tensor: &HostTensor) -> Vec<f32> {
    let elements = tensor.desc.shape.elements().unwrap_or(0);
    let mut out = vec![0.0; elements as usize];
    let known = quant::decode_row(tensor.desc.dtype, &tensor.bytes, &mut out);
    assert!(known, "{} is no weight type", tensor.desc.dtype);
    out
}
