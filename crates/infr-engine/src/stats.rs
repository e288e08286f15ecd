//! What the engine tells about itself.

use std::time::Duration;

/// Whether the engine can serve.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Health {
    /// It can.
    #[default]
    Ok,
    /// The device is lost; opening it again is tried with the next request.
    Down(String),
}

/// Pages of one cache group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PageStats {
    /// All pages.
    pub total: u32,
    /// Pages that hold nothing.
    pub free: u32,
    /// Pages that hold cached tokens and are used by no sequence.
    pub cached: u32,
    /// Pages that sequences use.
    pub used: u32,
}

/// Counters since the start and the present state.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stats {
    /// Whether it can serve.
    pub health: Health,
    /// Requests that wait.
    pub queued: u32,
    /// Requests that run.
    pub running: u32,
    /// Requests admitted, resumptions not counted.
    pub started: u64,
    /// Requests that finished.
    pub finished: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Prompt tokens of admitted requests.
    pub prompt_tokens: u64,
    /// Of these, taken from the cache.
    pub cached_tokens: u64,
    /// Tokens generated.
    pub generated_tokens: u64,
    /// Steps run.
    pub steps: u64,
    /// Rows of all steps.
    pub rows: u64,
    /// Rows computed and thrown away because their sequence had ended in the step before.
    pub discarded_rows: u64,
    /// Sequences that were put back for want of pages.
    pub preemptions: u64,
    /// Times that the device was lost.
    pub device_losses: u64,
    /// Time spent in steps with prompt rows.
    pub prefill_time: Duration,
    /// Time spent in steps without.
    pub decode_time: Duration,
    /// One entry per cache group.
    pub pages: Vec<PageStats>,
    /// Snapshots of recurrent states held.
    pub snapshots: u32,
    /// Bytes of these.
    pub snapshot_bytes: u64,
}
