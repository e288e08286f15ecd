//! The kernel variant table and the tuning files of a GPU backend: parse, expand, select.
//!
//! Level 1: depends on `infr-tensor`; knows no GPU API and does no I/O. A backend hands in the text of its
//! `kernels.toml` (what exists) and of its `tuning/*.toml` (what is chosen); its build script expands the
//! same table, so that both name a variant by the same number.
//!
//! Invariants: a key that is not described here is an error; selection is a pure function.
//!
//! Reading order: [`family`] (names), [`profile`] (device facts), [`table`] (kernels and variants),
//! [`tuning`], [`select`].

pub mod error;
pub mod family;
pub mod profile;
pub mod select;
pub mod table;
pub mod tuning;

pub use error::KernelError;
pub use family::{KernelFamily, Tier};
pub use profile::DeviceProfile;
pub use select::{Ask, Pick, Selector, Work};
pub use table::{Kernel, Table, Variant};
pub use tuning::{AttentionTuning, Rung, Tuning};

/// Place of a variant in the expanded table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VariantId(pub u32);

/// Values of a variant's specialisation constants; the place is the constant's id.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct SpecConsts(pub Vec<u32>);
