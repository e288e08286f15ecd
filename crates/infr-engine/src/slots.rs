//! Slots of running sequences, and snapshots of recurrent states.

use std::collections::BTreeMap;
use std::sync::Arc;

use infr_backend::Slot;

use crate::prefix::NodeId;

/// Slots that no sequence has.
#[derive(Debug)]
pub(crate) struct Slots {
    free: Vec<Slot>,
}

impl Slots {
    pub(crate) fn new(count: u32) -> Slots {
        Slots { free: (0..count).rev().map(Slot).collect() }
    }

    pub(crate) fn take(&mut self) -> Option<Slot> {
        self.free.pop()
    }

    pub(crate) fn give_back(&mut self, slot: Slot) {
        debug_assert!(!self.free.contains(&slot), "slot {} is free already", slot.0);
        self.free.push(slot);
    }

    pub(crate) fn free(&self) -> u32 {
        self.free.len() as u32
    }
}

/// Recurrent states after the tokens of a node and a few more.
#[derive(Debug)]
struct Snapshot {
    node: NodeId,
    /// Tokens after the node's.
    rest: Box<[u32]>,
    data: Arc<Vec<u8>>,
}

/// A bounded set of snapshots in host memory; the one not used for longest goes first.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    budget: u64,
    used: u64,
    /// Keyed by the time of last use.
    entries: BTreeMap<u64, Snapshot>,
    clock: u64,
}

/// Key of a snapshot until it is used or removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SnapshotId(u64);

impl Snapshots {
    pub(crate) fn new(budget: u64) -> Snapshots {
        Snapshots { budget, ..Snapshots::default() }
    }

    /// Snapshots after `node`, which ends at row `start`, that a text going on with `rest` can use:
    /// rows and key, longest first, at most `most` and at least one row.
    pub(crate) fn after(
        &self,
        node: NodeId,
        start: u32,
        rest: &[u32],
        most: u32,
    ) -> Vec<(u32, SnapshotId)> {
        let fits = |(&key, entry): (&u64, &Snapshot)| {
            let rows = start + entry.rest.len() as u32;
            let usable = entry.node == node && rest.starts_with(&entry.rest);
            (usable && rows > 0 && rows <= most).then_some((rows, SnapshotId(key)))
        };
        let mut found: Vec<_> = self.entries.iter().filter_map(fits).collect();
        found.sort_unstable_by_key(|&(rows, _)| std::cmp::Reverse(rows));
        found
    }

    /// The states of a snapshot, which counts as used.
    pub(crate) fn get(&mut self, id: SnapshotId) -> Arc<Vec<u8>> {
        let entry = self.entries.remove(&id.0).expect("a key is valid until its snapshot is used");
        let data = Arc::clone(&entry.data);
        self.clock += 1;
        self.entries.insert(self.clock, entry);
        data
    }

    /// Whether there is a snapshot of this place; it counts as used.
    pub(crate) fn touch(&mut self, node: NodeId, rest: &[u32]) -> bool {
        let same = |(_, e): &(&u64, &Snapshot)| e.node == node && *e.rest == *rest;
        let Some(key) = self.entries.iter().find(same).map(|(&key, _)| key) else { return false };
        self.get(SnapshotId(key));
        true
    }

    /// Adds a snapshot; gives the nodes of those that had to go, which may be the new one's.
    pub(crate) fn insert(&mut self, node: NodeId, rest: &[u32], data: Vec<u8>) -> Vec<NodeId> {
        let size = data.len() as u64;
        if size > self.budget {
            return vec![node];
        }
        let mut gone = Vec::new();
        while self.used + size > self.budget {
            let Some((_, old)) = self.entries.pop_first() else { break };
            self.used -= old.data.len() as u64;
            gone.push(old.node);
        }
        self.used += size;
        self.clock += 1;
        self.entries.insert(self.clock, Snapshot { node, rest: rest.into(), data: Arc::new(data) });
        gone
    }

    pub(crate) fn count(&self) -> u32 {
        self.entries.len() as u32
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_snapshot_that_the_text_goes_on_from_is_found() {
        let mut snapshots = Snapshots::new(100);
        assert_eq!(snapshots.insert(NodeId(1), &[5, 6], vec![1; 10]), vec![]);
        assert_eq!(snapshots.insert(NodeId(1), &[5], vec![2; 10]), vec![]);
        assert_eq!(snapshots.insert(NodeId(2), &[5, 6, 7], vec![3; 10]), vec![]);
        let rows = |found: Vec<(u32, SnapshotId)>| found.iter().map(|f| f.0).collect::<Vec<_>>();
        assert_eq!(rows(snapshots.after(NodeId(1), 4, &[5, 6, 7], 99)), [6, 5]);
        assert_eq!(rows(snapshots.after(NodeId(1), 4, &[5, 6, 7], 5)), [5]);
        assert_eq!(rows(snapshots.after(NodeId(1), 4, &[5], 99)), [5]);
        assert!(snapshots.after(NodeId(1), 4, &[6], 99).is_empty());
    }

    #[test]
    fn the_one_not_used_for_longest_goes_first() {
        let mut snapshots = Snapshots::new(20);
        snapshots.insert(NodeId(1), &[], vec![0; 10]);
        snapshots.insert(NodeId(2), &[], vec![0; 10]);
        assert!(snapshots.touch(NodeId(1), &[]));
        assert_eq!(snapshots.insert(NodeId(3), &[], vec![0; 10]), vec![NodeId(2)]);
        assert_eq!(snapshots.insert(NodeId(4), &[], vec![0; 21]), vec![NodeId(4)]);
        assert_eq!((snapshots.count(), snapshots.bytes()), (2, 20));
    }
}
