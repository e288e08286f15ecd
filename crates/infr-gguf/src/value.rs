//! Values of the key-value section.

use std::fmt;
use std::str::Utf8Error;

use crate::error::quoted;

/// One metadata value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Unsigned byte.
    U8(u8),
    /// Signed byte.
    I8(i8),
    /// Unsigned 16-bit integer.
    U16(u16),
    /// Signed 16-bit integer.
    I16(i16),
    /// Unsigned 32-bit integer.
    U32(u32),
    /// Signed 32-bit integer.
    I32(i32),
    /// Single-precision float.
    F32(f32),
    /// Truth value; any non-zero byte reads as true.
    Bool(bool),
    /// String.
    String(Text),
    /// Array of one element type.
    Array(Array),
    /// Unsigned 64-bit integer.
    U64(u64),
    /// Signed 64-bit integer.
    I64(i64),
    /// Double-precision float.
    F64(f64),
}

/// A string of the file: UTF-8 by convention, any bytes in fact.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Text(Vec<u8>);

impl Text {
    /// The bytes as they stand in the file.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The text, when it is UTF-8.
    pub fn as_str(&self) -> Result<&str, Utf8Error> {
        std::str::from_utf8(&self.0)
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&quoted(&self.0))
    }
}

impl From<Vec<u8>> for Text {
    fn from(bytes: Vec<u8>) -> Text {
        Text(bytes)
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Text {
        Text(text.as_bytes().to_vec())
    }
}

/// An array, stored compactly by element type.
#[derive(Debug, Clone, PartialEq)]
pub enum Array {
    /// Unsigned bytes.
    U8(Vec<u8>),
    /// Signed bytes.
    I8(Vec<i8>),
    /// Unsigned 16-bit integers.
    U16(Vec<u16>),
    /// Signed 16-bit integers.
    I16(Vec<i16>),
    /// Unsigned 32-bit integers.
    U32(Vec<u32>),
    /// Signed 32-bit integers.
    I32(Vec<i32>),
    /// Single-precision floats.
    F32(Vec<f32>),
    /// Truth values.
    Bool(Vec<bool>),
    /// Strings.
    Strings(StringArray),
    /// Unsigned 64-bit integers.
    U64(Vec<u64>),
    /// Signed 64-bit integers.
    I64(Vec<i64>),
    /// Double-precision floats.
    F64(Vec<f64>),
}

impl Array {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Array::U8(v) => v.len(),
            Array::I8(v) => v.len(),
            Array::U16(v) => v.len(),
            Array::I16(v) => v.len(),
            Array::U32(v) => v.len(),
            Array::I32(v) => v.len(),
            Array::F32(v) => v.len(),
            Array::Bool(v) => v.len(),
            Array::Strings(v) => v.len(),
            Array::U64(v) => v.len(),
            Array::I64(v) => v.len(),
            Array::F64(v) => v.len(),
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Name of the element type, as in "array of u32".
    pub fn type_name(&self) -> &'static str {
        match self {
            Array::U8(_) => "array of u8",
            Array::I8(_) => "array of i8",
            Array::U16(_) => "array of u16",
            Array::I16(_) => "array of i16",
            Array::U32(_) => "array of u32",
            Array::I32(_) => "array of i32",
            Array::F32(_) => "array of f32",
            Array::Bool(_) => "array of bool",
            Array::Strings(_) => "array of strings",
            Array::U64(_) => "array of u64",
            Array::I64(_) => "array of i64",
            Array::F64(_) => "array of f64",
        }
    }
}

/// Strings in one arena: a vocabulary costs two allocations, not one a token.
///
/// The arena stays below 4 GiB, because the reader bounds the whole metadata to 1 GiB.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct StringArray {
    arena: Vec<u8>,
    /// End of each string in the arena.
    ends: Vec<u32>,
}

/// The array of no strings.
pub(crate) static NO_STRINGS: StringArray = StringArray { arena: Vec::new(), ends: Vec::new() };

impl StringArray {
    /// An empty array.
    pub fn new() -> StringArray {
        StringArray::default()
    }

    /// An empty array with room for `count` strings of `bytes` bytes in all.
    pub(crate) fn with_capacity(count: usize, bytes: usize) -> StringArray {
        StringArray { arena: Vec::with_capacity(bytes), ends: Vec::with_capacity(count) }
    }

    /// Appends one string.
    ///
    /// # Panics
    /// When the strings together exceed 4 GiB, which no readable file can hold.
    pub fn push(&mut self, bytes: &[u8]) {
        self.arena.extend_from_slice(bytes);
        let end = u32::try_from(self.arena.len()).expect("a string array stays below 4 GiB");
        self.ends.push(end);
    }

    /// Number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no strings.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The bytes of string `idx`.
    pub fn get(&self, idx: usize) -> Option<&[u8]> {
        let end = *self.ends.get(idx)? as usize;
        let start = if idx == 0 { 0 } else { self.ends[idx - 1] as usize };
        self.arena.get(start..end)
    }

    /// String `idx`, when it is there and is UTF-8.
    pub fn get_str(&self, idx: usize) -> Option<&str> {
        std::str::from_utf8(self.get(idx)?).ok()
    }

    /// The bytes of every string, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> + Clone + '_ {
        let mut start = 0;
        self.ends.iter().map(move |&end| {
            let range = start..end as usize;
            start = end as usize;
            &self.arena[range]
        })
    }
}

impl fmt::Debug for StringArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StringArray({} strings, {} bytes)", self.len(), self.arena.len())
    }
}

impl<T: AsRef<[u8]>> FromIterator<T> for StringArray {
    fn from_iter<I: IntoIterator<Item = T>>(iter: I) -> StringArray {
        let mut array = StringArray::new();
        iter.into_iter().for_each(|s| array.push(s.as_ref()));
        array
    }
}

impl Value {
    /// Name of the type, as in "u32" or "array of strings".
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::U8(_) => "u8",
            Value::I8(_) => "i8",
            Value::U16(_) => "u16",
            Value::I16(_) => "i16",
            Value::U32(_) => "u32",
            Value::I32(_) => "i32",
            Value::F32(_) => "f32",
            Value::Bool(_) => "bool",
            Value::String(_) => "string",
            Value::Array(a) => a.type_name(),
            Value::U64(_) => "u64",
            Value::I64(_) => "i64",
            Value::F64(_) => "f64",
        }
    }

    /// The value when it is an integer of any width.
    pub fn as_int(&self) -> Option<i128> {
        match *self {
            Value::U8(v) => Some(v.into()),
            Value::I8(v) => Some(v.into()),
            Value::U16(v) => Some(v.into()),
            Value::I16(v) => Some(v.into()),
            Value::U32(v) => Some(v.into()),
            Value::I32(v) => Some(v.into()),
            Value::U64(v) => Some(v.into()),
            Value::I64(v) => Some(v.into()),
            Value::F32(_) | Value::F64(_) | Value::Bool(_) | Value::String(_) | Value::Array(_) => {
                None
            }
        }
    }

    /// The value when it is a float or an integer.
    pub fn as_float(&self) -> Option<f64> {
        match *self {
            Value::F32(v) => Some(v.into()),
            Value::F64(v) => Some(v),
            _ => self.as_int().map(|v| v as f64),
        }
    }
}

/// Shows scalars whole, strings escaped and shortened, arrays by type and length.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::U8(v) => v.fmt(f),
            Value::I8(v) => v.fmt(f),
            Value::U16(v) => v.fmt(f),
            Value::I16(v) => v.fmt(f),
            Value::U32(v) => v.fmt(f),
            Value::I32(v) => v.fmt(f),
            Value::F32(v) => v.fmt(f),
            Value::Bool(v) => v.fmt(f),
            Value::String(v) => f.write_str(&quoted(v.as_bytes())),
            Value::Array(a) => write!(f, "{} [{}]", a.type_name(), a.len()),
            Value::U64(v) => v.fmt(f),
            Value::I64(v) => v.fmt(f),
            Value::F64(v) => v.fmt(f),
        }
    }
}

macro_rules! value_from {
    ($($rust:ty => $variant:ident),* $(,)?) => {$(
        impl From<$rust> for Value {
            fn from(v: $rust) -> Value {
                Value::$variant(v.into())
            }
        }
        impl From<Vec<$rust>> for Value {
            fn from(v: Vec<$rust>) -> Value {
                Value::Array(v.into())
            }
        }
    )*};
}

macro_rules! array_from {
    ($($rust:ty => $variant:ident),* $(,)?) => {$(
        impl From<Vec<$rust>> for Array {
            fn from(v: Vec<$rust>) -> Array {
                Array::$variant(v)
            }
        }
    )*};
}

array_from! {
    u8 => U8, i8 => I8, u16 => U16, i16 => I16, u32 => U32, i32 => I32, f32 => F32, bool => Bool,
    u64 => U64, i64 => I64, f64 => F64,
}

value_from! {
    u8 => U8, i8 => I8, u16 => U16, i16 => I16, u32 => U32, i32 => I32, f32 => F32, bool => Bool,
    u64 => U64, i64 => I64, f64 => F64,
}

impl From<&str> for Value {
    fn from(v: &str) -> Value {
        Value::String(v.into())
    }
}

impl From<String> for Value {
    fn from(v: String) -> Value {
        Value::String(v.into_bytes().into())
    }
}

impl From<StringArray> for Value {
    fn from(v: StringArray) -> Value {
        Value::Array(Array::Strings(v))
    }
}

impl From<Vec<String>> for Value {
    fn from(v: Vec<String>) -> Value {
        v.iter().collect::<StringArray>().into()
    }
}

impl From<Vec<&str>> for Value {
    fn from(v: Vec<&str>) -> Value {
        v.iter().collect::<StringArray>().into()
    }
}
