//! Says what a file is that should have been GGUF and is not.

use std::path::Path;

use crate::error::{GgufError, quoted};
use crate::split;

/// Starts of other formats, and what to tell their owner.
const SIGNATURES: &[(&[u8], &str)] = &[
    (b"PK\x03\x04", "it looks like a zip archive or a PyTorch checkpoint; unpack or convert it"),
    (b"\x1f\x8b", "it is compressed with gzip; unpack it first"),
    (b"\x28\xb5\x2f\xfd", "it is compressed with zstd; unpack it first"),
    (b"\xfd7zXZ\0", "it is compressed with xz; unpack it first"),
    (b"7z\xbc\xaf\x27\x1c", "it is a 7z archive; unpack it first"),
    (b"BZh", "it is compressed with bzip2; unpack it first"),
    (b"lmgg", OLD_GGML),
    (b"fmgg", OLD_GGML),
    (b"tjgg", OLD_GGML),
    (b"algg", "it is an old GGML LoRA adapter; convert it again"),
    (b"FUGG", "its magic is byte-swapped"),
    (b"\x89HDF", "it looks like an HDF5 (Keras) file; convert the model to GGUF"),
    (b"\x80\x02", "it looks like a Python pickle (an old PyTorch checkpoint); convert it to GGUF"),
];
const OLD_GGML: &str = "it is a GGML file from before GGUF; look for a newer upload";

/// Describes the content of a file that does not start with `GGUF`.
pub(crate) fn describe(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "the file is empty; the download probably failed, download it again".to_owned();
    }
    let head = &bytes[..bytes.len().min(512)];
    if let Some((_, says)) = SIGNATURES.iter().find(|(start, _)| head.starts_with(start)) {
        return (*says).to_owned();
    }
    if head.starts_with(b"version https://git-lfs") {
        return describe_lfs_pointer(head);
    }
    if let Some((length, b'{')) =
        head.split_first_chunk().zip(head.get(8)).map(|((l, _), &b)| (u64::from_le_bytes(*l), b))
        && length <= bytes.len() as u64
    {
        return "it looks like a safetensors file; convert the model to GGUF \
                (llama.cpp's convert_hf_to_gguf.py) or download a GGUF version"
            .to_owned();
    }
    if head.iter().all(|&b| b == 0) {
        return "it starts with zero bytes only; the download reserved space but did not finish, \
                download it again"
            .to_owned();
    }
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    match text.first() {
        Some(b'<') => "it looks like an HTML or XML page, such as a log-in or error page saved in \
                       place of the model; use the direct download link (…/resolve/…) and log in \
                       when the model asks for it"
            .to_owned(),
        Some(b'{' | b'[') => format!(
            "it looks like JSON, such as a server's error answer or a model's config: {}",
            quoted(&text[..text.len().min(80)])
        ),
        _ => format!("it starts with {}", quoted(&head[..head.len().min(16)])),
    }
}

fn describe_lfs_pointer(head: &[u8]) -> String {
    let text = String::from_utf8_lossy(head);
    let size = text.lines().find_map(|l| l.strip_prefix("size ")?.trim().parse::<u64>().ok());
    let size = size.map_or(String::new(), |n| format!(" to a file of {n} bytes"));
    format!("it is a git-lfs pointer{size}; run `git lfs pull` or download the file itself")
}

/// What to do about a file that ends too early, judged by its name.
pub(crate) fn cut_hint(file: &Path) -> &'static str {
    let unfinished = ["incomplete", "part", "crdownload", "download", "aria2", "tmp"];
    match file.extension().and_then(|e| e.to_str()) {
        Some(e) if unfinished.contains(&e) => {
            "the name says that its download has not finished; wait, or download it again"
        }
        _ => "the file is incomplete (a download that was cut?); download it again",
    }
}

/// Replaces the errors that a raw piece of a file causes with one that says so.
pub(crate) fn explain_raw_cut(file: &Path, error: GgufError) -> GgufError {
    let caused_by_cut = matches!(
        error,
        GgufError::NotGguf { .. } | GgufError::Truncated { .. } | GgufError::PastEnd { .. }
    );
    match split::raw_cut_join(file) {
        Some(join) if caused_by_cut => GgufError::RawCut { file: file.to_path_buf(), join },
        _ => error,
    }
}
