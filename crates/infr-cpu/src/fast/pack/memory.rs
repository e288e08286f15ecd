//! Memory for packed weights: large mappings on huge pages, shared by the weights of a model.
//!
//! A single-row product streams every weight once, and the hardware's prefetch stops at page borders, so the
//! page size decides how much of the memory's bandwidth it reaches.

use std::sync::{Arc, Mutex, PoisonError};

use memmap2::MmapMut;

use super::PackError;

/// Bytes that a mapping of an arena has at least.
const CHUNK_BYTES: usize = 64 << 20;
/// Regions start at multiples of a cache line.
const ALIGN: usize = 64;

/// A source of memory for the weights of one model.
///
/// Mappings are freed when the last weight that lies in them is dropped.
#[derive(Debug, Default)]
pub struct WeightArena {
    /// The mapping in use, and how much of it is taken.
    open: Mutex<Option<(Arc<Chunk>, usize)>>,
}

/// A mapping of zeroed memory.
#[derive(Debug)]
struct Chunk {
    start: *mut u8,
    /// Owns the mapping that `start` points into.
    map: MmapMut,
}

// SAFETY: the memory behind `start` is owned by `map`; regions of it are disjoint, and each is written only
// while its only handle is borrowed exclusively.
unsafe impl Send for Chunk {}
// SAFETY: as above.
unsafe impl Sync for Chunk {}

impl Chunk {
    fn new(len: usize) -> Result<Chunk, PackError> {
        let out_of_memory = |_| PackError::OutOfMemory { wanted: len };
        let mut map = MmapMut::map_anon(len.max(1)).map_err(out_of_memory)?;
        #[cfg(target_os = "linux")]
        if len >= 2 << 20 {
            // Without huge pages everything works, only slower.
            let _ = map.advise(memmap2::Advice::HugePage);
        }
        Ok(Chunk { start: map.as_mut_ptr(), map })
    }
}

/// A zeroed part of a mapping.
#[derive(Debug)]
pub(super) struct Region {
    chunk: Arc<Chunk>,
    offset: usize,
    len: usize,
}

impl WeightArena {
    /// An arena that has mapped nothing yet.
    pub fn new() -> WeightArena {
        WeightArena::default()
    }

    pub(super) fn take(&self, len: usize) -> Result<Region, PackError> {
        let len = len.next_multiple_of(ALIGN);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((chunk, taken)) = open.as_mut()
            && chunk.map.len() - *taken >= len
        {
            let region = Region { chunk: Arc::clone(chunk), offset: *taken, len };
            *taken += len;
            return Ok(region);
        }
        let chunk = Arc::new(Chunk::new(len.max(CHUNK_BYTES))?);
        let left = chunk.map.len() - len;
        // What is left of the larger remainder serves the next weights.
        if open.as_ref().is_none_or(|(c, taken)| c.map.len() - taken < left) {
            *open = Some((Arc::clone(&chunk), len));
        }
        Ok(Region { chunk, offset: 0, len })
    }
}

impl Region {
    /// A region with a mapping of its own.
    pub(super) fn alone(len: usize) -> Result<Region, PackError> {
        let len = len.next_multiple_of(ALIGN);
        Ok(Region { chunk: Arc::new(Chunk::new(len)?), offset: 0, len })
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn ptr(&self) -> *const u8 {
        // SAFETY: the region lies inside its mapping.
        unsafe { self.chunk.start.add(self.offset) }
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the region lies inside its mapping and belongs to this handle alone.
        unsafe { std::slice::from_raw_parts_mut(self.chunk.start.add(self.offset), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_zeroed_aligned_and_disjoint() {
        let arena = WeightArena::new();
        let sizes = [1, 64, 1000, 70 << 20, 5, 40 << 20, 30 << 20, 7];
        let mut regions: Vec<Region> =
            sizes.iter().map(|&len| arena.take(len).expect("memory")).collect();
        regions.push(Region::alone(0).expect("memory"));
        for (i, region) in regions.iter_mut().enumerate() {
            assert_eq!(region.ptr() as usize % ALIGN, 0);
            let bytes = region.bytes_mut();
            assert!(bytes.iter().all(|b| *b == 0), "region {i} overlaps another");
            bytes.fill(i as u8 + 1);
        }
        drop(arena);
        for (i, region) in regions.iter_mut().enumerate() {
            assert!(region.bytes_mut().iter().all(|b| *b == i as u8 + 1));
        }
    }
}
