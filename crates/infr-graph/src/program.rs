//! A program: the graphs of a model with the weights and states they share.

use infr_tensor::DType;

use crate::decl::{Reach, StateDecl, StateKind, WeightDecl};
use crate::graph::Graph;
use crate::ids::StateId;

/// Which graph of a program a step runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Prefill and decode.
    Forward,
    /// The draft head of multi-token prediction.
    Draft,
    /// One denoising step of block diffusion.
    Denoise,
}

/// Everything a backend needs to run a model, but the weights' bytes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Program {
    /// Weights, indexed by `WeightId`.
    pub weights: Vec<WeightDecl>,
    /// States, indexed by `StateId`.
    pub states: Vec<StateDecl>,
    /// One graph per phase that the model has.
    pub graphs: Vec<(Phase, Graph)>,
}

/// Paged states of equal geometry, which share one page table per sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheGroup {
    /// Elements of a key row.
    pub key_width: u32,
    /// Elements of a value row.
    pub value_width: u32,
    /// Element type in the cache.
    pub dtype: DType,
    /// What a row may see.
    pub reach: Reach,
    /// The states of the group, ascending.
    pub states: Vec<StateId>,
}

impl CacheGroup {
    /// Bytes of one page of `page_len` rows over all states of the group.
    pub fn page_bytes(&self, page_len: u32) -> u64 {
        let row = u64::from(self.key_width + self.value_width);
        let elements = row * u64::from(page_len) * self.states.len() as u64;
        elements / self.dtype.block_len() as u64 * self.dtype.block_bytes() as u64
    }
}

impl Program {
    /// The graph of a phase.
    pub fn graph(&self, phase: Phase) -> Option<&Graph> {
        self.graphs.iter().find(|(p, _)| *p == phase).map(|(_, g)| g)
    }

    /// Paged states grouped by geometry, in order of their first state. The order is the order of
    /// visible ranges, page tables and page counts everywhere.
    pub fn cache_groups(&self) -> Vec<CacheGroup> {
        let mut groups: Vec<CacheGroup> = Vec::new();
        for (index, state) in self.states.iter().enumerate() {
            let StateKind::Paged { key_width, value_width, dtype, reach } = state.kind else {
                continue;
            };
            let id = StateId(index as u32);
            let same = |g: &&mut CacheGroup| {
                (g.key_width, g.value_width, g.dtype, g.reach)
                    == (key_width, value_width, dtype, reach)
            };
            match groups.iter_mut().find(same) {
                Some(group) => group.states.push(id),
                None => {
                    groups.push(CacheGroup {
                        key_width,
                        value_width,
                        dtype,
                        reach,
                        states: vec![id],
                    });
                }
            }
        }
        groups
    }

    /// The cache group of a paged state.
    pub fn group_of(&self, state: StateId) -> Option<usize> {
        self.cache_groups().iter().position(|g| g.states.contains(&state))
    }
}
