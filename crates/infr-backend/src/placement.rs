//! Where a program's weights and states live.

/// Sizes and homes for one executor, decided before anything is loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// Device of each weight, by index into `Backend::devices`; empty means all on the first.
    pub homes: Vec<u16>,
    /// Where expert banks live.
    pub experts: ExpertPlacement,
    /// Physical pages per cache group.
    pub pages: Vec<u32>,
    /// Rows per page.
    pub page_len: u32,
    /// Sequences that can be resident at once.
    pub slots: u32,
    /// Rows of the largest batch.
    pub max_rows: u32,
}

/// Where expert banks live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ExpertPlacement {
    /// All in device memory.
    #[default]
    Resident,
    /// In an arena of this many bytes, filled on demand.
    Paged {
        /// Bytes of the arena.
        arena: u64,
    },
}
