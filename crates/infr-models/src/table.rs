//! Where a builder looks tensors up: a file, or the recorder that random models are made with.

use infr_gguf::{Gguf, TensorType};

/// A tensor as a table describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct TableEntry {
    /// Extents in GGUF order (fastest first).
    pub dims: Vec<u64>,
    /// How elements are stored.
    pub dtype: TensorType,
    /// The scalar that multiplies all values of an `I2_S` tensor.
    pub i2s_scale: Option<f32>,
}

/// How much a model needs a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// The model cannot be built without it.
    Required,
    /// The model is another one without it.
    Optional,
}

/// A directory of tensors.
pub trait TensorTable {
    /// The tensor `name`, which the model wants with extents `dims`.
    fn find(&self, name: &str, dims: &[u64], need: Need) -> Option<TableEntry>;
}

impl TensorTable for Gguf {
    fn find(&self, name: &str, _dims: &[u64], _need: Need) -> Option<TableEntry> {
        let info = self.tensor(name)?;
        let i2s_scale = match info.dtype {
            TensorType::Known(_) => None,
            TensorType::I2S => {
                let data = self.data(info);
                let tail = data.len().checked_sub(4).and_then(|at| data[at..].try_into().ok());
                Some(f32::from_le_bytes(tail.unwrap_or_default()))
            }
        };
        Some(TableEntry { dims: info.dims.clone(), dtype: info.dtype, i2s_scale })
    }
}
