//! Which dispatches wait for the ones before them.
//!
//! A dispatch waits when it reads what a dispatch since the last wait writes, or writes what such a
//! dispatch reads or writes. Independent ones run together.

use std::ops::Range;

use crate::dispatch::{Dispatch, DispatchList};

#[derive(Default)]
struct Pending {
    reads: Vec<Range<u64>>,
    writes: Vec<Range<u64>>,
}

fn meet(a: &[Range<u64>], b: &[Range<u64>]) -> bool {
    a.iter().any(|a| b.iter().any(|b| a.start < b.end && b.start < a.end))
}

/// Adds the barriers that the ranges ask for.
pub fn with_barriers(dispatches: Vec<Dispatch>) -> DispatchList {
    let mut pending = Pending::default();
    let barriers = dispatches
        .iter()
        .map(|d| {
            let waits = meet(&d.reads, &pending.writes)
                || meet(&d.writes, &pending.writes)
                || meet(&d.writes, &pending.reads);
            if waits {
                pending = Pending::default();
            }
            pending.reads.extend(d.reads.iter().cloned());
            pending.writes.extend(d.writes.iter().cloned());
            waits
        })
        .collect();
    DispatchList { dispatches, barriers }
}

#[cfg(test)]
mod tests {
    use infr_kernels::{SpecConsts, VariantId};

    use super::*;
    use crate::dispatch::Grid;

    fn dispatch(reads: Range<u64>, writes: Range<u64>) -> Dispatch {
        Dispatch {
            label: String::new(),
            kernel: VariantId(0),
            spec: SpecConsts::default(),
            push: Vec::new(),
            grid: Grid::Fixed([1; 3]),
            reads: vec![reads],
            writes: vec![writes],
        }
    }

    #[test]
    fn only_dependent_dispatches_wait() {
        let list = with_barriers(vec![
            dispatch(0..4, 4..8),
            // Independent of the first: the same input, another output.
            dispatch(0..4, 8..12),
            // Reads both outputs.
            dispatch(4..12, 12..16),
            // Independent of the one before, and of the ones before the wait.
            dispatch(4..8, 16..20),
            // Overwrites what the third reads.
            dispatch(16..20, 8..9),
            // Overwrites what the one before wrote.
            dispatch(0..1, 8..9),
        ]);
        assert_eq!(list.barriers, [false, false, true, false, true, true]);
    }
}
