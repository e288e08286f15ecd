//! A bounded reader over the bytes of a file's header.

use std::fmt;
use std::path::Path;

use crate::error::{GgufError, quoted};
use crate::sniff;

/// Most bytes that metadata and directory may take together.
const MAX_HEADER: u64 = 1 << 30;

/// What is being read, for errors; formatted only when one arises.
#[derive(Clone, Copy)]
pub(crate) enum What<'a> {
    /// A fixed part of the header.
    Field(&'static str),
    /// Key number n.
    Key(u64),
    /// The value of a key.
    Value(&'a str),
    /// The entry of tensor number n, up to its name.
    Entry(u64),
    /// The entry of a tensor, behind its name.
    Tensor(&'a str),
}

impl fmt::Display for What<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::Field(name) => f.write_str(name),
            What::Key(n) => write!(f, "key number {n}"),
            What::Value(key) => write!(f, "the value of key {}", quoted(key.as_bytes())),
            What::Entry(n) => write!(f, "the entry of tensor number {n}"),
            What::Tensor(name) => write!(f, "the entry of tensor {}", quoted(name.as_bytes())),
        }
    }
}

/// Reads little-endian values front to back and never past the end.
#[derive(Clone)]
pub(crate) struct Cursor<'a> {
    /// The file, for errors.
    pub(crate) file: &'a Path,
    bytes: &'a [u8],
    at: usize,
}

macro_rules! little_endian {
    ($($name:ident: $t:ty),*) => {$(
        pub(crate) fn $name(&mut self, what: What<'_>) -> Result<$t, GgufError> {
            let mut raw = [0; size_of::<$t>()];
            let bytes = self.take(size_of::<$t>() as u64, what)?;
            raw.copy_from_slice(bytes);
            Ok(<$t>::from_le_bytes(raw))
        }
    )*};
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(file: &'a Path, bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { file, bytes, at: 0 }
    }

    /// Where the next read starts.
    pub(crate) fn offset(&self) -> u64 {
        self.at as u64
    }

    /// Bytes left.
    pub(crate) fn remaining(&self) -> u64 {
        (self.bytes.len() - self.at) as u64
    }

    /// The next `len` bytes.
    pub(crate) fn take(&mut self, len: u64, what: What<'_>) -> Result<&'a [u8], GgufError> {
        if len > self.remaining() {
            return Err(self.truncated(len, what));
        }
        if self.offset() + len > MAX_HEADER {
            return Err(self.limit(format_args!("the header up to {what}"), len, MAX_HEADER));
        }
        // Bounded by `remaining`, which is a `usize`.
        let start = self.at;
        self.at += len as usize;
        Ok(&self.bytes[start..self.at])
    }

    little_endian! {
        u8: u8, u16: u16, u32: u32, u64: u64, i8: i8, i16: i16, i32: i32, i64: i64, f32: f32, f64: f64
    }

    /// A length and that many bytes.
    pub(crate) fn string(&mut self, what: What<'_>) -> Result<&'a [u8], GgufError> {
        let len = self.u64(what)?;
        self.take(len, what)
    }

    /// The error of a file that ends too early.
    pub(crate) fn truncated(&self, wanted: u64, what: What<'_>) -> GgufError {
        GgufError::Truncated {
            file: self.file.to_path_buf(),
            what: what.to_string(),
            offset: self.offset(),
            wanted,
            available: self.remaining(),
            hint: sniff::cut_hint(self.file),
        }
    }

    /// The error of a count above its limit.
    pub(crate) fn limit(&self, what: fmt::Arguments<'_>, found: u64, limit: u64) -> GgufError {
        GgufError::Limit {
            file: self.file.to_path_buf(),
            what: what.to_string(),
            offset: self.offset(),
            found,
            limit,
        }
    }
}
