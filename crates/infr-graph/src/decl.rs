//! Declarations of what outlives a step: weights and states.

use infr_tensor::{DType, TensorDesc};

/// A weight that the program needs.
#[derive(Debug, Clone, PartialEq)]
pub struct WeightDecl {
    /// Name for messages and profiles, as in the file.
    pub name: String,
    /// Type and shape (slowest dimension first).
    pub desc: TensorDesc,
    /// Where the bytes come from.
    pub source: WeightFrom,
    /// How it is used.
    pub role: WeightRole,
    /// The layer it belongs to, `None` for global ones.
    pub layer: Option<u16>,
}

/// Where a weight's bytes come from.
#[derive(Debug, Clone, PartialEq)]
pub enum WeightFrom {
    /// One tensor of the file.
    Tensor(String),
    /// Several tensors of equal type and row width, one below the other.
    Concat(Vec<String>),
    /// Values that the model file computes (`F32`).
    Const(Vec<f32>),
}

/// How a weight is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightRole {
    /// Read in every step.
    Dense,
    /// A bank of experts of which a step reads a few.
    Experts {
        /// Experts in the bank.
        count: u32,
    },
}

/// Which cached rows a row may see; pages behind it can go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reach {
    /// All rows up to its own.
    Full,
    /// The last `n` rows, its own included.
    Window(u32),
    /// The rows of its own chunk of `n` positions, up to its own.
    Chunk(u32),
    /// All rows of the sequence within `n/2` positions on both sides (encoders).
    Symmetric(u32),
}

/// A state that a layer keeps between steps.
#[derive(Debug, Clone, PartialEq)]
pub struct StateDecl {
    /// The layer it belongs to.
    pub layer: u16,
    /// What it holds.
    pub kind: StateKind,
}

/// What a state holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StateKind {
    /// Paged rows of keys and values, one per position.
    Paged {
        /// Elements of a key row (all KV heads).
        key_width: u32,
        /// Elements of a value row; 0 when values alias the first part of the key row (MLA).
        value_width: u32,
        /// Element type in the cache.
        dtype: DType,
        /// What a row may see.
        reach: Reach,
    },
    /// A fixed block of `f32` per sequence, read and written in place (zero at the start).
    Slot {
        /// Elements.
        width: u32,
    },
}
