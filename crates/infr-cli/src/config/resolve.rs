//! Merges the layers: defaults, file, environment, flags.

use std::path::PathBuf;

use anyhow::{Result, bail};

use super::keys::{KEYS, Key, Settings, find, nearest};
use super::value::parse;
use super::{env, file};

/// What flags and the command line say about settings.
#[derive(Debug, Clone, Default)]
pub(crate) struct Layers {
    /// `--config`.
    pub config: Option<PathBuf>,
    /// `--set path=value`, in order.
    pub set: Vec<String>,
    /// Dedicated flags: path and value.
    pub flags: Vec<(&'static str, String)>,
}

/// The settings, and for each key the value's text and where it came from.
#[derive(Debug, Clone, Default)]
pub(crate) struct Resolved {
    /// The typed value.
    pub settings: Settings,
    /// Per key of the table: text and layer.
    pub origins: Vec<(String, String)>,
    /// Warnings for the user.
    pub warnings: Vec<String>,
}

/// Merges all layers.
///
/// # Errors
/// A value that its key does not take, naming the layer; an unknown path in `--set`.
pub(crate) fn resolve(layers: &Layers) -> Result<Resolved> {
    let mut merge = Merge::defaults();
    if let Some(path) = file::locate(layers.config.as_deref()) {
        for entry in file::read(&path)? {
            match find(&entry.path) {
                Some(key) => merge.put(key, &entry.text, &entry.place)?,
                None => merge.unknown(&entry.path, &entry.place),
            }
        }
    }
    for key in KEYS {
        if let Some((name, text)) = key.env.iter().find_map(|n| Some((n, env::get(n)?))) {
            merge.put(key, &text, name)?;
        }
    }
    for assignment in &layers.set {
        let Some((path, text)) = assignment.split_once('=') else {
            bail!("--set {assignment}: wants path=value, such as --set sampling.temp=0.7");
        };
        let Some(key) = find(path.trim()) else {
            let hint = nearest(path).map(|n| format!("; did you mean {n}?")).unwrap_or_default();
            bail!("--set {assignment}: there is no setting '{path}'{hint}");
        };
        merge.put(key, text, "--set")?;
    }
    for (path, text) in &layers.flags {
        if let Some(key) = find(path) {
            merge.put(key, text, "flag")?;
        }
    }
    Ok(merge.finish())
}

struct Merge {
    texts: Vec<(String, String)>,
    settings: Settings,
    warnings: Vec<String>,
}

impl Merge {
    fn defaults() -> Merge {
        let mut settings = Settings::default();
        let mut texts = Vec::new();
        for key in KEYS {
            if let Ok(value) = parse(key.kind, key.default) {
                (key.set)(&mut settings, &value);
            }
            texts.push((key.default.to_string(), "default".to_string()));
        }
        Merge { texts, settings, warnings: Vec::new() }
    }

    fn put(&mut self, key: &'static Key, text: &str, place: &str) -> Result<()> {
        match parse(key.kind, text) {
            Ok(value) => (key.set)(&mut self.settings, &value),
            Err(what) => bail!("{} ({place}): {what}", key.path),
        }
        if let Some(index) = KEYS.iter().position(|k| std::ptr::eq(k, key)) {
            self.texts[index] = (text.trim().to_string(), place.to_string());
        }
        Ok(())
    }

    fn unknown(&mut self, path: &str, place: &str) {
        let hint = nearest(path).map(|n| format!("; did you mean {n}?")).unwrap_or_default();
        self.warnings.push(format!("{place}: there is no setting '{path}'{hint} (ignored)"));
    }

    fn finish(self) -> Resolved {
        Resolved { settings: self.settings, origins: self.texts, warnings: self.warnings }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_beat_set_and_errors_name_the_key() {
        let layers = Layers {
            set: vec!["sampling.temp=0.2".into(), "sampling.top_k=7".into()],
            flags: vec![("sampling.temp", "0.9".into())],
            ..Layers::default()
        };
        let resolved = resolve(&layers).unwrap();
        assert_eq!(resolved.settings.sampling.temp, Some(0.9));
        assert_eq!(resolved.settings.sampling.top_k, Some(7));
        let bad = |text: &str| {
            let layers = Layers { set: vec![text.into()], ..Layers::default() };
            format!("{:#}", resolve(&layers).unwrap_err())
        };
        assert!(bad("sampling.temp=hot").contains("sampling.temp (--set)"));
        assert!(bad("sampling.tmp=1").contains("did you mean sampling.temp"));
        assert!(bad("nonsense").contains("path=value"));
    }
}
