//! Lists and dicts that templates can change in place.
//!
//! A changed container takes copies of containers put into it, so that none ever holds itself.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use minijinja::value::{Enumerator, Object, ObjectRepr, Rest, Tuple, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State, Value};

/// Copies deeper than this are refused.
const MAX_DEPTH: usize = 64;

/// A list with Python's changing methods.
#[derive(Debug, Default)]
pub(super) struct MutableList {
    items: Mutex<Vec<Value>>,
}

/// A dict with Python's changing methods; insertion order is kept.
#[derive(Debug, Default)]
pub(super) struct MutableDict {
    entries: Mutex<Vec<(Value, Value)>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `[…]` as a list that can change.
pub(super) fn new_list(literal: &Value) -> Result<Value, Error> {
    let items = literal.try_iter()?.collect();
    Ok(Value::from_object(MutableList { items: Mutex::new(items) }))
}

/// `{…}` as a dict that can change.
pub(super) fn new_dict(literal: &Value) -> Result<Value, Error> {
    Ok(Value::from_object(MutableDict { entries: Mutex::new(pairs(literal)?) }))
}

fn pairs(dict: &Value) -> Result<Vec<(Value, Value)>, Error> {
    dict.try_iter()?.map(|key| Ok((key.clone(), dict.get_item(&key)?))).collect()
}

/// The value with every container in it copied.
fn copied(state: &State, value: &Value, depth: usize) -> Result<Value, Error> {
    if depth > MAX_DEPTH {
        return Err(Error::new(ErrorKind::InvalidOperation, "value is nested too deeply"));
    }
    state.consume_fuel(1)?;
    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => {
            let items: Result<Vec<Value>, Error> =
                value.try_iter()?.map(|item| copied(state, &item, depth + 1)).collect();
            Ok(Value::from(items?))
        }
        ValueKind::Map => {
            let entries: Result<Vec<(Value, Value)>, Error> = pairs(value)?
                .into_iter()
                .map(|(key, item)| Ok((key, copied(state, &item, depth + 1)?)))
                .collect();
            Ok(Value::from_pairs(entries?))
        }
        _ => Ok(value.clone()),
    }
}

/// Passes on what a namespace is about to hold, if it is shallow and holds no namespace.
pub(super) fn kept(state: &State, values: Rest<Value>) -> Result<Value, Error> {
    let value = match values.0.as_slice() {
        [value] => value.clone(),
        values => Value::from(Tuple::from(values)),
    };
    check(state, &value, 0)?;
    Ok(value)
}

fn check(state: &State, value: &Value, depth: usize) -> Result<(), Error> {
    let Some(object) = value.as_object() else { return Ok(()) };
    if depth > MAX_DEPTH {
        return Err(Error::new(ErrorKind::InvalidOperation, "value is nested too deeply"));
    }
    if object.type_name().ends_with("::Namespace") {
        let message = "a namespace cannot hold a namespace";
        return Err(Error::new(ErrorKind::InvalidOperation, message));
    }
    state.consume_fuel(1)?;
    match object.repr() {
        ObjectRepr::Seq => value.try_iter()?.try_for_each(|item| check(state, &item, depth + 1)),
        ObjectRepr::Map => {
            pairs(value)?.into_iter().try_for_each(|(_, item)| check(state, &item, depth + 1))
        }
        // Ranges, loops and functions hold no values of the template's making.
        _ => Ok(()),
    }
}

fn index_error() -> Error {
    Error::new(ErrorKind::InvalidOperation, "pop from an empty list or index out of range")
}

fn index_of(index: i64, len: usize) -> Option<usize> {
    let index = if index < 0 { index.checked_add(i64::try_from(len).ok()?)? } else { index };
    usize::try_from(index).ok()
}

impl Object for MutableList {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        lock(&self.items).get(key.as_usize()?).cloned()
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(lock(&self.items).clone())
    }

    fn call_method(
        self: &Arc<Self>,
        state: &mut State<'_, '_>,
        method: &str,
        args: &[Value],
    ) -> Result<Value, Error> {
        let none = Ok(Value::from(()));
        match method {
            "append" => {
                let (item,): (&Value,) = from_args(args)?;
                let item = copied(state, item, 0)?;
                lock(&self.items).push(item);
                none
            }
            "extend" => {
                let (more,): (&Value,) = from_args(args)?;
                let more = copied(state, more, 0)?;
                lock(&self.items).extend(more.try_iter()?);
                none
            }
            "insert" => {
                let (index, item): (i64, &Value) = from_args(args)?;
                let item = copied(state, item, 0)?;
                let mut items = lock(&self.items);
                let at = index_of(index, items.len()).unwrap_or(0).min(items.len());
                state.consume_fuel(items.len() as u64 / 8)?;
                items.insert(at, item);
                none
            }
            "pop" => {
                let (index,): (Option<i64>,) = from_args(args)?;
                let mut items = lock(&self.items);
                let at = index_of(index.unwrap_or(-1), items.len()).ok_or_else(index_error)?;
                if at >= items.len() {
                    return Err(index_error());
                }
                state.consume_fuel((items.len() - at) as u64 / 8)?;
                Ok(items.remove(at))
            }
            "clear" => {
                lock(&self.items).clear();
                none
            }
            "reverse" => {
                lock(&self.items).reverse();
                none
            }
            "sort" => {
                let mut items = lock(&self.items);
                state.consume_fuel(items.len() as u64 * 16)?;
                items.sort();
                none
            }
            _ => Err(Error::from(ErrorKind::UnknownMethod)),
        }
    }
}

impl MutableDict {
    fn set(&self, key: Value, value: Value) {
        let mut entries = lock(&self.entries);
        match entries.iter_mut().find(|(known, _)| *known == key) {
            Some(entry) => entry.1 = value,
            None => entries.push((key, value)),
        }
    }

    fn find(&self, key: &Value) -> Option<Value> {
        lock(&self.entries).iter().find(|(known, _)| known == key).map(|(_, value)| value.clone())
    }
}

impl Object for MutableDict {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.find(key)
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(lock(&self.entries).iter().map(|(key, _)| key.clone()).collect())
    }

    fn call_method(
        self: &Arc<Self>,
        state: &mut State<'_, '_>,
        method: &str,
        args: &[Value],
    ) -> Result<Value, Error> {
        // Every lookup walks the entries.
        state.consume_fuel(1 + lock(&self.entries).len() as u64 / 4)?;
        match method {
            "update" => {
                let (more,): (&Value,) = from_args(args)?;
                for (key, value) in pairs(&copied(state, more, 0)?)? {
                    state.consume_fuel(1 + lock(&self.entries).len() as u64 / 4)?;
                    self.set(key, value);
                }
                Ok(Value::from(()))
            }
            "setdefault" => {
                let (key, default): (Value, Option<&Value>) = from_args(args)?;
                if let Some(value) = self.find(&key) {
                    return Ok(value);
                }
                let default = match default {
                    Some(value) => copied(state, value, 0)?,
                    None => Value::from(()),
                };
                self.set(key, default.clone());
                Ok(default)
            }
            "pop" => {
                let (key, default): (&Value, Option<Value>) = from_args(args)?;
                let mut entries = lock(&self.entries);
                match entries.iter().position(|(known, _)| known == key) {
                    Some(at) => Ok(entries.remove(at).1),
                    None => default.ok_or_else(|| {
                        Error::new(ErrorKind::InvalidOperation, format!("no key {key}"))
                    }),
                }
            }
            "clear" => {
                lock(&self.entries).clear();
                Ok(Value::from(()))
            }
            _ => Err(Error::from(ErrorKind::UnknownMethod)),
        }
    }
}
