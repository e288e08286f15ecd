//! References to what is on disk already, in a cache folder made by hand.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

use infr_hub::{HubError, HubOptions, ModelRef, NoProgress, resolve};

fn cache(name: &str, files: &[&str]) -> HubOptions {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    let root = folder.join("models--org--M-GGUF");
    fs::create_dir_all(root.join("refs")).unwrap();
    fs::write(root.join("refs/main"), "abc\n").unwrap();
    for file in files {
        let path = root.join("snapshots/abc").join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, file).unwrap();
    }
    HubOptions::new(folder)
}

fn find(options: &HubOptions, text: &str) -> Result<PathBuf, HubError> {
    resolve(&ModelRef::parse(text).unwrap(), options, &mut NoProgress)
}

#[test]
fn a_cached_repository_is_found_without_a_request() {
    let files = [
        "M-Q4_K_M.gguf",
        "M-Q8_0.gguf",
        "mmproj-M.gguf",
        "README.md",
        "sub/M-BF16-00001-of-00002.gguf",
    ];
    let options = cache("cached", &files);
    let root = options.cache_dir.join("models--org--M-GGUF/snapshots/abc");
    assert_eq!(find(&options, "org/M-GGUF").unwrap(), root.join("M-Q4_K_M.gguf"));
    assert_eq!(find(&options, "hf:org/M-GGUF:q8_0").unwrap(), root.join("M-Q8_0.gguf"));
    assert_eq!(find(&options, "org/M-GGUF:M-Q8_0.gguf").unwrap(), root.join("M-Q8_0.gguf"));
    let error = find(&options, "org/M-GGUF:BF16").unwrap_err();
    assert!(
        matches!(&error, HubError::MissingParts { missing, .. } if missing.len() == 1),
        "{error}"
    );
    let error = find(&options, "org/M-GGUF:Q6_K").unwrap_err().to_string();
    assert!(
        error.contains("M-Q8_0.gguf") && error.contains("infr pull org/M-GGUF:Q6_K"),
        "{error}"
    );
    assert!(!error.contains("mmproj") && !error.contains("README"), "{error}");
    let error = find(&options, "org/Other").unwrap_err();
    assert!(matches!(error, HubError::NotCached { .. }), "{error}");
    assert!(error.to_string().contains("infr pull org/Other"));
}

#[test]
fn without_main_the_newest_snapshot_is_used() {
    let options = cache("no-main", &["M-Q4_K_M.gguf"]);
    fs::remove_file(options.cache_dir.join("models--org--M-GGUF/refs/main")).unwrap();
    assert!(find(&options, "org/M-GGUF").unwrap().ends_with("abc/M-Q4_K_M.gguf"));
}

#[cfg(unix)]
#[test]
fn a_link_to_a_blob_that_is_gone_is_no_model() {
    let options = cache("broken-link", &["M-Q8_0.gguf"]);
    let root = options.cache_dir.join("models--org--M-GGUF/snapshots/abc");
    std::os::unix::fs::symlink("../../blobs/0", root.join("M-Q4_K_M.gguf")).unwrap();
    assert_eq!(find(&options, "org/M-GGUF").unwrap(), root.join("M-Q8_0.gguf"));
}

#[test]
fn paths_are_taken_as_they_are() {
    let options = cache("paths", &["M-Q8_0.gguf"]);
    let root = options.cache_dir.join("models--org--M-GGUF/snapshots/abc");
    let file = root.join("M-Q8_0.gguf");
    assert_eq!(find(&options, file.to_str().unwrap()).unwrap(), file);
    let error = find(&options, root.to_str().unwrap()).unwrap_err();
    assert!(error.to_string().contains("M-Q8_0.gguf"), "{error}");
    let error = find(&options, "./no/such.gguf").unwrap_err();
    assert!(matches!(error, HubError::NoSuchFile { .. }), "{error}");
}
