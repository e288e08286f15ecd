//! The configuration file: the first of `--config`, `./infr.toml` and the user's `config.toml`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::env;

/// A setting in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Dotted path.
    pub path: String,
    /// Value, as text.
    pub text: String,
    /// `file:line` for messages.
    pub place: String,
}

/// The file to read: the one named, or the first that exists.
pub(crate) fn locate(named: Option<&Path>) -> Option<PathBuf> {
    if let Some(path) = named {
        return Some(path.to_path_buf());
    }
    let own = env::config_dir().map(|d| d.join("config.toml"));
    [Some(PathBuf::from("infr.toml")), own].into_iter().flatten().find(|p| p.is_file())
}

/// All settings of a file.
pub(crate) fn read(path: &Path) -> Result<Vec<Entry>> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the configuration file {}", path.display()))?;
    parse(&path.display().to_string(), &text)
}

fn parse(name: &str, text: &str) -> Result<Vec<Entry>> {
    let table: toml::Table = text.parse().with_context(|| format!("{name} is not valid TOML"))?;
    let mut entries = Vec::new();
    flatten(name, text, "", &table, &mut entries);
    Ok(entries)
}

fn flatten(name: &str, text: &str, prefix: &str, table: &toml::Table, out: &mut Vec<Entry>) {
    for (key, value) in table {
        let path = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        match value {
            toml::Value::Table(inner) => flatten(name, text, &path, inner, out),
            toml::Value::String(s) => out.push(entry(name, text, path, key, s.clone())),
            other => out.push(entry(name, text, path, key, other.to_string())),
        }
    }
}

fn entry(name: &str, text: &str, path: String, key: &str, value: String) -> Entry {
    let section = path.rsplit_once('.').map_or("", |(s, _)| s);
    let place = match line_of(text, section, key) {
        Some(line) => format!("{name}:{line}"),
        None => name.to_string(),
    };
    Entry { path, text: value, place }
}

/// The 1-based line on which `key` of `[section]` stands.
fn line_of(text: &str, section: &str, key: &str) -> Option<usize> {
    let mut current = String::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(header) = line.strip_prefix('[') {
            current = header.split(']').next().unwrap_or("").trim().to_string();
        }
        let left = line.split('=').next().unwrap_or("").trim();
        let full = if current.is_empty() { left.to_string() } else { format!("{current}.{left}") };
        let wanted = if section.is_empty() { key.to_string() } else { format!("{section}.{key}") };
        if line.contains('=') && full == wanted {
            return Some(index + 1);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_know_their_line() {
        let text = "# a comment\n[sampling]\ntemp = 0.5\n\n[kv]\ntype = \"f32\"\n";
        let entries = parse("infr.toml", text).unwrap();
        let find = |path: &str| entries.iter().find(|e| e.path == path).unwrap();
        assert_eq!(find("sampling.temp").place, "infr.toml:3");
        assert_eq!(find("kv.type").text, "f32");
        assert_eq!(find("kv.type").place, "infr.toml:6");
    }

    #[test]
    fn broken_files_are_named() {
        assert!(format!("{:#}", parse("x.toml", "a = = 1").unwrap_err()).contains("x.toml"));
    }
}
