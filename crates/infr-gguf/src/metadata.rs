//! The key-value section, in file order, with accessors that name the file in their errors.
//!
//! Converters disagree on integer widths, so the accessors are lenient: an integer of any type
//! that fits is accepted, and a float key accepts a double or an integer. A key that is absent is
//! `None`; a key with another kind of value is an error, never `None`.

use std::path::{Path, PathBuf};

use crate::error::GgufError;
use crate::value::{Array, NO_STRINGS, StringArray, Text, Value};

/// The keys and values of one model.
#[derive(Debug, Clone)]
pub struct Metadata {
    file: PathBuf,
    entries: Vec<(String, Value)>,
    /// Entry numbers in the order of their keys, for look-ups.
    sorted: Vec<u32>,
}

impl Metadata {
    /// Metadata of `file` from entries in file order. When a key stands twice, gives the entries
    /// back with the number of its second entry.
    pub(crate) fn new(
        file: &Path,
        entries: Vec<(String, Value)>,
    ) -> Result<Metadata, (usize, Vec<(String, Value)>)> {
        let key = |i: u32| &entries[i as usize].0;
        // The reader bounds the number of keys to 65,536.
        let mut sorted: Vec<u32> = (0..entries.len() as u32).collect();
        sorted.sort_by(|&a, &b| key(a).cmp(key(b)));
        let twice = sorted.windows(2).find(|w| key(w[0]) == key(w[1])).map(|w| w[1] as usize);
        match twice {
            Some(at) => Err((at, entries)),
            None => Ok(Metadata { file: file.to_path_buf(), entries, sorted }),
        }
    }

    /// The file that errors name.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        let at = self.sorted.binary_search_by(|&i| self.entries[i as usize].0.as_str().cmp(key));
        at.ok().map(|at| &self.entries[self.sorted[at] as usize].1)
    }

    /// All keys and values, in file order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> + '_ {
        self.entries.iter().map(|(k, v)| (k.as_str(), v))
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The model's architecture, such as `llama`.
    pub fn architecture(&self) -> Result<&str, GgufError> {
        self.require_str("general.architecture")
    }

    /// An unsigned 32-bit integer; any integer type that fits is accepted.
    pub fn u32(&self, key: &str) -> Result<Option<u32>, GgufError> {
        self.int(key, "an unsigned 32-bit integer")
    }

    /// A signed 32-bit integer; any integer type that fits is accepted.
    pub fn i32(&self, key: &str) -> Result<Option<i32>, GgufError> {
        self.int(key, "a signed 32-bit integer")
    }

    /// An unsigned 64-bit integer; any integer type that fits is accepted.
    pub fn u64(&self, key: &str) -> Result<Option<u64>, GgufError> {
        self.int(key, "an unsigned 64-bit integer")
    }

    /// A finite float; doubles and integers are accepted and rounded.
    pub fn f32(&self, key: &str) -> Result<Option<f32>, GgufError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let wanted = "a float";
        let v = value.as_float().ok_or_else(|| self.wrong_type(key, wanted, value))? as f32;
        if !v.is_finite() {
            return Err(self.out_of_range(key, "a finite float", value.to_string()));
        }
        Ok(Some(v))
    }

    /// A truth value. Integers are not accepted.
    pub fn bool(&self, key: &str) -> Result<Option<bool>, GgufError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Bool(v)) => Ok(Some(*v)),
            Some(other) => Err(self.wrong_type(key, "a bool", other)),
        }
    }

    /// A string as bytes, which need not be UTF-8.
    pub fn text(&self, key: &str) -> Result<Option<&Text>, GgufError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(v)) => Ok(Some(v)),
            Some(other) => Err(self.wrong_type(key, "a string", other)),
        }
    }

    /// A string; an error when it is not UTF-8.
    pub fn str(&self, key: &str) -> Result<Option<&str>, GgufError> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        let found = |_| self.out_of_range(key, "UTF-8 text", format!("{text:?}"));
        text.as_str().map(Some).map_err(found)
    }

    /// Like [`Metadata::u32`], for a key that has to be there.
    pub fn require_u32(&self, key: &str) -> Result<u32, GgufError> {
        self.u32(key)?.ok_or_else(|| self.missing(key))
    }

    /// Like [`Metadata::u64`], for a key that has to be there.
    pub fn require_u64(&self, key: &str) -> Result<u64, GgufError> {
        self.u64(key)?.ok_or_else(|| self.missing(key))
    }

    /// Like [`Metadata::f32`], for a key that has to be there.
    pub fn require_f32(&self, key: &str) -> Result<f32, GgufError> {
        self.f32(key)?.ok_or_else(|| self.missing(key))
    }

    /// Like [`Metadata::bool`], for a key that has to be there.
    pub fn require_bool(&self, key: &str) -> Result<bool, GgufError> {
        self.bool(key)?.ok_or_else(|| self.missing(key))
    }

    /// Like [`Metadata::str`], for a key that has to be there.
    pub fn require_str(&self, key: &str) -> Result<&str, GgufError> {
        self.str(key)?.ok_or_else(|| self.missing(key))
    }

    /// Like [`Metadata::strings`], for a key that has to be there.
    pub fn require_strings(&self, key: &str) -> Result<&StringArray, GgufError> {
        self.strings(key)?.ok_or_else(|| self.missing(key))
    }

    /// Any array. A scalar is an error.
    pub fn array(&self, key: &str) -> Result<Option<&Array>, GgufError> {
        self.array_of(key, "an array")
    }

    /// An array of strings.
    pub fn strings(&self, key: &str) -> Result<Option<&StringArray>, GgufError> {
        match self.array_of(key, "an array of strings")? {
            None => Ok(None),
            Some(Array::Strings(v)) => Ok(Some(v)),
            // An empty array's element type says nothing; some writers give it any.
            Some(other) if other.is_empty() => Ok(Some(&NO_STRINGS)),
            Some(other) => Err(self.wrong_array(key, "an array of strings", other)),
        }
    }

    /// An array of floats; doubles are rounded, integers converted. Elements may be infinite.
    pub fn f32s(&self, key: &str) -> Result<Option<Vec<f32>>, GgufError> {
        let wanted = "an array of floats";
        let Some(array) = self.array_of(key, wanted)? else { return Ok(None) };
        match array {
            Array::F32(v) => Ok(Some(v.clone())),
            Array::F64(v) => Ok(Some(v.iter().map(|&x| x as f32).collect())),
            other => match array_ints(other) {
                Some(ints) => Ok(Some(ints.map(|x| x as f32).collect())),
                None => Err(self.wrong_array(key, wanted, other)),
            },
        }
    }

    /// An array of signed 32-bit integers; any integer element type is accepted when all fit.
    pub fn i32s(&self, key: &str) -> Result<Option<Vec<i32>>, GgufError> {
        self.ints(key, "an array of signed 32-bit integers")
    }

    /// An array of unsigned 32-bit integers; any integer element type is accepted when all fit.
    pub fn u32s(&self, key: &str) -> Result<Option<Vec<u32>>, GgufError> {
        self.ints(key, "an array of unsigned 32-bit integers")
    }

    /// An array of truth values; integers count as true when they are not zero.
    pub fn bools(&self, key: &str) -> Result<Option<Vec<bool>>, GgufError> {
        let wanted = "an array of bools";
        let Some(array) = self.array_of(key, wanted)? else { return Ok(None) };
        match array {
            Array::Bool(v) => Ok(Some(v.clone())),
            other => match array_ints(other) {
                Some(ints) => Ok(Some(ints.map(|x| x != 0).collect())),
                None => Err(self.wrong_array(key, wanted, other)),
            },
        }
    }

    /// The error for a key that has to be there and is not.
    pub fn missing(&self, key: &str) -> GgufError {
        GgufError::MissingKey { file: self.file.clone(), key: key.to_owned() }
    }

    /// The error for a key whose value lies outside the range wanted, for checks made by callers.
    pub fn out_of_range(&self, key: &str, wanted: &'static str, found: String) -> GgufError {
        GgufError::OutOfRange { file: self.file.clone(), key: key.to_owned(), wanted, found }
    }

    fn wrong_type(&self, key: &str, wanted: &'static str, found: &Value) -> GgufError {
        if let Value::Array(array) = found {
            return self.wrong_array(key, wanted, array);
        }
        let found = format!("{} {found}", found.type_name());
        GgufError::WrongType { file: self.file.clone(), key: key.to_owned(), wanted, found }
    }

    fn wrong_array(&self, key: &str, wanted: &'static str, found: &Array) -> GgufError {
        let found = format!("{} [{}]", found.type_name(), found.len());
        GgufError::WrongType { file: self.file.clone(), key: key.to_owned(), wanted, found }
    }

    fn int<T: TryFrom<i128>>(
        &self,
        key: &str,
        wanted: &'static str,
    ) -> Result<Option<T>, GgufError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let v = value.as_int().ok_or_else(|| self.wrong_type(key, wanted, value))?;
        T::try_from(v).map(Some).map_err(|_| self.out_of_range(key, wanted, v.to_string()))
    }

    fn ints<T: TryFrom<i128>>(
        &self,
        key: &str,
        wanted: &'static str,
    ) -> Result<Option<Vec<T>>, GgufError> {
        let Some(array) = self.array_of(key, wanted)? else { return Ok(None) };
        let ints = array_ints(array).ok_or_else(|| self.wrong_array(key, wanted, array))?;
        let narrow = |v: i128| {
            T::try_from(v).map_err(|_| self.out_of_range(key, wanted, format!("an array with {v}")))
        };
        ints.map(narrow).collect::<Result<Vec<T>, _>>().map(Some)
    }

    fn array_of(&self, key: &str, wanted: &'static str) -> Result<Option<&Array>, GgufError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Array(a)) => Ok(Some(a)),
            Some(other) => Err(self.wrong_type(key, wanted, other)),
        }
    }
}

/// The elements of an array of integers; nothing when it holds something else.
fn array_ints(array: &Array) -> Option<Box<dyn Iterator<Item = i128> + '_>> {
    fn wide<T: Copy + Into<i128>>(v: &[T]) -> Option<Box<dyn Iterator<Item = i128> + '_>> {
        Some(Box::new(v.iter().map(|&x| x.into())))
    }
    match array {
        Array::U8(v) => wide(v),
        Array::I8(v) => wide(v),
        Array::U16(v) => wide(v),
        Array::I16(v) => wide(v),
        Array::U32(v) => wide(v),
        Array::I32(v) => wide(v),
        Array::U64(v) => wide(v),
        Array::I64(v) => wide(v),
        Array::F32(_) | Array::F64(_) | Array::Bool(_) | Array::Strings(_) => None,
    }
}
