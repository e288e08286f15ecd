//! A streaming writer: declare everything, then write tensor by tensor in declared order.

use std::io::Write;

use crate::error::GgufError;
use crate::tensors::{TensorInfo, TensorType};
use crate::value::Value;

/// Collects metadata and the directory of tensors of a file that is to be written.
#[derive(Debug, Clone)]
pub struct Writer {
    tensors: Vec<TensorInfo>,
}

impl Writer {
    /// A writer of a version 3 file with alignment 32.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Writer {
        todo!()
    }

    /// Sets a key, in place when it is set already. `general.alignment` (u32) also sets the
    /// alignment of the file.
    pub fn set(&mut self, _key: &str, _value: impl Into<Value>) -> &mut Writer {
        todo!()
    }

    /// Declares a tensor; its number of bytes follows from the shape (GGUF order) and the type.
    pub fn tensor(
        &mut self,
        _name: &str,
        _dims: &[u64],
        _dtype: TensorType,
    ) -> Result<&mut Writer, GgufError> {
        todo!()
    }

    /// The tensors declared; offsets count from the start of the data section until `begin`.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// Writes the header and goes on to the data. `out` should be buffered.
    pub fn begin<W: Write>(self, _out: W) -> Result<DataWriter<W>, GgufError> {
        todo!()
    }
}

/// Writes the data of the tensors that a [`Writer`] declared.
#[derive(Debug)]
pub struct DataWriter<W: Write> {
    out: W,
}

impl<W: Write> DataWriter<W> {
    /// The tensor whose bytes are wanted next.
    pub fn next_tensor(&self) -> Option<&TensorInfo> {
        todo!()
    }

    /// Writes all bytes of the next tensor, which has to be `name`.
    pub fn write_tensor(&mut self, _name: &str, _data: &[u8]) -> Result<(), GgufError> {
        todo!()
    }

    /// Writes the next bytes of the current tensor, in pieces of any size that do not cross into
    /// the next tensor.
    pub fn write_chunk(&mut self, _data: &[u8]) -> Result<(), GgufError> {
        todo!()
    }

    /// Flushes and gives the output back; an error when data is missing.
    pub fn finish(self) -> Result<W, GgufError> {
        Ok(self.out)
    }
}
