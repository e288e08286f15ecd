//! What can be wrong with a file, with the values needed to act on it.

use std::path::PathBuf;

/// An error of reading or writing a GGUF file.
///
/// Keys, names and values that come from the file are escaped and shortened before they are put
/// here, so that an error can go to a log or a terminal as it is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GgufError {
    /// The operating system refused an operation.
    #[error("{}: {doing}: {source}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// The operation, as in "cannot open".
        doing: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file does not start with `GGUF`.
    #[error("{}: not a GGUF file: {found}", file.display())]
    NotGguf {
        /// The file.
        file: PathBuf,
        /// What it looks like, and what to do about that.
        found: String,
    },
    /// The file is a piece of a GGUF file that was cut at arbitrary bytes.
    #[error(
        "{}: this is one piece of a file that was cut into raw pieces, not a GGUF split; \
         join the pieces in order first: {join}", file.display()
    )]
    RawCut {
        /// The piece.
        file: PathBuf,
        /// A command that joins the pieces.
        join: String,
    },
    /// The file is big endian.
    #[error(
        "{}: big-endian GGUF (version field {found:#010x}); only little-endian files are \
         supported, convert it with gguf-py's gguf_convert_endian.py", file.display()
    )]
    BigEndian {
        /// The file.
        file: PathBuf,
        /// The version field, read as little endian.
        found: u32,
    },
    /// The version is not one that this crate reads.
    #[error(
        "{}: GGUF version {found} is not supported (versions 2 and 3 are); \
         convert the model again or look for a newer upload", file.display()
    )]
    Version {
        /// The file.
        file: PathBuf,
        /// The version found.
        found: u32,
    },
    /// The file ends before the header does.
    #[error(
        "{}: the file ends inside {what} at offset {offset}: {wanted} bytes wanted, {available} \
         left; {hint}", file.display()
    )]
    Truncated {
        /// The file.
        file: PathBuf,
        /// The thing that was being read, with its key or tensor.
        what: String,
        /// Where it starts.
        offset: u64,
        /// Bytes it needs.
        wanted: u64,
        /// Bytes left.
        available: u64,
        /// What to do.
        hint: &'static str,
    },
    /// A count or length is above what this crate accepts.
    #[error(
        "{}: {what} at offset {offset} is {found}, at most {limit} is accepted; \
         the file is damaged or hostile", file.display()
    )]
    Limit {
        /// The file.
        file: PathBuf,
        /// The count, with its key or tensor.
        what: String,
        /// Where the count stands.
        offset: u64,
        /// The count found.
        found: u64,
        /// The largest accepted.
        limit: u64,
    },
    /// A key is empty, not UTF-8 or stands twice.
    #[error("{}: key {key} at offset {offset} {problem}", file.display())]
    BadKey {
        /// The file.
        file: PathBuf,
        /// The key, escaped and in quotes.
        key: String,
        /// Where the key starts.
        offset: u64,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A value has a type id that does not exist, or is an array of arrays.
    #[error("{}: key {key} has value type {found} at offset {offset}: {problem}", file.display())]
    ValueType {
        /// The file.
        file: PathBuf,
        /// The key, escaped and in quotes.
        key: String,
        /// Where the type id stands.
        offset: u64,
        /// The type id.
        found: u32,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A key that is needed is not there.
    #[error(
        "{}: key {key:?} is missing; the file is not a complete model, \
         or its converter does not know this architecture", file.display()
    )]
    MissingKey {
        /// The file.
        file: PathBuf,
        /// The key.
        key: String,
    },
    /// A key has a value of another type.
    #[error("{}: key {key:?} should be {wanted} but is {found}", file.display())]
    WrongType {
        /// The file.
        file: PathBuf,
        /// The key.
        key: String,
        /// The type wanted.
        wanted: &'static str,
        /// The type found.
        found: String,
    },
    /// A key has the right type but a value outside the range wanted.
    #[error("{}: key {key:?} should be {wanted} but is {found}", file.display())]
    OutOfRange {
        /// The file.
        file: PathBuf,
        /// The key.
        key: String,
        /// The range wanted.
        wanted: &'static str,
        /// The value found.
        found: String,
    },
    /// A tensor's entry in the directory is invalid.
    #[error("{}: tensor {tensor} (entry at offset {offset}): {problem}", file.display())]
    BadTensor {
        /// The file.
        file: PathBuf,
        /// The tensor's name, escaped and in quotes.
        tensor: String,
        /// Where its entry starts.
        offset: u64,
        /// What is wrong, with the value wanted and the value found.
        problem: String,
    },
    /// Two tensors of the model have the same name.
    #[error("{}: tensor {tensor} stands twice in the model (also in {})",
        file.display(), other.display())]
    DuplicateTensor {
        /// The part with the second one.
        file: PathBuf,
        /// The name, escaped and in quotes.
        tensor: String,
        /// The part with the first one.
        other: PathBuf,
    },
    /// A tensor's type is unknown or removed from the format.
    #[error("{}: tensor {tensor} has type id {found}: {problem}", file.display())]
    TensorType {
        /// The file.
        file: PathBuf,
        /// The tensor's name, escaped and in quotes.
        tensor: String,
        /// The type id.
        found: u32,
        /// What is known about this id.
        problem: &'static str,
    },
    /// A tensor's data lies outside the file.
    #[error(
        "{}: tensor {tensor} needs bytes {offset}..{end} but the file has {size}; {hint}",
        file.display()
    )]
    PastEnd {
        /// The file.
        file: PathBuf,
        /// The tensor's name, escaped and in quotes.
        tensor: String,
        /// Where its data starts.
        offset: u64,
        /// Where its data ends.
        end: u64,
        /// Bytes in the file.
        size: u64,
        /// What to do.
        hint: &'static str,
    },
    /// Two tensors share bytes.
    #[error(
        "{}: tensor {tensor} at offset {offset} overlaps tensor {other}, which ends at {end}",
        file.display()
    )]
    Overlap {
        /// The file.
        file: PathBuf,
        /// The later tensor, escaped and in quotes.
        tensor: String,
        /// Where its data starts.
        offset: u64,
        /// The earlier tensor, escaped and in quotes.
        other: String,
        /// Where the earlier one ends.
        end: u64,
    },
    /// A part of a split model is not beside the others.
    #[error(
        "{}: part {number} of {count} is missing: {} ({reason}); put all parts in one folder",
        file.display(), missing.display()
    )]
    MissingPart {
        /// The file that was opened.
        file: PathBuf,
        /// The part that is not there.
        missing: PathBuf,
        /// Its number, counted from 1.
        number: u32,
        /// Number of parts.
        count: u32,
        /// Why it could not be read.
        reason: String,
    },
    /// The parts of a split model do not belong together.
    #[error("{}: split model: {what} should be {wanted} but is {found}", file.display())]
    Split {
        /// The part.
        file: PathBuf,
        /// The thing that disagrees.
        what: &'static str,
        /// The value wanted.
        wanted: String,
        /// The value found.
        found: String,
    },
    /// The output refused bytes.
    #[error("cannot write {what}: {source}")]
    WriteIo {
        /// The tensor or piece that was being written, in quotes.
        what: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The writer was given something that a GGUF file cannot hold, or data in the wrong order.
    #[error("cannot write {what}: {problem}")]
    Write {
        /// The key or tensor, escaped and in quotes.
        what: String,
        /// What is wrong.
        problem: String,
    },
}

/// Longest escaped excerpt of file text that an error shows, in characters.
const EXCERPT: usize = 96;

/// File text made safe to print: escaped, shortened, in quotes.
pub(crate) fn quoted(bytes: &[u8]) -> String {
    // An escape takes at most a few characters a byte, so a bounded prefix is enough.
    let head = &bytes[..bytes.len().min(EXCERPT)];
    let text = String::from_utf8_lossy(head);
    let cut = bytes.len() > EXCERPT;
    // A character that the cut goes through would show as damaged.
    let text = if cut { text.trim_end_matches(char::REPLACEMENT_CHARACTER) } else { &*text };
    let mut out = String::from("\"");
    out.extend(text.chars().flat_map(char::escape_debug).take(EXCERPT));
    out.push_str(if cut { "...\"" } else { "\"" });
    out
}
