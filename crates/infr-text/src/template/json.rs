//! `tojson` as transformers defines it: Python's `json.dumps` with `ensure_ascii=False`.
//!
//! Keys keep their order, separators are `", "` and `": "`, nothing is escaped for HTML, and
//! numbers are written as Python writes them.

use std::fmt::Write as _;

use minijinja::value::{Kwargs, Rest, Serde, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

/// Values nested deeper than this are refused, so that none can exhaust the stack. What clients
/// send is shallower: the parser stops at 128.
const MAX_DEPTH: usize = 200;

/// The filter.
pub(super) fn tojson(
    state: &State,
    value: &Value,
    args: Rest<Value>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    // Positionally: ensure_ascii, indent, separators, sort_keys.
    let argument = |at: usize, name: &str| -> Result<Option<Value>, Error> {
        let value = kwargs.get::<Option<Value>>(name)?.or_else(|| args.get(at).cloned());
        Ok(value.filter(|value| !value.is_none() && !value.is_undefined()))
    };
    let ensure_ascii = argument(0, "ensure_ascii")?.is_some_and(|v| v.is_true());
    let indent = match argument(1, "indent")? {
        Some(value) if value.kind() == ValueKind::String => value.as_str().map(str::to_owned),
        Some(value) => Some(" ".repeat(usize::try_from(value)?.min(32))),
        None => None,
    };
    let (between, colon) = match argument(2, "separators")? {
        Some(pair) => {
            (pair.get_item_by_index(0)?.to_string(), pair.get_item_by_index(1)?.to_string())
        }
        None if indent.is_some() => (",".into(), ": ".into()),
        None => (", ".into(), ": ".into()),
    };
    let sort_keys = argument(3, "sort_keys")?.is_some_and(|v| v.is_true());
    kwargs.assert_all_used()?;
    let style = Style { ensure_ascii, indent, between, colon, sort_keys };
    let mut writer = Writer { state, style, out: String::new(), charged: 0 };
    writer.value(value, 0)?;
    Ok(Value::from(writer.out))
}

/// The filter `from_json`, which some templates use to take arguments apart.
pub(super) fn from_json(value: &Value) -> Result<Value, Error> {
    let Some(text) = value.as_str() else { return Ok(value.clone()) };
    let parsed: serde_json::Value = serde_json::from_str(text).map_err(|error| {
        Error::new(ErrorKind::InvalidOperation, "from_json: the text is not JSON")
            .with_source(error)
    })?;
    Ok(Value::from(Serde(parsed)))
}

struct Style {
    ensure_ascii: bool,
    indent: Option<String>,
    between: String,
    colon: String,
    sort_keys: bool,
}

struct Writer<'s, 'a, 'e> {
    state: &'s State<'a, 'e>,
    style: Style,
    out: String,
    charged: usize,
}

impl Writer<'_, '_, '_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            let message = "tojson: the value is nested too deeply";
            return Err(Error::new(ErrorKind::BadSerialization, message));
        }
        self.state.consume_fuel(1 + (self.out.len() - self.charged) as u64 / 64)?;
        self.charged = self.out.len();
        match value.kind() {
            ValueKind::Undefined | ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.out.push_str(&python_number(value)),
            ValueKind::Seq | ValueKind::Iterable => {
                let items = value.try_iter()?.map(|item| (None, item)).collect();
                self.container(['[', ']'], items, depth)?;
            }
            ValueKind::Map => {
                let mut items = Vec::new();
                for key in value.try_iter()? {
                    let item = value.get_item(&key)?;
                    items.push((Some(key), item));
                }
                if self.style.sort_keys {
                    items.sort_by(|a, b| a.0.cmp(&b.0));
                }
                self.container(['{', '}'], items, depth)?;
            }
            _ => match value.as_str() {
                Some(text) => self.string(text),
                None => self.string(&value.to_string()),
            },
        }
        Ok(())
    }

    fn container(
        &mut self,
        [open, close]: [char; 2],
        items: Vec<(Option<Value>, Value)>,
        depth: usize,
    ) -> Result<(), Error> {
        self.out.push(open);
        let any = !items.is_empty();
        for (at, (key, item)) in items.into_iter().enumerate() {
            if at > 0 {
                self.out.push_str(&self.style.between);
            }
            self.new_line(depth + 1);
            if let Some(key) = key {
                self.key(&key);
                self.out.push_str(&self.style.colon);
            }
            self.value(&item, depth + 1)?;
        }
        if any {
            self.new_line(depth);
        }
        self.out.push(close);
        Ok(())
    }

    fn new_line(&mut self, depth: usize) {
        if let Some(indent) = &self.style.indent {
            self.out.push('\n');
            for _ in 0..depth {
                self.out.push_str(indent);
            }
        }
    }

    fn key(&mut self, key: &Value) {
        match key.kind() {
            ValueKind::Bool => self.string(if key.is_true() { "true" } else { "false" }),
            ValueKind::None => self.string("null"),
            _ => match key.as_str() {
                Some(text) => self.string(text),
                None => self.string(&key.to_string()),
            },
        }
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                c if c < ' '
                    || (self.style.ensure_ascii && !c.is_ascii())
                    || c == '\u{7f}' && self.style.ensure_ascii =>
                {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        // Writing to a string cannot fail.
                        let _ = write!(self.out, "\\u{unit:04x}");
                    }
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }
}

/// A number as Python's `repr` writes it.
pub(super) fn python_number(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    match f64::try_from(value.clone()) {
        Ok(number) => python_float(number),
        Err(_) => value.to_string(),
    }
}

/// The shortest digits that read back as the same number; an exponent from 1e16 on and below
/// 1e-4.
fn python_float(number: f64) -> String {
    if number.is_nan() {
        return "NaN".into();
    }
    if number.is_infinite() {
        return if number > 0.0 { "Infinity".into() } else { "-Infinity".into() };
    }
    let size = number.abs();
    if size != 0.0 && !(1e-4..1e16).contains(&size) {
        let text = format!("{number:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = match exponent.strip_prefix('-') {
            Some(exponent) => ('-', exponent),
            None => ('+', exponent),
        };
        return format!("{digits}e{sign}{exponent:0>2}");
    }
    let text = number.to_string();
    if text.contains('.') { text } else { format!("{text}.0") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_written_as_python_writes_them() {
        let cases = [
            (1.0, "1.0"),
            (0.1, "0.1"),
            (-0.0, "-0.0"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (-2.5e-7, "-2.5e-07"),
            (f64::INFINITY, "Infinity"),
        ];
        for (number, text) in cases {
            assert_eq!(python_float(number), text);
        }
    }
}
