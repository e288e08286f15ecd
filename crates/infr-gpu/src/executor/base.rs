//! What lowering stands on, and the shape classes.

use infr_backend::BackendError;
use infr_graph::{Phase, Program, ShapeClass};
use infr_kernels::{KernelFamily, Selector};

use crate::batch_buffers::{BatchPlaces, BatchShape};
use crate::lower::Ground;
use crate::options::GpuOptions;
use crate::places::{StatePlaces, WeightPlace};
use crate::plan::{Plan, Signature};
use crate::rope::RopeTables;

/// The parts of a program that lowering stands on.
#[derive(Debug)]
pub(super) struct Base {
    pub(super) program: Program,
    pub(super) selector: Selector,
    pub(super) options: GpuOptions,
    pub(super) weights: Vec<WeightPlace>,
    pub(super) states: StatePlaces,
    pub(super) ropes: RopeTables,
    pub(super) signatures: Vec<Signature>,
}

impl Base {
    pub(super) fn ground(&self) -> Ground<'_> {
        Ground {
            program: &self.program,
            selector: &self.selector,
            weights: &self.weights,
            states: &self.states,
            ropes: &self.ropes,
            strict: self.options.strict,
        }
    }

    pub(super) fn plan(&self, phase: Phase, class: ShapeClass) -> Result<Plan, BackendError> {
        let graph = self.program.graph(phase).ok_or_else(|| no_graph(phase))?;
        Plan::new(graph, &self.ground(), class, self.options.fuse)
    }

    /// Lowers every graph once at made-up addresses: what has no kernel is found before anything loads.
    pub(super) fn check(&self, class: ShapeClass) -> Result<(), BackendError> {
        let (places, _) = BatchPlaces::new(256, &self.batch_shape(class.rows));
        for signature in &self.signatures {
            self.plan(signature.phase, class)?.lower(self.ground(), &places, 256)?;
        }
        Ok(())
    }

    /// What the batch arrays are sized for.
    pub(super) fn batch_shape(&self, rows: u32) -> BatchShape {
        let mut carried: Vec<(u8, u32)> = Vec::new();
        for (index, width) in self.signatures.iter().flat_map(|s| &s.carried) {
            match carried.iter_mut().find(|(i, _)| i == index) {
                Some((_, widest)) => *widest = (*widest).max(*width),
                None => carried.push((*index, *width)),
            }
        }
        BatchShape { rows, groups: self.states.tables.len(), carried }
    }

    /// Rows of an attention tile.
    pub(super) fn q_tile(&self) -> u32 {
        self.selector.tuning.constant(KernelFamily::AttnPrefill, "q_tile").unwrap_or(1)
    }
}

pub(super) fn no_graph(phase: Phase) -> BackendError {
    BackendError::Unsupported(format!("the program has no {phase:?} graph"))
}

/// A batch's sizes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    pub(super) rows: u32,
    pub(super) seqs: u32,
    pub(super) out: u32,
}

/// The smallest class that a batch fits into. The number of sequences matters only where rows are attended
/// in tiles.
pub(super) fn class_of(max_rows: u32, sizes: Sizes, selector: &Selector) -> ShapeClass {
    let bucket = |n: u32| if n == 0 { 0 } else { n.next_power_of_two().min(max_rows) };
    let rows = bucket(sizes.rows);
    let small = rows < selector.tuning.attention.prefill_rows;
    let seqs = if small { rows } else { bucket(sizes.seqs.min(sizes.rows)) };
    ShapeClass { rows, seqs, out_rows: bucket(sizes.out) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeApi;

    #[test]
    fn classes_are_powers_of_two_up_to_the_largest_batch() {
        let selector = FakeApi::selector();
        let class = |rows, seqs, out| {
            let c = class_of(24, Sizes { rows, seqs, out }, &selector);
            (c.rows, c.seqs, c.out_rows)
        };
        assert_eq!(class(1, 1, 1), (1, 1, 1));
        assert_eq!(class(3, 3, 3), (4, 4, 4), "small batches do not tell sequences apart");
        assert_eq!(class(3, 1, 0), (4, 4, 0));
        assert_eq!(class(9, 1, 1), (16, 1, 1), "tiles of one sequence");
        assert_eq!(class(9, 5, 5), (16, 8, 8));
        assert_eq!(class(20, 20, 20), (24, 24, 24), "no larger than the largest batch");
    }
}
