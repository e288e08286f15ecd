//! Methods of Python's strings, lists and dicts that templates call.
//!
//! `minijinja-contrib` has most of them; here are those that it lacks, or that take keywords.

use minijinja::value::{Kwargs, Rest, Tuple, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State, Value};

/// The engine's hook for methods that a value does not have by itself.
pub(super) fn method(
    state: &mut State,
    value: &Value,
    name: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let own = match value.kind() {
        ValueKind::String => match value.as_str() {
            Some(text) => string_method(text, name, args)?,
            None => None,
        },
        ValueKind::Map => map_method(value, name, args)?,
        ValueKind::Seq => seq_method(value, name, args)?,
        _ => None,
    };
    match own {
        Some(result) => Ok(result),
        None => minijinja_contrib::pycompat::unknown_method_callback(state, value, name, args),
    }
}

fn string_method(text: &str, name: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    Ok(Some(match name {
        "split" | "rsplit" => {
            let (separator, most) = split_arguments(args)?;
            match separator {
                Some(separator) if name == "split" => split_at(text, &separator, most)?,
                Some(separator) => rsplit_at(text, &separator, most)?,
                None if name == "split" => split_blank(text, most),
                None => rsplit_blank(text, most),
            }
        }
        "partition" | "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            let found =
                if name == "partition" { text.find(separator) } else { text.rfind(separator) };
            let parts = match found {
                Some(at) => [&text[..at], separator, &text[at + separator.len()..]],
                None if name == "partition" => [text, "", ""],
                None => ["", "", text],
            };
            Value::from(Tuple::from(parts.map(Value::from)))
        }
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Value::from(text.strip_prefix(prefix).unwrap_or(text))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Value::from(text.strip_suffix(suffix).unwrap_or(text))
        }
        "index" | "rindex" => {
            let (what,): (&str,) = from_args(args)?;
            let found = if name == "index" { text.find(what) } else { text.rfind(what) };
            let at = found.ok_or_else(|| invalid("substring not found"))?;
            Value::from(text[..at].chars().count())
        }
        "casefold" => Value::from(text.to_lowercase()),
        "swapcase" => {
            let swap = |c: char| -> String {
                if c.is_uppercase() {
                    c.to_lowercase().collect()
                } else {
                    c.to_uppercase().collect()
                }
            };
            Value::from(text.chars().map(swap).collect::<String>())
        }
        "istitle" => {
            Value::from(!text.is_empty() && minijinja::filters::title(text.into()) == text)
        }
        "zfill" | "ljust" | "rjust" | "center" => Value::from(padded(text, name, args)?),
        _ => return Ok(None),
    }))
}

fn invalid(message: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}

/// `sep` and `maxsplit`, by place or by name; a negative `maxsplit` is none.
fn split_arguments(args: &[Value]) -> Result<(Option<String>, usize), Error> {
    let (separator, most, kwargs): (Option<Value>, Option<i64>, Kwargs) = from_args(args)?;
    let separator = match separator {
        Some(value) => Some(value),
        None => kwargs.get::<Option<Value>>("sep")?,
    };
    let most = match most {
        Some(most) => Some(most),
        None => kwargs.get::<Option<i64>>("maxsplit")?,
    };
    kwargs.assert_all_used()?;
    let separator = match separator {
        None => None,
        Some(value) if value.is_none() => None,
        Some(value) => Some(
            value.as_str().ok_or_else(|| invalid("the separator must be a string"))?.to_owned(),
        ),
    };
    Ok((separator, most.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX)))
}

fn list<'t>(parts: impl Iterator<Item = &'t str>) -> Value {
    parts.map(Value::from).collect()
}

fn split_at(text: &str, separator: &str, most: usize) -> Result<Value, Error> {
    if separator.is_empty() {
        return Err(invalid("empty separator"));
    }
    Ok(list(text.splitn(most.saturating_add(1), separator)))
}

fn rsplit_at(text: &str, separator: &str, most: usize) -> Result<Value, Error> {
    if separator.is_empty() {
        return Err(invalid("empty separator"));
    }
    let mut parts: Vec<&str> = text.rsplitn(most.saturating_add(1), separator).collect();
    parts.reverse();
    Ok(list(parts.into_iter()))
}

fn split_blank(text: &str, most: usize) -> Value {
    let mut parts = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let end = if parts.len() == most { None } else { rest.find(char::is_whitespace) };
        let (part, tail) = rest.split_at(end.unwrap_or(rest.len()));
        parts.push(part);
        rest = tail.trim_start();
    }
    list(parts.into_iter())
}

fn rsplit_blank(text: &str, most: usize) -> Value {
    let mut parts = Vec::new();
    let mut rest = text.trim_end();
    while !rest.is_empty() {
        let start = if parts.len() == most { None } else { rest.rfind(char::is_whitespace) };
        let blank = |at: usize| at + rest[at..].chars().next().map_or(0, char::len_utf8);
        let (head, part) = rest.split_at(start.map_or(0, blank));
        parts.push(part);
        rest = head.trim_end();
    }
    parts.reverse();
    list(parts.into_iter())
}

/// Padding is bounded: the engine charges for results only once they are there.
const MAX_WIDTH: usize = 4096;

fn padded(text: &str, name: &str, args: &[Value]) -> Result<String, Error> {
    let (width, fill): (usize, Option<&str>) = from_args(args)?;
    if width > MAX_WIDTH {
        return Err(invalid("the width is too large"));
    }
    let missing = width.saturating_sub(text.chars().count());
    let fill = fill.unwrap_or(if name == "zfill" { "0" } else { " " });
    let pad = |count: usize| {
        fill.chars().next().map_or_else(String::new, |c| c.to_string().repeat(count))
    };
    Ok(match name {
        "ljust" => format!("{text}{}", pad(missing)),
        "center" => format!("{}{text}{}", pad(missing / 2), pad(missing - missing / 2)),
        "zfill" if text.starts_with(['-', '+']) => {
            format!("{}{}{}", &text[..1], pad(missing), &text[1..])
        }
        _ => format!("{}{text}", pad(missing)),
    })
}

/// Jinja2's `indent`, which keeps trailing newlines.
pub(super) fn indent(
    state: &State,
    text: &Value,
    args: Rest<Value>,
    kwargs: Kwargs,
) -> Result<String, Error> {
    let text = text.to_string();
    let argument = |at: usize, name: &str| -> Result<Option<Value>, Error> {
        Ok(kwargs.get::<Option<Value>>(name)?.or_else(|| args.get(at).cloned()))
    };
    let first = argument(1, "first")?.is_some_and(|on| on.is_true());
    let blank = argument(2, "blank")?.is_some_and(|on| on.is_true());
    let by = match argument(0, "width")? {
        None => " ".repeat(4),
        Some(width) if width.kind() == ValueKind::String => width.to_string(),
        Some(width) => " ".repeat(usize::try_from(width)?.min(MAX_WIDTH)),
    };
    kwargs.assert_all_used()?;
    let lines = text.matches('\n').count() + 1;
    state.consume_fuel((lines.saturating_mul(by.len()) / 64) as u64)?;
    let mut out = String::with_capacity(text.len() + by.len());
    if first {
        out.push_str(&by);
    }
    for (at, line) in text.replace("\r\n", "\n").split('\n').enumerate() {
        if at > 0 {
            out.push('\n');
            if blank || !line.is_empty() {
                out.push_str(&by);
            }
        }
        out.push_str(line);
    }
    Ok(out)
}

fn map_method(value: &Value, name: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    match name {
        "copy" => {
            let () = from_args(args)?;
            Ok(Some(value.clone()))
        }
        _ => Ok(None),
    }
}

fn seq_method(value: &Value, name: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    match name {
        "copy" => {
            let () = from_args(args)?;
            Ok(Some(value.clone()))
        }
        "index" => {
            let (what,): (&Value,) = from_args(args)?;
            let at = value.try_iter()?.position(|item| item == *what);
            at.map(|at| Some(Value::from(at))).ok_or_else(|| invalid("value is not in the list"))
        }
        _ => Ok(None),
    }
}
