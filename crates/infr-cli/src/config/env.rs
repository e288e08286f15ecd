//! The only place of the program that reads the environment.
#![allow(clippy::disallowed_methods)]

use std::path::PathBuf;

/// The value of an environment variable, when it is set to something.
pub(crate) fn get(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|v| !v.is_empty())
}

/// Folder of the user's configuration.
pub(crate) fn config_dir() -> Option<PathBuf> {
    get("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| home().map(|h| h.join(".config")))
        .map(|d| d.join("infr"))
}

/// Folder of the user's history and other state.
pub(crate) fn state_dir() -> Option<PathBuf> {
    get("XDG_STATE_HOME")
        .map(PathBuf::from)
        .or_else(|| home().map(|h| h.join(".local/state")))
        .map(|d| d.join("infr"))
}

/// Folder of the user's caches.
pub(crate) fn cache_dir() -> Option<PathBuf> {
    get("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| home().map(|h| h.join(".cache")))
        .map(|d| d.join("infr"))
}

/// The user's home folder.
pub(crate) fn home() -> Option<PathBuf> {
    std::env::home_dir().filter(|h| !h.as_os_str().is_empty())
}

/// Whether output should be without colours (no-color.org, or a dumb terminal).
pub(crate) fn no_color() -> bool {
    get("NO_COLOR").is_some() || get("TERM").is_some_and(|t| t == "dumb")
}

/// The filter of the log, `INFR_LOG`.
pub(crate) fn log_filter() -> Option<String> {
    get("INFR_LOG")
}
