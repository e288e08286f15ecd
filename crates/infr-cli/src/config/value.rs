//! The grammar of setting values: one text form for file, environment and flags.

/// What values a setting takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    /// `true/false/1/0/yes/no/on/off`.
    Switch,
    /// A whole number with an optional `k`, `m` or `g` (times 1024).
    Count {
        /// Smallest value.
        min: u64,
        /// Largest value.
        max: u64,
    },
    /// A number.
    Number {
        /// Smallest value.
        min: f64,
        /// Largest value.
        max: f64,
    },
    /// One of a few words.
    Word(&'static [&'static str]),
    /// Any text.
    Text,
}

/// A parsed value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    /// Of a switch.
    Switch(bool),
    /// Of a count.
    Count(u64),
    /// Of a number.
    Number(f64),
    /// Of a word or text.
    Text(String),
    /// The setting is cleared (`none` or empty).
    Cleared,
}

impl Value {
    /// The count, `None` when cleared.
    pub(crate) fn count(&self) -> Option<u64> {
        match self {
            Value::Count(n) => Some(*n),
            Value::Switch(_) | Value::Number(_) | Value::Text(_) | Value::Cleared => None,
        }
    }

    /// The number, `None` when cleared.
    pub(crate) fn number(&self) -> Option<f32> {
        match self {
            Value::Number(x) => Some(*x as f32),
            Value::Switch(_) | Value::Count(_) | Value::Text(_) | Value::Cleared => None,
        }
    }

    /// The switch, `None` when cleared.
    pub(crate) fn switch(&self) -> Option<bool> {
        match self {
            Value::Switch(on) => Some(*on),
            Value::Number(_) | Value::Count(_) | Value::Text(_) | Value::Cleared => None,
        }
    }

    /// The text, `None` when cleared.
    pub(crate) fn text(&self) -> Option<String> {
        match self {
            Value::Text(text) => Some(text.clone()),
            Value::Switch(_) | Value::Number(_) | Value::Count(_) | Value::Cleared => None,
        }
    }
}

/// Parses `text` as a value of `kind`; the error says what is wanted.
pub(crate) fn parse(kind: Kind, text: &str) -> Result<Value, String> {
    let text = text.trim();
    if text.is_empty() || text.eq_ignore_ascii_case("none") {
        return Ok(Value::Cleared);
    }
    match kind {
        Kind::Switch => match text.to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" | "on" => Ok(Value::Switch(true)),
            "false" | "0" | "no" | "off" => Ok(Value::Switch(false)),
            _ => Err(format!("wants true or false, found '{text}'")),
        },
        Kind::Count { min, max } => {
            let count = parse_count(text).ok_or_else(|| {
                format!("wants a whole number such as {min} or 32k, found '{text}'")
            })?;
            in_range(count, min, max)?;
            Ok(Value::Count(count))
        }
        Kind::Number { min, max } => {
            let number: f64 =
                text.parse().map_err(|_| format!("wants a number, found '{text}'"))?;
            if !number.is_finite() {
                return Err(format!("wants a finite number, found '{text}'"));
            }
            in_range(number, min, max)?;
            Ok(Value::Number(number))
        }
        Kind::Word(words) => match words.iter().find(|w| w.eq_ignore_ascii_case(text)) {
            Some(word) => Ok(Value::Text((*word).to_string())),
            None => Err(format!("wants one of {}, found '{text}'", words.join(", "))),
        },
        Kind::Text => Ok(Value::Text(text.to_string())),
    }
}

fn in_range<T: PartialOrd + std::fmt::Display>(value: T, min: T, max: T) -> Result<(), String> {
    if value < min || value > max {
        return Err(format!("wants {min} to {max}, found {value}"));
    }
    Ok(())
}

fn parse_count(text: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    let lower = lower.trim_end_matches("ib");
    let (digits, factor) = match lower.strip_suffix(['k', 'm', 'g']) {
        Some(digits) => {
            let factor = match lower.as_bytes()[lower.len() - 1] {
                b'k' => 1 << 10,
                b'm' => 1 << 20,
                _ => 1 << 30,
            };
            (digits, factor)
        }
        None => (lower, 1),
    };
    digits.trim().parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_units() {
        let kind = Kind::Count { min: 1, max: u64::MAX };
        assert_eq!(parse(kind, "32k"), Ok(Value::Count(32768)));
        assert_eq!(parse(kind, "2GiB"), Ok(Value::Count(2 << 30)));
        assert_eq!(parse(kind, "512"), Ok(Value::Count(512)));
        assert!(parse(kind, "0").is_err());
        assert!(parse(kind, "lots").unwrap_err().contains("'lots'"));
        assert!(parse(kind, "99999999999999999999k").is_err());
    }

    #[test]
    fn switches_words_and_clearing() {
        assert_eq!(parse(Kind::Switch, "On"), Ok(Value::Switch(true)));
        assert!(parse(Kind::Switch, "2").is_err());
        assert_eq!(parse(Kind::Word(&["f16", "f32"]), "F16"), Ok(Value::Text("f16".into())));
        assert!(parse(Kind::Word(&["f16"]), "q4").unwrap_err().contains("f16"));
        assert_eq!(parse(Kind::Text, "none"), Ok(Value::Cleared));
    }

    #[test]
    fn numbers_are_finite_and_in_range() {
        let kind = Kind::Number { min: 0.0, max: 2.0 };
        assert_eq!(parse(kind, "0.7"), Ok(Value::Number(0.7)));
        assert!(parse(kind, "nan").is_err());
        assert!(parse(kind, "3").unwrap_err().contains("0 to 2"));
    }
}
