//! Work for a device as data: which kernel runs over what, and what it touches.

use std::ops::Range;

use infr_kernels::{SpecConsts, VariantId};

/// The most bytes of push constants of a dispatch: what every device offers.
pub const MAX_PUSH: usize = 128;

/// Workgroups of a dispatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grid {
    /// Known when the dispatch is recorded.
    Fixed([u32; 3]),
    /// Three `u32` at a device address, read when the dispatch starts. The dispatch reads them, so
    /// they stand in `reads` too.
    Indirect {
        /// Address of the three counts, a multiple of 4.
        address: u64,
    },
}

/// One kernel launch.
#[derive(Debug, Clone, PartialEq)]
pub struct Dispatch {
    /// What it computes, for profiles (`linear attn_q`).
    pub label: String,
    /// The variant, by its number in the expanded kernel table.
    pub kernel: VariantId,
    /// Values of its specialisation constants.
    pub spec: SpecConsts,
    /// Addresses and constants, at most [`MAX_PUSH`] bytes, laid out as `KERNELS.md` says.
    pub push: Vec<u8>,
    /// Workgroups.
    pub grid: Grid,
    /// Device address ranges that it reads and that some dispatch writes (weights need not stand here).
    pub reads: Vec<Range<u64>>,
    /// Device address ranges that it writes.
    pub writes: Vec<Range<u64>>,
}

/// Dispatches in order, with the barriers between them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DispatchList {
    /// The launches.
    pub dispatches: Vec<Dispatch>,
    /// Whether the launch of the same place waits for all launches before it. The first entry says
    /// nothing: a recording always starts by waiting for what was submitted before.
    pub barriers: Vec<bool>,
}

/// Builds push constants: addresses first, then 32-bit constants.
#[derive(Debug, Clone, Default)]
pub struct Push(Vec<u8>);

impl Push {
    /// Starts with the addresses, 8 bytes each.
    pub fn addresses(addresses: &[u64]) -> Push {
        Push(addresses.iter().flat_map(|a| a.to_le_bytes()).collect())
    }

    /// Appends an unsigned constant.
    #[must_use]
    pub fn u32(mut self, value: u32) -> Push {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// Appends a float.
    #[must_use]
    pub fn f32(self, value: f32) -> Push {
        self.u32(value.to_bits())
    }

    /// Appends two 16-bit constants, the first in the low half.
    #[must_use]
    pub fn pair(self, low: u32, high: u32) -> Push {
        debug_assert!(low < 1 << 16 && high < 1 << 16);
        self.u32(low | high << 16)
    }

    /// The bytes.
    pub fn finish(self) -> Vec<u8> {
        debug_assert!(self.0.len() <= MAX_PUSH);
        self.0
    }
}
