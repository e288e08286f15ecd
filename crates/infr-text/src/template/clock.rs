//! The time that `strftime_now` tells, injectable.

use jiff::ZonedDateTime;
use minijinja::{Error, ErrorKind, Value};

/// Tells the local time.
pub trait Clock {
    /// The time now, in the user's time zone.
    fn now(&self) -> ZonedDateTime;
}

/// The system's clock and time zone.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> ZonedDateTime {
        ZonedDateTime::now()
    }
}

/// A clock that stands still, for tests and for prompts that must be the same again.
#[derive(Debug, Clone)]
pub struct FixedClock(pub ZonedDateTime);

impl Clock for FixedClock {
    fn now(&self) -> ZonedDateTime {
        self.0.clone()
    }
}

/// `strftime_now` for a render that starts at `now`.
pub(super) fn strftime_now(now: ZonedDateTime) -> Value {
    Value::from_function(move |format: &str| -> Result<String, Error> {
        jiff::fmt::strtime::format(format, &now).map_err(|error| {
            Error::new(ErrorKind::InvalidOperation, format!("strftime_now({format:?}): {error}"))
        })
    })
}
