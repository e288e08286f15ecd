//! The directory of tensors: types, shapes and where the bytes lie.

use std::fmt;

use infr_tensor::DType;

use crate::cursor::{Cursor, What};
use crate::error::{GgufError, quoted};
use crate::sniff;

/// Longest name that other readers accept.
const USUAL_NAME_BYTES: usize = 63;
const MAX_NAME_BYTES: u64 = 65_535;
const MAX_RANK: u32 = 4;
/// Elements in one group of [`TensorType::I2S`].
const I2S_GROUP: u64 = 128;
/// The removed type id that Microsoft's BitNet files use for [`TensorType::I2S`].
const I2S_ID: u32 = 36;

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

impl TensorType {
    /// The type with this id in files; nothing for unknown and removed ids.
    pub fn from_id(id: u32) -> Option<TensorType> {
        match id {
            I2S_ID => Some(TensorType::I2S),
            id => DType::from_ggml_id(id).map(TensorType::Known),
        }
    }

    /// The type's id in files; nothing for a type that never stands in one.
    pub fn id(self) -> Option<u32> {
        match self {
            TensorType::Known(dtype) => dtype.info().ggml_id,
            TensorType::I2S => Some(I2S_ID),
        }
    }

    /// Name as GGUF tools print it.
    pub fn name(self) -> &'static str {
        match self {
            TensorType::Known(dtype) => dtype.name(),
            TensorType::I2S => "I2_S",
        }
    }

    /// The type of the table, when it is one.
    pub fn known(self) -> Option<DType> {
        match self {
            TensorType::Known(dtype) => Some(dtype),
            TensorType::I2S => None,
        }
    }

    /// Elements that a row has to be a multiple of.
    pub fn row_multiple(self) -> u64 {
        match self {
            TensorType::Known(dtype) => dtype.block_len() as u64,
            TensorType::I2S => I2S_GROUP,
        }
    }

    /// Bytes of a tensor of this type and shape (GGUF order); says what is wrong with the shape
    /// when there is no such tensor.
    pub fn bytes_for(self, dims: &[u64]) -> Result<u64, String> {
        if dims.is_empty() || dims.len() > MAX_RANK as usize {
            return Err(format!("rank {} (1 to {MAX_RANK} is accepted)", dims.len()));
        }
        if dims.contains(&0) {
            return Err(format!("shape {dims:?} has no elements"));
        }
        let fits = |n: &u64| i64::try_from(*n).is_ok();
        let too_big = || format!("shape {dims:?} has more elements or bytes than a file can hold");
        let elements = dims.iter().try_fold(1u64, |n, &d| n.checked_mul(d).filter(fits));
        let elements = elements.ok_or_else(too_big)?;
        if !dims[0].is_multiple_of(self.row_multiple()) {
            return Err(format!(
                "rows of {} elements are not a multiple of {self}'s block of {}",
                dims[0],
                self.row_multiple()
            ));
        }
        let bytes = match self {
            TensorType::Known(dtype) => dtype.bytes_for(elements),
            TensorType::I2S => Some(elements / 4 + size_of::<f32>() as u64),
        };
        bytes.filter(fits).ok_or_else(too_big)
    }
}

impl From<DType> for TensorType {
    fn from(dtype: DType) -> TensorType {
        TensorType::Known(dtype)
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Reads the directory of one part and checks where the data lies.
pub(crate) fn read_directory(
    cursor: &mut Cursor<'_>,
    count: u64,
    alignment: u32,
) -> Result<Vec<TensorInfo>, GgufError> {
    let size = cursor.offset() + cursor.remaining();
    // The caller has bounded the count by the bytes that remain.
    let mut tensors = Vec::with_capacity(count as usize);
    for n in 0..count {
        tensors.push(read_entry(cursor, n, alignment)?);
    }
    if tensors.is_empty() {
        return Ok(tensors);
    }
    // The header is bounded to 1 GiB and the alignment to 1 MiB.
    let data_start = cursor.offset().next_multiple_of(alignment.into());
    for tensor in &mut tensors {
        let start = data_start.checked_add(tensor.offset);
        let end = start.and_then(|s| s.checked_add(tensor.bytes));
        match (start, end) {
            (Some(start), Some(end)) if end <= size => tensor.offset = start,
            _ => {
                return Err(GgufError::PastEnd {
                    file: cursor.file.to_path_buf(),
                    tensor: quoted(tensor.name.as_bytes()),
                    offset: start.unwrap_or(u64::MAX),
                    end: end.unwrap_or(u64::MAX),
                    size,
                    hint: sniff::cut_hint(cursor.file),
                });
            }
        }
    }
    check_layout(cursor, &tensors, data_start, alignment)?;
    Ok(tensors)
}

fn read_entry(cursor: &mut Cursor<'_>, n: u64, alignment: u32) -> Result<TensorInfo, GgufError> {
    let entry = cursor.offset();
    let name = read_name(cursor, n)?;
    let file = cursor.file;
    let bad = |problem| GgufError::BadTensor {
        file: file.to_path_buf(),
        tensor: quoted(name.as_bytes()),
        offset: entry,
        problem,
    };
    let what = What::Tensor(&name);
    let rank = cursor.u32(what)?;
    if rank > MAX_RANK {
        return Err(bad(format!("rank {rank} (0 to {MAX_RANK} is accepted)")));
    }
    let mut dims = Vec::with_capacity(rank.max(1) as usize);
    for _ in 0..rank {
        let dim = cursor.i64(what)?;
        dims.push(u64::try_from(dim).map_err(|_| bad(format!("negative extent {dim}")))?);
    }
    if dims.is_empty() {
        dims.push(1);
    }
    let id = cursor.u32(what)?;
    let dtype = TensorType::from_id(id).ok_or_else(|| GgufError::TensorType {
        file: file.to_path_buf(),
        tensor: quoted(name.as_bytes()),
        found: id,
        problem: unusable_id(id),
    })?;
    let bytes = dtype.bytes_for(&dims).map_err(&bad)?;
    let offset = cursor.u64(what)?;
    if !offset.is_multiple_of(alignment.into()) {
        return Err(bad(format!(
            "its data offset {offset} is not a multiple of the file's alignment {alignment}"
        )));
    }
    Ok(TensorInfo { name, dims, dtype, part: 0, offset, bytes })
}

fn read_name(cursor: &mut Cursor<'_>, n: u64) -> Result<String, GgufError> {
    let offset = cursor.offset();
    let len = cursor.u64(What::Entry(n))?;
    if len > MAX_NAME_BYTES {
        let what = format_args!("the length of tensor name number {n}");
        return Err(cursor.limit(what, len, MAX_NAME_BYTES));
    }
    let name = cursor.take(len, What::Entry(n))?;
    let bad = |problem: &str| GgufError::BadTensor {
        file: cursor.file.to_path_buf(),
        tensor: quoted(name),
        offset,
        problem: problem.to_owned(),
    };
    if name.is_empty() {
        return Err(bad("the name is empty"));
    }
    // Copied first: a mapped file may change between a check and a copy.
    let text = String::from_utf8(name.to_vec()).map_err(|_| bad("the name is not UTF-8"))?;
    if name.len() > USUAL_NAME_BYTES {
        tracing::warn!(
            "{}: tensor name {} has {} bytes; other programs accept {USUAL_NAME_BYTES}",
            cursor.file.display(),
            quoted(name),
            name.len()
        );
    }
    Ok(text)
}

/// What is known about an id that no tensor can have.
fn unusable_id(id: u32) -> &'static str {
    match id {
        4 | 5 => "Q4_2 and Q4_3 were removed from the format; quantise the model again",
        9 | 15 => "Q8_1 and Q8_K hold activations during a computation, not weights in files",
        31..=33 | 37 | 38 => {
            "Q4_0 and IQ4_NL with interleaved rows were removed from the format; \
             quantise the model again (rows are rearranged when a model loads)"
        }
        _ => "unknown; the file is damaged, or made by a program with types of its own",
    }
}

/// Tensors must not share bytes; bytes that no tensor owns only earn a warning.
fn check_layout(
    cursor: &Cursor<'_>,
    tensors: &[TensorInfo],
    data_start: u64,
    alignment: u32,
) -> Result<(), GgufError> {
    let mut by_offset: Vec<&TensorInfo> = tensors.iter().collect();
    by_offset.sort_by_key(|t| t.offset);
    let mut expected = data_start;
    let mut gaps = 0u64;
    let mut previous: Option<&TensorInfo> = None;
    for tensor in by_offset {
        if let Some(other) = previous
            && tensor.offset < other.offset + other.bytes
        {
            return Err(GgufError::Overlap {
                file: cursor.file.to_path_buf(),
                tensor: quoted(tensor.name.as_bytes()),
                offset: tensor.offset,
                other: quoted(other.name.as_bytes()),
                end: other.offset + other.bytes,
            });
        }
        gaps += u64::from(tensor.offset != expected);
        // No overflow: the end lies in the file, and no file comes near 2^63 bytes.
        expected = (tensor.offset + tensor.bytes).next_multiple_of(alignment.into());
        previous = Some(tensor);
    }
    if gaps > 0 {
        tracing::warn!(
            "{}: unused bytes in front of {gaps} tensors; some programs refuse such a file",
            cursor.file.display()
        );
    }
    Ok(())
}
