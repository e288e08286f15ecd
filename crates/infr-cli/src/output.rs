//! What users see: units, colours, and writing to standard output without panics.

use std::io::{self, IsTerminal, Write};

use anyhow::Result;

use crate::config::env;

/// Prints text; a closed pipe (`infr inspect | head`) is no error.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

/// A size in binary units: `94.2 MiB`.
pub(crate) fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = n as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{n} B") } else { format!("{value:.2} {}", UNITS[unit]) }
}

/// A number in thousands: `134.52 M`.
pub(crate) fn count(n: u64) -> String {
    match n {
        0..1_000 => n.to_string(),
        1_000..1_000_000 => format!("{:.2} K", n as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} M", n as f64 / 1e6),
        _ => format!("{:.2} B", n as f64 / 1e9),
    }
}

/// Escape sequences for a terminal, or nothing where there is none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Style {
    /// Starts dimmed text.
    pub dim: &'static str,
    /// Ends any style.
    pub reset: &'static str,
}

impl Style {
    /// The style of standard output.
    pub(crate) fn stdout() -> Style {
        if io::stdout().is_terminal() && !env::no_color() {
            Style { dim: "\x1b[2m", reset: "\x1b[0m" }
        } else {
            Style { dim: "", reset: "" }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units() {
        assert_eq!(bytes(512), "512 B");
        assert_eq!(bytes(98_800_000), "94.22 MiB");
        assert_eq!(count(134_515_008), "134.52 M");
        assert_eq!(count(7), "7");
    }
}
