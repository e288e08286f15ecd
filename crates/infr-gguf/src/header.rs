//! The parser of one part: counts, key-value section, directory of tensors.

use std::path::Path;

use crate::cursor::{Cursor, What};
use crate::error::{GgufError, quoted};
use crate::metadata::Metadata;
use crate::sniff;
use crate::tensors::{self, TensorInfo};
use crate::value::{Array, StringArray, Text, Value};

const MAX_KEYS: u64 = 65_536;
const MAX_TENSORS: u64 = 1 << 20;
const MAX_KEY_BYTES: u64 = 65_535;
const MAX_ARRAY_LEN: u64 = 1 << 28;
const MAX_ALIGNMENT: u32 = 1 << 20;
/// Alignment of a file that does not name one.
pub(crate) const DEFAULT_ALIGNMENT: u32 = 32;
/// The key that names the alignment.
pub(crate) const ALIGNMENT_KEY: &str = "general.alignment";
/// Smallest entries: a key of one byte with a value of one byte, an unnamed tensor of rank 0.
const MIN_KEY_ENTRY: u64 = 8 + 1 + 4 + 1;
const MIN_TENSOR_ENTRY: u64 = 8 + 4 + 4 + 8;

/// Everything in front of the data of one part.
pub(crate) struct Header {
    pub(crate) version: u32,
    pub(crate) metadata: Metadata,
    pub(crate) tensors: Vec<TensorInfo>,
}

/// Reads and checks the header of one part. Its tensors are marked as of part 0.
pub(crate) fn parse(file: &Path, bytes: &[u8]) -> Result<Header, GgufError> {
    parse_unnamed(file, bytes).map_err(|e| sniff::explain_raw_cut(file, e))
}

fn parse_unnamed(file: &Path, bytes: &[u8]) -> Result<Header, GgufError> {
    if !bytes.starts_with(b"GGUF") {
        let found = sniff::describe(bytes);
        return Err(GgufError::NotGguf { file: file.to_path_buf(), found });
    }
    let mut cursor = Cursor::new(file, bytes);
    cursor.take(4, What::Field("the magic"))?;
    let version = cursor.u32(What::Field("the version"))?;
    let file_buf = || file.to_path_buf();
    match version {
        2 | 3 => {}
        v if v != 0 && v & 0xffff == 0 => {
            return Err(GgufError::BigEndian { file: file_buf(), found: v });
        }
        v => return Err(GgufError::Version { file: file_buf(), found: v }),
    }
    let n_tensors = cursor.u64(What::Field("the number of tensors"))?;
    let n_keys = cursor.u64(What::Field("the number of keys"))?;
    if n_tensors > MAX_TENSORS {
        return Err(cursor.limit(format_args!("the number of tensors"), n_tensors, MAX_TENSORS));
    }
    if n_keys > MAX_KEYS {
        return Err(cursor.limit(format_args!("the number of keys"), n_keys, MAX_KEYS));
    }
    // Both products are small: the counts are bounded above.
    let least = n_keys * MIN_KEY_ENTRY + n_tensors * MIN_TENSOR_ENTRY;
    if least > cursor.remaining() {
        return Err(cursor.truncated(least, What::Field("keys and tensor entries")));
    }
    let metadata = read_metadata(&mut cursor, n_keys)?;
    let alignment = alignment(&metadata)?;
    let tensors = tensors::read_directory(&mut cursor, n_tensors, alignment)?;
    Ok(Header { version, metadata, tensors })
}

fn read_metadata(cursor: &mut Cursor<'_>, n_keys: u64) -> Result<Metadata, GgufError> {
    let mut entries = Vec::with_capacity(n_keys as usize);
    let mut offsets = Vec::with_capacity(n_keys as usize);
    for n in 0..n_keys {
        let offset = cursor.offset();
        let key = read_key(cursor, n)?;
        let value = read_value(cursor, &key)?;
        entries.push((key, value));
        offsets.push(offset);
    }
    Metadata::new(cursor.file, entries).map_err(|(at, entries)| {
        bad_key(cursor, entries[at].0.as_bytes(), offsets[at], "stands twice in the file")
    })
}

fn bad_key(cursor: &Cursor<'_>, key: &[u8], offset: u64, problem: &'static str) -> GgufError {
    GgufError::BadKey { file: cursor.file.to_path_buf(), key: quoted(key), offset, problem }
}

fn read_key(cursor: &mut Cursor<'_>, n: u64) -> Result<String, GgufError> {
    let offset = cursor.offset();
    let len = cursor.u64(What::Key(n))?;
    if len > MAX_KEY_BYTES {
        return Err(cursor.limit(format_args!("the length of key number {n}"), len, MAX_KEY_BYTES));
    }
    let key = cursor.take(len, What::Key(n))?;
    if key.is_empty() {
        return Err(bad_key(cursor, key, offset, "is empty"));
    }
    // Copied first: a mapped file may change between a check and a copy.
    String::from_utf8(key.to_vec())
        .map_err(|e| bad_key(cursor, e.as_bytes(), offset, "is not UTF-8"))
}

fn read_value(cursor: &mut Cursor<'_>, key: &str) -> Result<Value, GgufError> {
    let what = What::Value(key);
    let offset = cursor.offset();
    Ok(match cursor.u32(what)? {
        0 => Value::U8(cursor.u8(what)?),
        1 => Value::I8(cursor.i8(what)?),
        2 => Value::U16(cursor.u16(what)?),
        3 => Value::I16(cursor.i16(what)?),
        4 => Value::U32(cursor.u32(what)?),
        5 => Value::I32(cursor.i32(what)?),
        6 => Value::F32(cursor.f32(what)?),
        7 => Value::Bool(cursor.u8(what)? != 0),
        8 => Value::String(Text::from(cursor.string(what)?.to_vec())),
        9 => Value::Array(read_array(cursor, key)?),
        10 => Value::U64(cursor.u64(what)?),
        11 => Value::I64(cursor.i64(what)?),
        12 => Value::F64(cursor.f64(what)?),
        id => return Err(value_type(cursor, key, offset, id)),
    })
}

fn value_type(cursor: &Cursor<'_>, key: &str, offset: u64, found: u32) -> GgufError {
    GgufError::ValueType {
        file: cursor.file.to_path_buf(),
        key: quoted(key.as_bytes()),
        offset,
        found,
        problem: match found {
            9 => "arrays of arrays are not part of the format",
            _ => "there is no such type (0 to 12 exist); the file is damaged",
        },
    }
}

fn read_array(cursor: &mut Cursor<'_>, key: &str) -> Result<Array, GgufError> {
    let what = What::Value(key);
    let offset = cursor.offset();
    let element = cursor.u32(what)?;
    let count = cursor.u64(what)?;
    if count > MAX_ARRAY_LEN {
        let name = format_args!("the length of array {}", quoted(key.as_bytes()));
        return Err(cursor.limit(name, count, MAX_ARRAY_LEN));
    }
    // `take` bounds count times size by the bytes that remain before anything is reserved.
    macro_rules! numbers {
        ($t:ty) => {
            numbers(cursor.take(count * size_of::<$t>() as u64, what)?, <$t>::from_le_bytes)
        };
    }
    Ok(match element {
        0 => Array::U8(cursor.take(count, what)?.to_vec()),
        1 => Array::I8(numbers!(i8)),
        2 => Array::U16(numbers!(u16)),
        3 => Array::I16(numbers!(i16)),
        4 => Array::U32(numbers!(u32)),
        5 => Array::I32(numbers!(i32)),
        6 => Array::F32(numbers!(f32)),
        7 => Array::Bool(cursor.take(count, what)?.iter().map(|&b| b != 0).collect()),
        8 => Array::Strings(read_strings(cursor, key, count)?),
        10 => Array::U64(numbers!(u64)),
        11 => Array::I64(numbers!(i64)),
        12 => Array::F64(numbers!(f64)),
        id => return Err(value_type(cursor, key, offset, id)),
    })
}

fn numbers<const N: usize, T>(bytes: &[u8], convert: fn([u8; N]) -> T) -> Vec<T> {
    bytes.as_chunks::<N>().0.iter().map(|&chunk| convert(chunk)).collect()
}

/// Walks the strings once to learn their size, then copies them into an exact arena.
fn read_strings(cursor: &mut Cursor<'_>, key: &str, count: u64) -> Result<StringArray, GgufError> {
    let what = What::Value(key);
    let mut ahead = cursor.clone();
    let mut total = 0;
    for _ in 0..count {
        total += ahead.string(what)?.len();
    }
    let mut strings = StringArray::with_capacity(count as usize, total);
    for _ in 0..count {
        strings.push(cursor.string(what)?);
    }
    Ok(strings)
}

/// The alignment that the metadata names: a power of two up to [`MAX_ALIGNMENT`].
fn alignment(metadata: &Metadata) -> Result<u32, GgufError> {
    let wanted = "a u32 that is a power of two and at most 1048576";
    match metadata.get(ALIGNMENT_KEY) {
        None => Ok(DEFAULT_ALIGNMENT),
        Some(&Value::U32(v)) if is_alignment(v) => Ok(v),
        Some(other) => {
            let found = format!("{} {other}", other.type_name());
            Err(metadata.out_of_range(ALIGNMENT_KEY, wanted, found))
        }
    }
}

/// Whether files may have this alignment.
pub(crate) fn is_alignment(v: u32) -> bool {
    v.is_power_of_two() && v <= MAX_ALIGNMENT
}
