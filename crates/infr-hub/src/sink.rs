//! Writes a download to disk: under a temporary name, hashed on the way, renamed when right.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::PathBuf;

use sha2::{Digest, Sha256};

use crate::cache::Repo;
use crate::{HubError, Progress};

/// What a download has to be.
pub(crate) struct Expected<'e> {
    /// For messages.
    pub(crate) what: &'e str,
    /// In lower-case hexadecimal.
    pub(crate) sha256: &'e str,
    /// The size in bytes if it is known.
    pub(crate) size: Option<u64>,
}

/// A file under a temporary name, removed unless it is renamed.
struct Temporary {
    path: PathBuf,
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Copies a stream into the repository's blob of the expected checksum.
///
/// `broken` makes an error of a stream that fails.
pub(crate) fn store(
    repo: &Repo,
    expected: &Expected<'_>,
    stream: &mut dyn Read,
    progress: &mut dyn Progress,
    broken: &dyn Fn(&io::Error) -> HubError,
) -> Result<(), HubError> {
    let blob = repo.blob(expected.sha256);
    let folder = blob.parent().unwrap_or(&blob).to_owned();
    fs::create_dir_all(&folder).map_err(HubError::io(&folder))?;
    let name = format!("{}.{}.incomplete", expected.sha256, std::process::id());
    let temporary = Temporary { path: folder.join(name) };
    let file = File::create(&temporary.path).map_err(HubError::io(&temporary.path))?;
    let mut file = BufWriter::with_capacity(1 << 20, file);
    let (sha256, size) = copy(stream, &mut file, progress, broken, &temporary)?;
    if let Some(wanted) = expected.size
        && size != wanted
    {
        return Err(HubError::Truncated { what: expected.what.into(), wanted, got: size });
    }
    if !sha256.eq_ignore_ascii_case(expected.sha256) {
        return Err(HubError::Checksum {
            what: expected.what.into(),
            wanted: expected.sha256.into(),
            got: sha256,
        });
    }
    let file = file.into_inner().map_err(|error| error.into_error());
    file.and_then(|file| file.sync_all()).map_err(HubError::io(&temporary.path))?;
    fs::rename(&temporary.path, &blob).map_err(HubError::io(&blob))
}

fn copy(
    stream: &mut dyn Read,
    file: &mut dyn Write,
    progress: &mut dyn Progress,
    broken: &dyn Fn(&io::Error) -> HubError,
    temporary: &Temporary,
) -> Result<(String, u64), HubError> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 18];
    let mut size = 0;
    loop {
        let n_read = match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(n_read) => n_read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(broken(&error)),
        };
        let bytes = &buffer[..n_read];
        hasher.update(bytes);
        file.write_all(bytes).map_err(HubError::io(&temporary.path))?;
        size += n_read as u64;
        progress.advance(n_read as u64);
    }
    file.flush().map_err(HubError::io(&temporary.path))?;
    Ok((hex(&hasher.finalize()), size))
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .map(|digit| char::from(DIGITS[usize::from(digit)]))
        .collect()
}

/// A reader that hashes what passes.
pub(crate) struct Hashing<R> {
    inner: R,
    hasher: Sha256,
}

impl<R: Read> Hashing<R> {
    pub(crate) fn new(inner: R) -> Self {
        Self { inner, hasher: Sha256::new() }
    }

    /// Reads to the end; the checksum of everything.
    pub(crate) fn finish(mut self) -> io::Result<String> {
        io::copy(&mut self, &mut io::sink())?;
        Ok(hex(&self.hasher.finalize()))
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n_read = self.inner.read(buffer)?;
        self.hasher.update(&buffer[..n_read]);
        Ok(n_read)
    }
}
