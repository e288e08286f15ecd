//! A streaming writer: declare everything, then write tensor by tensor in declared order.
//!
//! Nothing but the header is held in memory, so files of any size are written at disk speed.

use std::collections::HashSet;
use std::io::{self, Write};

use crate::error::{GgufError, quoted};
use crate::header::{ALIGNMENT_KEY, DEFAULT_ALIGNMENT, is_alignment};
use crate::tensors::{TensorInfo, TensorType};
use crate::value::{Array, StringArray, Value};

const VERSION: u32 = 3;
/// Zeros for padding, written as often as needed.
const ZEROS: [u8; 64] = [0; 64];

/// Collects metadata and the directory of tensors of a file that is to be written.
#[derive(Debug, Clone, Default)]
pub struct Writer {
    entries: Vec<(String, Value)>,
    tensors: Vec<TensorInfo>,
    names: HashSet<String>,
}

impl Writer {
    /// A writer of a version 3 file with alignment 32.
    pub fn new() -> Writer {
        Writer::default()
    }

    /// Sets a key, in place when it is set already. `general.alignment` (a power of two as `u32`)
    /// also sets the alignment of the file.
    pub fn set(&mut self, key: &str, value: impl Into<Value>) -> &mut Writer {
        let value = value.into();
        match self.entries.iter_mut().find(|(k, _)| k == key) {
            Some(entry) => entry.1 = value,
            None => self.entries.push((key.to_owned(), value)),
        }
        self
    }

    /// Declares a tensor; its number of bytes follows from the shape (GGUF order) and the type.
    pub fn tensor(
        &mut self,
        name: &str,
        dims: &[u64],
        dtype: TensorType,
    ) -> Result<&mut Writer, GgufError> {
        let bytes = dtype.bytes_for(dims).map_err(|problem| bad(name, &problem))?;
        if dtype.id().is_none() {
            return Err(bad(name, &format!("type {dtype} has no id in GGUF files")));
        }
        if name.is_empty() || name.len() > 63 {
            return Err(bad(name, "names have 1 to 63 bytes"));
        }
        if !self.names.insert(name.to_owned()) {
            return Err(bad(name, "the name is declared already"));
        }
        let (name, dims) = (name.to_owned(), dims.to_vec());
        self.tensors.push(TensorInfo { name, dims, dtype, part: 0, offset: 0, bytes });
        Ok(self)
    }

    /// The tensors declared so far; their offsets are set when the data begins.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// Writes the header and goes on to the data. `out` should be buffered.
    pub fn begin<W: Write>(mut self, mut out: W) -> Result<DataWriter<W>, GgufError> {
        let alignment = u64::from(self.alignment()?);
        let mut header = Vec::new();
        header.extend_from_slice(b"GGUF");
        header.extend_from_slice(&VERSION.to_le_bytes());
        header.extend_from_slice(&(self.tensors.len() as u64).to_le_bytes());
        header.extend_from_slice(&(self.entries.len() as u64).to_le_bytes());
        for (key, value) in &self.entries {
            if key.is_empty() || key.len() > usize::from(u16::MAX) {
                return Err(bad(key, "keys have 1 to 65535 bytes"));
            }
            put_string(&mut header, key.as_bytes());
            put_value(&mut header, value);
        }
        let mut offset = 0u64;
        for tensor in &mut self.tensors {
            put_string(&mut header, tensor.name.as_bytes());
            header.extend_from_slice(&(tensor.dims.len() as u32).to_le_bytes());
            tensor.dims.iter().for_each(|d| header.extend_from_slice(&d.to_le_bytes()));
            let id = tensor.dtype.id().expect("checked when the tensor was declared");
            header.extend_from_slice(&id.to_le_bytes());
            header.extend_from_slice(&offset.to_le_bytes());
            tensor.offset = offset;
            offset = offset
                .checked_add(tensor.bytes)
                .and_then(|end| end.checked_next_multiple_of(alignment))
                .filter(|&end| i64::try_from(end).is_ok())
                .ok_or_else(|| bad(&tensor.name, "the data is larger than a file can be"))?;
        }
        if !self.tensors.is_empty() {
            header.resize(header.len().next_multiple_of(alignment as usize), 0);
        }
        let start = header.len() as u64;
        self.tensors.iter_mut().for_each(|t| t.offset += start);
        out.write_all(&header).map_err(|e| io_error("the header", e))?;
        Ok(DataWriter { out, tensors: self.tensors, alignment, current: 0, written: 0 })
    }

    fn alignment(&self) -> Result<u32, GgufError> {
        match self.entries.iter().find(|(k, _)| k == ALIGNMENT_KEY) {
            None => Ok(DEFAULT_ALIGNMENT),
            Some((_, Value::U32(v))) if is_alignment(*v) => Ok(*v),
            Some((key, other)) => {
                let found = format!("wanted a u32 that is a power of two, found {other}");
                Err(bad(key, &found))
            }
        }
    }
}

/// Writes the data of the tensors that a [`Writer`] declared.
#[derive(Debug)]
pub struct DataWriter<W: Write> {
    out: W,
    tensors: Vec<TensorInfo>,
    alignment: u64,
    current: usize,
    /// Bytes of the current tensor that are written.
    written: u64,
}

impl<W: Write> DataWriter<W> {
    /// The tensor whose bytes are wanted next.
    pub fn next_tensor(&self) -> Option<&TensorInfo> {
        self.tensors.get(self.current)
    }

    /// Writes all bytes of the next tensor, which has to be `name`.
    pub fn write_tensor(&mut self, name: &str, data: &[u8]) -> Result<(), GgufError> {
        let Some(tensor) = self.next_tensor() else {
            return Err(bad(name, "all declared tensors are written already"));
        };
        if tensor.name != name {
            let next = quoted(tensor.name.as_bytes());
            return Err(bad(name, &format!("tensor {next} is next in declared order")));
        }
        if self.written != 0 || tensor.bytes != data.len() as u64 {
            let (wanted, found) = (tensor.bytes - self.written, data.len());
            return Err(bad(name, &format!("{wanted} bytes wanted, {found} given")));
        }
        self.write_chunk(data)
    }

    /// Writes the next bytes of the current tensor, in pieces of any size that do not cross into
    /// the next tensor.
    pub fn write_chunk(&mut self, data: &[u8]) -> Result<(), GgufError> {
        let Some(tensor) = self.tensors.get(self.current) else {
            return Err(bad("data", "all declared tensors are written already"));
        };
        let left = tensor.bytes - self.written;
        if data.len() as u64 > left {
            let problem = format!("{left} bytes wanted, {} given", data.len());
            return Err(bad(&tensor.name, &problem));
        }
        self.out.write_all(data).map_err(|e| io_error(&tensor.name, e))?;
        self.written += data.len() as u64;
        if self.written == tensor.bytes {
            let padding = tensor.bytes.next_multiple_of(self.alignment) - tensor.bytes;
            write_zeros(&mut self.out, padding).map_err(|e| io_error(&tensor.name, e))?;
            self.current += 1;
            self.written = 0;
        }
        Ok(())
    }

    /// Flushes and gives the output back; an error when data is missing.
    pub fn finish(mut self) -> Result<W, GgufError> {
        if let Some(tensor) = self.next_tensor() {
            let missing = tensor.bytes - self.written;
            return Err(bad(&tensor.name, &format!("{missing} bytes are still missing")));
        }
        self.out.flush().map_err(|e| io_error("the end of the file", e))?;
        Ok(self.out)
    }
}

fn write_zeros(out: &mut impl Write, mut count: u64) -> io::Result<()> {
    while count > 0 {
        let now = count.min(ZEROS.len() as u64);
        out.write_all(&ZEROS[..now as usize])?;
        count -= now;
    }
    Ok(())
}

fn bad(what: &str, problem: &str) -> GgufError {
    GgufError::Write { what: quoted(what.as_bytes()), problem: problem.to_owned() }
}

fn io_error(what: &str, source: io::Error) -> GgufError {
    GgufError::WriteIo { what: quoted(what.as_bytes()), source }
}

fn put_string(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn put_value(out: &mut Vec<u8>, value: &Value) {
    macro_rules! put {
        ($id:literal, $v:expr) => {{
            out.extend_from_slice(&u32::to_le_bytes($id));
            out.extend_from_slice(&$v.to_le_bytes());
        }};
    }
    match value {
        Value::U8(v) => put!(0, v),
        Value::I8(v) => put!(1, v),
        Value::U16(v) => put!(2, v),
        Value::I16(v) => put!(3, v),
        Value::U32(v) => put!(4, v),
        Value::I32(v) => put!(5, v),
        Value::F32(v) => put!(6, v),
        Value::Bool(v) => put!(7, u8::from(*v)),
        Value::String(v) => {
            out.extend_from_slice(&8u32.to_le_bytes());
            put_string(out, v.as_bytes());
        }
        Value::Array(v) => {
            out.extend_from_slice(&9u32.to_le_bytes());
            put_array(out, v);
        }
        Value::U64(v) => put!(10, v),
        Value::I64(v) => put!(11, v),
        Value::F64(v) => put!(12, v),
    }
}

fn put_array(out: &mut Vec<u8>, array: &Array) {
    macro_rules! put {
        ($id:literal, $v:expr) => {{
            out.extend_from_slice(&u32::to_le_bytes($id));
            out.extend_from_slice(&($v.len() as u64).to_le_bytes());
            $v.iter().for_each(|x| out.extend_from_slice(&x.to_le_bytes()));
        }};
    }
    match array {
        Array::U8(v) => put!(0, v),
        Array::I8(v) => put!(1, v),
        Array::U16(v) => put!(2, v),
        Array::I16(v) => put!(3, v),
        Array::U32(v) => put!(4, v),
        Array::I32(v) => put!(5, v),
        Array::F32(v) => put!(6, v),
        Array::Bool(v) => put!(7, v.iter().map(|&b| u8::from(b)).collect::<Vec<u8>>()),
        Array::Strings(v) => put_strings(out, v),
        Array::U64(v) => put!(10, v),
        Array::I64(v) => put!(11, v),
        Array::F64(v) => put!(12, v),
    }
}

fn put_strings(out: &mut Vec<u8>, strings: &StringArray) {
    out.extend_from_slice(&8u32.to_le_bytes());
    out.extend_from_slice(&(strings.len() as u64).to_le_bytes());
    strings.iter().for_each(|s| put_string(out, s));
}
