//! How a download tells the caller that it moves.

/// Told about a download while it runs.
pub trait Progress {
    /// A download, or a wait, begins; the total in bytes if it is known.
    fn start(&mut self, total: Option<u64>, label: &str);
    /// More bytes are there.
    fn advance(&mut self, bytes: u64);
    /// What began last is over, well or not.
    fn finish(&mut self);
}

/// Tells nobody.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn start(&mut self, _total: Option<u64>, _label: &str) {}
    fn advance(&mut self, _bytes: u64) {}
    fn finish(&mut self) {}
}
