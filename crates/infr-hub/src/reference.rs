//! What a user may call a model.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::HubError;

/// The quantisation that a reference without one means, if the repository has it.
pub const DEFAULT_QUANT: &str = "Q4_K_M";

/// A model as the user names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelRef {
    /// A file on disk.
    Path(PathBuf),
    /// A file of a repository of the Hub.
    Hub {
        /// `org/repo`.
        repo: String,
        /// Which file of it.
        wanted: Wanted,
    },
    /// The built-in small model.
    Demo,
}

/// Which file of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// [`DEFAULT_QUANT`], or the only model there is.
    Default,
    /// The one with this quantisation in its name.
    Quant(String),
    /// This one, by its path in the repository.
    File(String),
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str(DEFAULT_QUANT),
            Self::Quant(text) | Self::File(text) => f.write_str(text),
        }
    }
}

impl ModelRef {
    /// Reads a reference. Looks at the disk only to prefer an existing file.
    pub fn parse(text: &str) -> Result<Self, HubError> {
        let bad = |why| HubError::BadReference { given: text.into(), why };
        if text.trim().is_empty() {
            return Err(bad("it is empty"));
        }
        if text == "demo" {
            return Ok(Self::Demo);
        }
        if let Some(hub) = text.strip_prefix("hf:") {
            return parse_hub(hub).map_err(bad);
        }
        if Path::new(text).is_file() {
            return Ok(Self::Path(text.into()));
        }
        match parse_hub(text) {
            Ok(hub) => Ok(hub),
            Err(_) if looks_like_path(text) => Ok(Self::Path(text.into())),
            Err(why) => Err(bad(why)),
        }
    }
}

fn looks_like_path(text: &str) -> bool {
    Path::new(text).is_absolute()
        || text.starts_with(['.', '/', '\\', '~'])
        || text.contains('\\')
        || (text.to_ascii_lowercase().ends_with(".gguf") && !text.contains(':'))
        || Path::new(text).is_dir()
}

fn parse_hub(text: &str) -> Result<ModelRef, &'static str> {
    let (repo, wanted) = match text.split_once(':') {
        Some((repo, wanted)) => (repo, Some(wanted)),
        None => (text, None),
    };
    let Some((org, name)) = repo.split_once('/') else {
        return Err("there is no such file, and a repository has an organisation before a `/`");
    };
    if !is_name(org) || !is_name(name) {
        return Err("a repository is `org/repo`, of letters, digits, `-`, `_` and `.`");
    }
    if wanted.is_none() && name.to_ascii_lowercase().ends_with(".gguf") {
        return Err("there is no such file; a file of a repository is `org/repo:file.gguf`");
    }
    let wanted = match wanted {
        None => Wanted::Default,
        Some("") => return Err("nothing follows the `:`"),
        Some(wanted) if wanted.to_ascii_lowercase().ends_with(".gguf") => {
            if !wanted.split('/').all(is_file_name) {
                return Err("a file of a repository is named by its path in the repository");
            }
            Wanted::File(wanted.into())
        }
        Some(wanted) if is_name(wanted) => Wanted::Quant(wanted.into()),
        Some(_) => return Err("after the `:` comes a quantisation or a file name"),
    };
    Ok(ModelRef::Hub { repo: repo.into(), wanted })
}

/// A name in a path that stays in its folder.
fn is_file_name(text: &str) -> bool {
    !matches!(text, "" | "." | "..")
        && !text.chars().any(|c| c.is_control() || matches!(c, '\\' | ':'))
}

/// A repository's name, as the Hub allows it; or a quantisation's.
fn is_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with('.')
        && !text.contains("--")
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.+".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hub(repo: &str, wanted: Wanted) -> ModelRef {
        ModelRef::Hub { repo: repo.into(), wanted }
    }

    #[test]
    fn references_are_told_apart() {
        let here = std::env::current_exe().unwrap();
        let here = here.to_str().unwrap();
        let path = |text: &str| ModelRef::Path(text.into());
        let cases = [
            ("demo", ModelRef::Demo),
            (here, path(here)),
            ("/no/such.gguf", path("/no/such.gguf")),
            ("./model", path("./model")),
            ("../a/b", path("../a/b")),
            ("model.gguf", path("model.gguf")),
            ("a/model.gguf", path("a/model.gguf")),
            ("a/b/model.GGUF", path("a/b/model.GGUF")),
            ("org/repo", hub("org/repo", Wanted::Default)),
            ("hf:org/repo", hub("org/repo", Wanted::Default)),
            ("org/Repo-1.5_x:q8_0", hub("org/Repo-1.5_x", Wanted::Quant("q8_0".into()))),
            ("org/repo:UD-Q4_K_XL", hub("org/repo", Wanted::Quant("UD-Q4_K_XL".into()))),
            ("o/r:a (b)--c.gguf", hub("o/r", Wanted::File("a (b)--c.gguf".into()))),
            ("o/r:sub/f-Q8_0.gguf", hub("o/r", Wanted::File("sub/f-Q8_0.gguf".into()))),
        ];
        for (text, want) in cases {
            assert_eq!(ModelRef::parse(text).unwrap(), want, "{text}");
        }
    }

    #[test]
    fn what_is_no_reference_says_what_is_expected() {
        let bad = [
            "",
            " ",
            "model",
            "org/",
            "/:x/",
            "a/b/c",
            "org/repo:",
            "hf:x",
            "org/repo:../x.gguf",
            "org/..",
            "or g/repo",
            "org/repo:a b",
            "hf:org/repo.gguf",
            "https://host/org/repo",
        ];
        for text in bad {
            match ModelRef::parse(text) {
                Err(error @ HubError::BadReference { .. }) => {
                    assert!(error.to_string().contains("org/repo[:quant]"), "{error}");
                }
                // A path-shaped text is a path, and is then found missing.
                Ok(ModelRef::Path(path)) => assert!(path.starts_with("/"), "{text}: {path:?}"),
                other => panic!("{text}: {other:?}"),
            }
        }
    }
}
