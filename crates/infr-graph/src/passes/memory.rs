//! The memory planner: places blocks with lifetimes in one arena.

/// Offsets are multiples of this.
pub const ALIGN: u64 = 256;

/// A block of memory that is needed from step `first` to step `last`, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// Bytes; 0 takes no room.
    pub bytes: u64,
    /// First step that touches it.
    pub first: usize,
    /// Last step that touches it.
    pub last: usize,
}

/// Where each block lies, and how large the arena must be.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Placement {
    /// Offset of each block.
    pub offsets: Vec<u64>,
    /// Bytes of the arena.
    pub total: u64,
}

/// Places the largest blocks first, each as low as the blocks allow whose lifetimes meet its own.
pub fn place(blocks: &[Block]) -> Placement {
    let mut order: Vec<usize> = (0..blocks.len()).filter(|&i| blocks[i].bytes > 0).collect();
    order.sort_by_key(|&i| (std::cmp::Reverse(blocks[i].bytes), i));
    let mut placement = Placement { offsets: vec![0; blocks.len()], total: 0 };
    let mut placed: Vec<usize> = Vec::with_capacity(order.len());
    for index in order {
        let block = &blocks[index];
        let meets = |&&other: &&usize| {
            let other = &blocks[other];
            other.first <= block.last && block.first <= other.last
        };
        let mut offset = 0;
        // `placed` is sorted by offset: the first gap that is large enough is the lowest.
        for &other in placed.iter().filter(meets) {
            if offset + block.bytes <= placement.offsets[other] {
                break;
            }
            offset = offset.max(end_of(blocks, &placement, other));
        }
        placement.offsets[index] = offset;
        placement.total = placement.total.max(end_of(blocks, &placement, index));
        let at = placed.partition_point(|&p| placement.offsets[p] <= offset);
        placed.insert(at, index);
    }
    placement
}

fn end_of(blocks: &[Block], placement: &Placement, index: usize) -> u64 {
    (placement.offsets[index] + blocks[index].bytes).next_multiple_of(ALIGN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes_that_do_not_meet_share() {
        let block = |bytes, first, last| Block { bytes, first, last };
        let placement =
            place(&[block(1000, 0, 1), block(512, 2, 3), block(300, 1, 2), block(0, 0, 9)]);
        assert_eq!(placement.offsets[..3], [0, 0, 1024]);
        assert_eq!(placement.total, 1024 + 512);
    }

    #[test]
    fn blocks_that_live_together_never_overlap() {
        let mut seed = 7u64;
        let mut next = |n: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % n
        };
        for _ in 0..200 {
            let n = 1 + next(40) as usize;
            let blocks: Vec<Block> = (0..n)
                .map(|_| {
                    let first = next(30) as usize;
                    Block { bytes: 1 + next(5000), first, last: first + next(10) as usize }
                })
                .collect();
            let placement = place(&blocks);
            for i in 0..n {
                let end = placement.offsets[i] + blocks[i].bytes;
                assert!(placement.offsets[i].is_multiple_of(ALIGN) && end <= placement.total);
                for j in 0..i {
                    let apart =
                        blocks[i].last < blocks[j].first || blocks[j].last < blocks[i].first;
                    let other = placement.offsets[j]..placement.offsets[j] + blocks[j].bytes;
                    assert!(apart || end <= other.start || other.end <= placement.offsets[i]);
                }
            }
        }
    }
}
