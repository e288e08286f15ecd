//! The bytes of a file, mapped or read. The only place of this crate with `unsafe`.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;

use memmap2::Mmap;

use crate::file::Access;

/// The bytes of one file.
#[derive(Debug)]
pub(crate) enum FileBytes {
    /// Pages of the file itself.
    Mapped(Mmap),
    /// A copy in memory.
    Owned(Vec<u8>),
}

impl FileBytes {
    /// Maps or reads a file.
    pub(crate) fn open(path: &Path, access: Access) -> io::Result<FileBytes> {
        let file = File::open(path)?;
        let meta = file.metadata()?;
        if !meta.is_file() {
            let what = if meta.is_dir() { "it is a directory" } else { "it is not a regular file" };
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let mapped = match access {
            Access::Map if meta.len() > 0 => map(&file),
            Access::Map | Access::Read => return read(file, meta.len()),
        };
        match mapped {
            // The file may have been cut between asking for its length and mapping it.
            Ok(bytes) if file.metadata()?.len() >= bytes.len() as u64 => {
                Ok(FileBytes::Mapped(bytes))
            }
            Ok(_) => Err(io::Error::other("the file shrank while it was opened")),
            Err(error) => {
                tracing::info!("{}: cannot be mapped ({error}); reading it", path.display());
                read(file, meta.len())
            }
        }
    }

    /// All bytes.
    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            FileBytes::Mapped(map) => map,
            FileBytes::Owned(bytes) => bytes,
        }
    }

    /// Asks the system to read a range ahead.
    pub(crate) fn prefetch(&self, range: Range<usize>) {
        #[cfg(unix)]
        if let FileBytes::Mapped(map) = self
            && range.end <= map.len()
        {
            // Advice may be refused without harm.
            let _ = map.advise_range(memmap2::Advice::WillNeed, range.start, range.len());
        }
        #[cfg(not(unix))]
        let _ = range;
    }

    /// Tells the system that a range need not stay in memory.
    pub(crate) fn release(&self, range: Range<usize>) {
        #[cfg(unix)]
        if let FileBytes::Mapped(map) = self
            && range.end <= map.len()
        {
            let advice = memmap2::UncheckedAdvice::DontNeed;
            // SAFETY: the mapping is shared, read-only and backed by a file, so pages that are
            // dropped come back from the file with the same bytes at the next access.
            let _ = unsafe { map.unchecked_advise_range(advice, range.start, range.len()) };
        }
        #[cfg(not(unix))]
        let _ = range;
    }
}

fn map(file: &File) -> io::Result<Mmap> {
    // SAFETY: the mapping is read-only and only ever seen as plain bytes, for which every bit
    // pattern is valid. A program that changes the file meanwhile changes weights or, when it
    // cuts the file, ends this process with a signal: `Access::Read` is for such places.
    unsafe { Mmap::map(file) }
}

fn read(mut file: File, len: u64) -> io::Result<FileBytes> {
    let len = usize::try_from(len).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len)?;
    file.read_to_end(&mut bytes)?;
    Ok(FileBytes::Owned(bytes))
}
