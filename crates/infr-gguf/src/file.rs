//! One model file, or the parts of a split one, opened and checked.

use std::path::Path;

use crate::error::GgufError;
use crate::metadata::Metadata;
use crate::tensors::TensorInfo;

/// How the bytes of a file are reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Access {
    /// Map the file into memory, and read it whole only where it cannot be mapped.
    #[default]
    Map,
    /// Read the file whole. For storage where a file may shrink while it is open, which would end
    /// a process that has it mapped.
    Read,
}

/// One logical file: a model in one file or in several split parts, checked and in memory.
#[derive(Debug)]
pub struct Gguf {
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
}

impl Gguf {
    /// Opens a file and, when it is part of a split model, all its parts.
    pub fn open(path: &Path) -> Result<Gguf, GgufError> {
        Gguf::open_with(path, Access::Map)
    }

    /// Opens a file and its parts with a chosen way of access.
    pub fn open_with(_path: &Path, _access: Access) -> Result<Gguf, GgufError> {
        todo!()
    }

    /// A file that is in memory already; `name` stands for its path in errors.
    pub fn from_bytes(name: &str, bytes: Vec<u8>) -> Result<Gguf, GgufError> {
        Gguf::from_parts(vec![(name.to_owned(), bytes)])
    }

    /// The parts of a split model that are in memory already, by file name, the first part first.
    pub fn from_parts(_parts: Vec<(String, Vec<u8>)>) -> Result<Gguf, GgufError> {
        todo!()
    }

    /// Keys and values (of the first part, which holds all of a split model).
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// All tensors, in file order.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The tensor with this name.
    pub fn tensor(&self, _name: &str) -> Option<&TensorInfo> {
        todo!()
    }

    /// The bytes of a tensor of this file.
    ///
    /// They start at a multiple of the file's alignment (32 as a rule, but a file may choose 1).
    ///
    /// # Panics
    /// When `tensor` comes from another file and names bytes that this one does not have.
    pub fn data(&self, _tensor: &TensorInfo) -> &[u8] {
        todo!()
    }

    /// Asks the system to start reading a tensor's bytes from disk; returns at once.
    pub fn prefetch(&self, _tensor: &TensorInfo) {
        todo!()
    }

    /// Tells the system that a tensor's bytes need not stay in memory: they are on a device now.
    pub fn release(&self, _tensor: &TensorInfo) {
        todo!()
    }

    /// Path of the first part.
    pub fn path(&self) -> &Path {
        self.metadata.file()
    }

    /// Path of a part, as numbered in [`TensorInfo::part`].
    pub fn part_path(&self, _part: u16) -> Option<&Path> {
        todo!()
    }

    /// Number of parts: 1 unless the model is split.
    pub fn part_count(&self) -> usize {
        todo!()
    }

    /// Bytes of all parts together.
    pub fn file_size(&self) -> u64 {
        todo!()
    }

    /// Version of the container: 2 or 3.
    pub fn version(&self) -> u32 {
        todo!()
    }
}
