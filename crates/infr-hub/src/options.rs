//! Where things are and how to get at them: plain data, filled by the caller.

use std::path::PathBuf;
use std::time::Duration;

use crate::cache::cache_dir;

/// The Hub's address.
pub const HUB_ENDPOINT: &str = "https://huggingface.co";
/// The Python package index's simple API.
pub const PYPI_INDEX: &str = "https://pypi.org/simple";

/// What resolving and downloading depend on.
#[derive(Clone, PartialEq, Eq)]
pub struct HubOptions {
    /// The Hub's cache, by default `~/.cache/huggingface/hub`.
    pub cache_dir: PathBuf,
    /// The Hub's address (`HF_ENDPOINT`).
    pub endpoint: String,
    /// An access token for the Hub (`HF_TOKEN`).
    pub token: Option<String>,
    /// The package index's simple API (`PIP_INDEX_URL`), credentials and all.
    pub pypi_index: String,
    /// No request is made at all (`HF_HUB_OFFLINE`).
    pub offline: bool,
    /// How long a server may take to answer at all.
    pub connect_timeout: Duration,
    /// How long a download may stand still.
    pub stall_timeout: Duration,
}

impl HubOptions {
    /// The defaults, with a cache folder.
    pub fn new(cache_dir: impl Into<PathBuf>) -> Self {
        Self {
            cache_dir: cache_dir.into(),
            endpoint: HUB_ENDPOINT.into(),
            token: None,
            pypi_index: PYPI_INDEX.into(),
            offline: false,
            connect_timeout: Duration::from_secs(5),
            stall_timeout: Duration::from_secs(30),
        }
    }

    /// The options that the variables ask for which Hub and pip know; `None` if no variable says
    /// where the cache is.
    pub fn from_variables(variable: &dyn Fn(&str) -> Option<String>) -> Option<Self> {
        let set = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let mut options = Self::new(cache_dir(variable)?);
        if let Some(endpoint) = set("HF_ENDPOINT") {
            options.endpoint = endpoint.trim_end_matches('/').into();
        }
        if let Some(index) = set("PIP_INDEX_URL") {
            options.pypi_index = index;
        }
        options.token = set("HF_TOKEN").or_else(|| set("HUGGING_FACE_HUB_TOKEN"));
        options.offline = set("HF_HUB_OFFLINE")
            .is_some_and(|value| ["1", "on", "yes", "true"].contains(&&*value.to_lowercase()));
        Some(options)
    }
}

impl std::fmt::Debug for HubOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HubOptions")
            .field("cache_dir", &self.cache_dir)
            .field("endpoint", &self.endpoint)
            .field("token", &self.token.as_ref().map(|_| "…"))
            .field("pypi_index", &crate::url::without_credentials(&self.pypi_index))
            .field("offline", &self.offline)
            .field("connect_timeout", &self.connect_timeout)
            .field("stall_timeout", &self.stall_timeout)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_fill_the_options_and_secrets_stay_out_of_debug_output() {
        let variable = |name: &str| match name {
            "HF_HUB_CACHE" => Some("/c".into()),
            "HF_ENDPOINT" => Some("https://mirror/".into()),
            "PIP_INDEX_URL" => Some("https://user:secret@index/simple".into()),
            "HF_TOKEN" => Some("hf_secret".into()),
            "HF_HUB_OFFLINE" => Some("1".into()),
            _ => None,
        };
        let options = HubOptions::from_variables(&variable).unwrap();
        assert_eq!(options.endpoint, "https://mirror");
        assert!(options.offline);
        let shown = format!("{options:?}");
        assert!(!shown.contains("secret"), "{shown}");
        assert_eq!(HubOptions::from_variables(&|_| None), None);
    }
}
