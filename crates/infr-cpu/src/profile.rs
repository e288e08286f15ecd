//! Time per op, for finding where a step goes.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time that one op took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpTime {
    /// Name of the op.
    pub op: &'static str,
    /// Nodes run.
    pub calls: u64,
    /// Time in all.
    pub time: Duration,
}

/// Collects times from the executors of a backend.
#[derive(Debug, Default)]
pub(crate) struct Profile(Mutex<BTreeMap<&'static str, (u64, Duration)>>);

impl Profile {
    /// Counts one run of an op.
    pub(crate) fn add(&self, op: &'static str, start: Instant) {
        let mut times = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = times.entry(op).or_default();
        entry.0 += 1;
        entry.1 += start.elapsed();
    }

    /// Takes what was collected, longest first.
    pub(crate) fn take(&self) -> Vec<OpTime> {
        let times = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let entry = |(op, (calls, time))| OpTime { op, calls, time };
        let mut out: Vec<OpTime> = times.into_iter().map(entry).collect();
        out.sort_by_key(|t| std::cmp::Reverse(t.time));
        out
    }
}
