//! The bytes of a program's weights, out of its file.

use std::sync::Arc;

use infr_backend::{BackendError, WeightBytes, WeightSource};
use infr_gguf::{Gguf, TensorInfo, TensorType};
use infr_graph::{WeightDecl, WeightFrom};
use infr_tensor::DType;
use infr_tensor::quant::{self, i2s};

/// Weights of a file: borrowed from its mapping where the declaration has the file's own type,
/// converted otherwise.
#[derive(Debug, Clone)]
pub struct GgufWeights(pub Arc<Gguf>);

/// The type that ternary `I2_S` tensors are converted to without loss; their scale is a weight of its
/// own. `dims` in GGUF order.
pub(crate) fn i2s_dtype(dims: &[u32]) -> DType {
    let width = dims.first().copied().unwrap_or(0) as usize;
    if width.is_multiple_of(DType::TQ2_0.block_len()) { DType::TQ2_0 } else { DType::Q2_0 }
}

/// One tensor of a file as the owner of its bytes.
struct Mapped {
    gguf: Arc<Gguf>,
    index: usize,
}

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        self.gguf.data(&self.gguf.tensors()[self.index])
    }
}

impl WeightSource for GgufWeights {
    fn load(&self, weight: &WeightDecl) -> Result<WeightBytes, BackendError> {
        match &weight.source {
            WeightFrom::Tensor(name) => self.tensor(name, weight.desc.dtype),
            WeightFrom::Concat(names) => {
                let mut all = Vec::new();
                for name in names {
                    all.extend_from_slice(&self.tensor(name, weight.desc.dtype)?);
                }
                Ok(WeightBytes::owned(all))
            }
            WeightFrom::Const(values) => {
                Ok(WeightBytes::owned(values.iter().flat_map(|v| v.to_le_bytes()).collect()))
            }
        }
    }
}

impl GgufWeights {
    fn tensor(&self, name: &str, wanted: DType) -> Result<WeightBytes, BackendError> {
        let index = self.0.tensors().iter().position(|t| t.name == name);
        let index = index.ok_or_else(|| unreadable(name, "is not in the file"))?;
        let info = &self.0.tensors()[index];
        match info.dtype {
            TensorType::Known(found) if found == wanted => {
                let owner = Mapped { gguf: self.0.clone(), index };
                let len = self.0.data(info).len();
                Ok(WeightBytes::shared(Arc::new(owner), 0..len))
            }
            TensorType::Known(found) if wanted == DType::F32 => {
                let values = to_f32(found, self.0.data(info), info)
                    .ok_or_else(|| unreadable(name, "has a type without values"))?;
                Ok(WeightBytes::owned(values.iter().flat_map(|v| v.to_le_bytes()).collect()))
            }
            TensorType::I2S => self.ternary(info, wanted),
            TensorType::Known(found) => {
                Err(unreadable(name, &format!("is {found} and cannot become {wanted}")))
            }
        }
    }

    /// `I2_S` codes as blocks with scale 1.
    fn ternary(&self, info: &TensorInfo, wanted: DType) -> Result<WeightBytes, BackendError> {
        let data = self.0.data(info);
        let elements = usize::try_from(info.elements()).unwrap_or(usize::MAX);
        if i2s::bytes_for(info.elements()) != Some(data.len() as u64) {
            return Err(unreadable(&info.name, "is not made of groups of 128 values"));
        }
        match wanted {
            DType::TQ2_0 => Ok(WeightBytes::owned(i2s::to_tq2_0(data, elements).0)),
            DType::Q2_0 => Ok(WeightBytes::owned(to_q2_0(data, elements))),
            other => Err(unreadable(&info.name, &format!("is I2_S and cannot become {other}"))),
        }
    }
}

/// `I2_S` codes in `Q2_0` blocks with scale 1: both store the value plus one in two bits.
fn to_q2_0(data: &[u8], elements: usize) -> Vec<u8> {
    let code = |e: usize| data[e / 128 * 32 + e % 32] >> (6 - 2 * (e % 128 / 32)) & 3;
    let mut blocks = Vec::with_capacity(elements / 64 * DType::Q2_0.block_bytes());
    for block in (0..elements).step_by(64) {
        blocks.extend(0x3c00u16.to_le_bytes());
        blocks.extend(
            (0..16).map(|byte| (0..4).map(|i| code(block + 4 * byte + i) << (2 * i)).sum::<u8>()),
        );
    }
    blocks
}

fn unreadable(name: &str, why: &str) -> BackendError {
    BackendError::Weight { name: name.to_owned(), what: why.to_owned() }
}

fn to_f32(dtype: DType, data: &[u8], info: &TensorInfo) -> Option<Vec<f32>> {
    let mut out = vec![0.0f32; usize::try_from(info.elements()).ok()?];
    match dtype {
        DType::I8 => out.iter_mut().zip(data).for_each(|(o, &b)| *o = f32::from(b as i8)),
        DType::I16 => ints::<2>(data, &mut out, |b| f32::from(i16::from_le_bytes(b))),
        DType::I32 => ints::<4>(data, &mut out, |b| i32::from_le_bytes(b) as f32),
        DType::I64 => ints::<8>(data, &mut out, |b| i64::from_le_bytes(b) as f32),
        _ => return quant::decode_row(dtype, data, &mut out).then_some(out),
    }
    Some(out)
}

fn ints<const N: usize>(data: &[u8], out: &mut [f32], f: impl Fn([u8; N]) -> f32) {
    for (o, bytes) in out.iter_mut().zip(data.as_chunks::<N>().0) {
        *o = f(*bytes);
    }
}
