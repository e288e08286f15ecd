//! The graph IR: what a model computes, as plain semantic ops over ragged batches.
//!
//! Level 1: depends on `infr-tensor` only. Model files build graphs with [`Builder`]; the CPU
//! reference runs them as built; GPU backends rewrite and lower them.
//!
//! Invariants:
//! - A graph holds no step value: no position, length or sequence count is a constant in it.
//! - Activations are SSA values of shape `[rows, width]`; the only effects are on [`StateId`]s, and
//!   nodes that touch one state keep their order.
//! - A fused node keeps the nodes it replaced, so every optimised graph can be unfolded and checked.
//!
//! Reading order: [`op`], [`graph`], [`decl`], [`program`], then [`build`], [`shape_rules`],
//! [`verify`] and [`print`], [`passes`].

pub mod build;
pub mod decl;
pub mod graph;
pub mod ids;
pub mod op;
pub mod passes;
pub mod print;
pub mod program;
pub mod shape_rules;
pub mod verify;

pub use build::Builder;
pub use decl::{Reach, StateDecl, StateKind, WeightDecl, WeightFrom, WeightRole};
pub use graph::{Graph, GraphError, Node, Output};
pub use ids::{StateId, ValueId, WeightId};
pub use op::{
    AttnSpec, BatchField, ConvSpec, DeltaSpec, ExpertSpec, Fused, FusedKind, GateAct, Gating,
    HeadMap, LinearSpec, NormSpec, Op, PositionScale, RopeSpec, RopeStyle, RouteSpec, SliceSpec,
    Unary, Yarn,
};
pub use passes::{FusionSupport, ShapeClass};
pub use program::{CacheGroup, Phase, Program};
