//! The emulator's memory: buffers at made-up addresses, and a log of who touches what.
//!
//! New memory is filled with ones in every bit, which reads as NaN; freed memory is gone. An access outside
//! a buffer, or one that meets another launch's access without a barrier between, panics: it is a bug of
//! the lowering or of the emulator, and tests are where it shows.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// Distance between buffers, so that an access behind one hits nothing.
const GAP: u64 = 1 << 16;

/// All buffers, by their first address.
#[derive(Debug)]
pub(super) struct Memory {
    buffers: BTreeMap<u64, Vec<u8>>,
    next: u64,
    /// Accesses of the launch that runs.
    reads: Vec<Range<u64>>,
    writes: Vec<Range<u64>>,
    /// Accesses of the launches since the last barrier.
    phase: Phase,
}

#[derive(Debug, Default)]
struct Phase {
    reads: Accesses,
    writes: Accesses,
}

/// Ranges that several launches touched, kept apart by 64-byte lines to find meetings quickly.
#[derive(Debug, Default)]
struct Accesses(HashMap<u64, Vec<Range<u64>>>);

const LINE: u64 = 1 << 12;

impl Accesses {
    fn add(&mut self, range: &Range<u64>) {
        for line in range.start / LINE..=(range.end - 1) / LINE {
            self.0.entry(line).or_default().push(range.clone());
        }
    }

    fn meets(&self, range: &Range<u64>) -> bool {
        (range.start / LINE..=(range.end - 1) / LINE).any(|line| {
            let ranges = self.0.get(&line);
            ranges.is_some_and(|all| all.iter().any(|r| r.start < range.end && range.start < r.end))
        })
    }
}

impl Memory {
    pub(super) fn new() -> Memory {
        let (reads, writes) = (Vec::new(), Vec::new());
        Memory { buffers: BTreeMap::new(), next: 1 << 32, reads, writes, phase: Phase::default() }
    }

    /// A new buffer; gives its address.
    pub(super) fn allocate(&mut self, bytes: u64) -> u64 {
        let address = self.next;
        self.next = (address + bytes + GAP).next_multiple_of(GAP);
        self.buffers.insert(address, vec![0xff; bytes as usize]);
        address
    }

    /// Ends a buffer.
    pub(super) fn free(&mut self, address: u64) {
        assert!(self.buffers.remove(&address).is_some(), "freed twice: {address:#x}");
    }

    /// Number of buffers and their bytes.
    pub(super) fn held(&self) -> (usize, u64) {
        (self.buffers.len(), self.buffers.values().map(|b| b.len() as u64).sum())
    }

    fn find(&self, address: u64, bytes: usize) -> (u64, usize) {
        let found = self.buffers.range(..=address).next_back();
        let inside = found.filter(|(start, b)| address + bytes as u64 <= *start + b.len() as u64);
        let (start, _) = inside.unwrap_or_else(|| {
            panic!(
                "{bytes} bytes at {address:#x} lie in no buffer (nearest: {found:?})",
                found = found.map(|(s, b)| (*s, b.len()))
            )
        });
        (*start, (address - start) as usize)
    }

    /// Host or transfer access: not logged.
    pub(super) fn bytes(&self, address: u64, bytes: usize) -> &[u8] {
        let (start, at) = self.find(address, bytes);
        &self.buffers[&start][at..at + bytes]
    }

    /// Host or transfer access: not logged.
    pub(super) fn bytes_mut(&mut self, address: u64, bytes: usize) -> &mut [u8] {
        let (start, at) = self.find(address, bytes);
        let buffer = self.buffers.get_mut(&start).expect("found above");
        &mut buffer[at..at + bytes]
    }

    /// Bytes that the running launch reads.
    pub(super) fn read(&mut self, address: u64, bytes: usize) -> Vec<u8> {
        if bytes > 0 {
            self.reads.push(address..address + bytes as u64);
        }
        self.bytes(address, bytes).to_vec()
    }

    pub(super) fn words(&mut self, address: u64, n: usize) -> Vec<u32> {
        assert!(address.is_multiple_of(4), "words at {address:#x}");
        let bytes = self.read(address, 4 * n);
        bytes.as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b)).collect()
    }

    pub(super) fn word(&mut self, address: u64) -> u32 {
        self.words(address, 1)[0]
    }

    pub(super) fn floats(&mut self, address: u64, n: usize) -> Vec<f32> {
        self.words(address, n).into_iter().map(f32::from_bits).collect()
    }

    /// Bytes that the running launch writes.
    pub(super) fn write(&mut self, address: u64, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.writes.push(address..address + bytes.len() as u64);
            self.bytes_mut(address, bytes.len()).copy_from_slice(bytes);
        }
    }

    pub(super) fn put_words(&mut self, address: u64, words: &[u32]) {
        assert!(address.is_multiple_of(4), "words at {address:#x}");
        self.write(address, bytemuck::cast_slice(words));
    }

    pub(super) fn put_floats(&mut self, address: u64, floats: &[f32]) {
        assert!(address.is_multiple_of(4), "floats at {address:#x}");
        self.write(address, bytemuck::cast_slice(floats));
    }

    /// Everything before is finished.
    pub(super) fn barrier(&mut self) {
        self.phase = Phase::default();
    }

    /// Ends a launch: its accesses must not meet those of the launches that it ran together with.
    pub(super) fn end_launch(&mut self, label: &str) {
        let (reads, writes) = (std::mem::take(&mut self.reads), std::mem::take(&mut self.writes));
        for range in &reads {
            assert!(!self.phase.writes.meets(range), "{label}: reads what is being written");
        }
        for range in &writes {
            let meets = self.phase.writes.meets(range) || self.phase.reads.meets(range);
            assert!(!meets, "{label}: writes what is being read or written");
        }
        reads.iter().for_each(|r| self.phase.reads.add(r));
        writes.iter().for_each(|r| self.phase.writes.add(r));
    }
}
