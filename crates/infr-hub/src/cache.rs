//! The Hub's cache layout, shared with its other clients.
//!
//! ```text
//! models--ORG--REPO/refs/main                  a commit
//! models--ORG--REPO/blobs/SHA256               a file's bytes
//! models--ORG--REPO/snapshots/COMMIT/FILE      a link to ../../blobs/SHA256
//! .locks/models--ORG--REPO/SHA256.lock         held while the blob is written
//! ```

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use crate::{HubError, Progress};

/// Where the variables that the Hub's clients know put the cache.
pub fn cache_dir(variable: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let set = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
    if let Some(cache) = set("HF_HUB_CACHE").or_else(|| set("HUGGINGFACE_HUB_CACHE")) {
        return Some(cache.into());
    }
    if let Some(home) = set("HF_HOME") {
        return Some(Path::new(&home).join("hub"));
    }
    let base = match set("XDG_CACHE_HOME") {
        Some(base) => PathBuf::from(base),
        None => Path::new(&set("HOME").or_else(|| set("USERPROFILE"))?).join(".cache"),
    };
    Some(base.join("huggingface").join("hub"))
}

/// One repository in the cache.
#[derive(Debug, Clone)]
pub struct Repo {
    name: String,
    cache: PathBuf,
    root: PathBuf,
}

impl Repo {
    /// The repository `org/repo` in a cache; nothing needs to be there.
    pub fn new(cache: &Path, name: &str) -> Self {
        let root = cache.join(folder_name(name));
        Self { name: name.into(), cache: cache.into(), root }
    }

    /// `org/repo`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The cache that it is in.
    pub fn cache(&self) -> &Path {
        &self.cache
    }

    /// The snapshot to use: that of `main`, else the newest.
    pub fn snapshot(&self) -> Option<PathBuf> {
        let modified = |path: &PathBuf| fs::metadata(path).and_then(|data| data.modified()).ok();
        self.main().or_else(|| self.snapshots().into_iter().max_by_key(modified))
    }

    /// A file of the snapshot to use, else of any; if it is there in full.
    pub fn file(&self, file: &str) -> Option<PathBuf> {
        let others = self.snapshots();
        let mut paths = self.snapshot().into_iter().chain(others).map(|path| path.join(file));
        paths.find(|path| path.is_file())
    }

    fn snapshots(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.root.join("snapshots")) else { return Vec::new() };
        entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
    }

    fn main(&self) -> Option<PathBuf> {
        let commit = fs::read_to_string(self.root.join("refs").join("main")).ok()?;
        let path = self.root.join("snapshots").join(commit.trim());
        (!commit.trim().is_empty() && path.is_dir()).then_some(path)
    }

    pub(crate) fn blob(&self, sha256: &str) -> PathBuf {
        self.root.join("blobs").join(sha256)
    }

    /// Waits for, and takes, the lock on one blob; it is released when the file is dropped.
    pub(crate) fn lock(&self, sha256: &str, progress: &mut dyn Progress) -> Result<File, HubError> {
        let folder = self.cache.join(".locks").join(folder_name(&self.name));
        fs::create_dir_all(&folder).map_err(HubError::io(&folder))?;
        let path = folder.join(format!("{sha256}.lock"));
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(HubError::io(&path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                progress.start(None, "waiting for another process that downloads the same file");
                let locked = file.lock();
                progress.finish();
                locked.map_err(HubError::io(&path))?;
            }
            Err(TryLockError::Error(error)) => return Err(HubError::io(&path)(error)),
        }
        Ok(file)
    }

    /// Makes a complete blob appear as a file of a snapshot; that snapshot becomes `main` if it
    /// is known to be, or if there is no other.
    pub(crate) fn publish(
        &self,
        sha256: &str,
        commit: &str,
        file: &str,
        is_main: bool,
    ) -> Result<PathBuf, HubError> {
        let snapshot = self.root.join("snapshots").join(commit);
        let path = snapshot.join(file);
        let folder = path.parent().unwrap_or(&snapshot);
        fs::create_dir_all(folder).map_err(HubError::io(folder))?;
        if !path.is_file() {
            let up = "../".repeat(2 + file.matches('/').count());
            // A link whose blob is gone is in the way.
            let _ = fs::remove_file(&path);
            link(&self.blob(sha256), Path::new(&format!("{up}blobs/{sha256}")), &path)
                .map_err(HubError::io(&path))?;
        }
        if !is_main && self.main().is_some() {
            return Ok(path);
        }
        let refs = self.root.join("refs");
        fs::create_dir_all(&refs).map_err(HubError::io(&refs))?;
        let main = refs.join("main");
        let temporary = refs.join(format!("main.{}.tmp", std::process::id()));
        fs::write(&temporary, commit).map_err(HubError::io(&temporary))?;
        fs::rename(&temporary, &main).map_err(HubError::io(&main))?;
        Ok(path)
    }
}

fn folder_name(repo: &str) -> String {
    format!("models--{}", repo.replace('/', "--"))
}

/// A link as the Hub's clients make it; where links cannot be made, the blob is moved instead.
fn link(blob: &Path, relative: &Path, at: &Path) -> std::io::Result<()> {
    #[cfg(unix)]
    let linked = std::os::unix::fs::symlink(relative, at);
    #[cfg(windows)]
    let linked = std::os::windows::fs::symlink_file(relative, at);
    #[cfg(not(any(unix, windows)))]
    let linked: std::io::Result<()> = Err(std::io::ErrorKind::Unsupported.into());
    linked.or_else(|_| fs::rename(blob, at))
}

/// The GGUF files below a folder, relative to it, with `/` between names, sorted.
pub fn gguf_files(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    collect(folder, "", 0, &mut found);
    found.sort();
    found
}

fn collect(folder: &Path, prefix: &str, depth: usize, found: &mut Vec<String>) {
    /// Repositories keep large models in one level of folders.
    const MAX_DEPTH: usize = 4;
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let path = entry.path();
        let relative = format!("{prefix}{name}");
        if path.is_dir() {
            if depth < MAX_DEPTH {
                collect(&path, &format!("{relative}/"), depth + 1, found);
            }
        } else if path.is_file() && name.to_ascii_lowercase().ends_with(".gguf") {
            found.push(relative);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_where_the_variables_say() {
        let find = |pairs: &'static [(&str, &str)]| {
            cache_dir(&|name| {
                pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1.to_owned())
            })
        };
        let cases: [(&'static [(&str, &str)], &str); 5] = [
            (&[("HF_HUB_CACHE", "/c"), ("HF_HOME", "/hf"), ("HOME", "/h")], "/c"),
            (&[("HF_HOME", "/hf"), ("XDG_CACHE_HOME", "/x"), ("HOME", "/h")], "/hf/hub"),
            (&[("XDG_CACHE_HOME", "/x"), ("HOME", "/h")], "/x/huggingface/hub"),
            (&[("HF_HOME", ""), ("HOME", "/h")], "/h/.cache/huggingface/hub"),
            (&[("USERPROFILE", "/u")], "/u/.cache/huggingface/hub"),
        ];
        for (pairs, want) in cases {
            assert_eq!(find(pairs), Some(PathBuf::from(want)), "{pairs:?}");
        }
        assert_eq!(find(&[]), None);
    }
}
