//! What a device can fail with that the caller can act on.

/// An error of a backend.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// An allocation did not fit.
    #[error("out of memory: {what} wants {wanted} bytes, {free} are free")]
    OutOfMemory {
        /// What was to be allocated.
        what: String,
        /// Bytes wanted.
        wanted: u64,
        /// Bytes free.
        free: u64,
    },
    /// The device is gone; its executor must be opened again.
    #[error("the device was lost")]
    DeviceLost,
    /// The program asks for something that this backend cannot do.
    #[error("not supported here: {0}")]
    Unsupported(String),
    /// A batch or state operation breaks the contract of the seam: a bug of the caller.
    #[error("invalid batch: {0}")]
    InvalidBatch(String),
    /// A weight's bytes could not be had.
    #[error("weight {name}: {what}")]
    Weight {
        /// Name of the weight.
        name: String,
        /// What is wrong with it.
        what: String,
    },
    /// Reading or writing failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}
