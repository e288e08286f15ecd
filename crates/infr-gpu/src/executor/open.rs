//! Opening a program and letting go of it.

use std::collections::{HashMap, VecDeque};

use infr_backend::{BackendError, Placement, WeightSource};
use infr_graph::{Phase, Program};

use super::base::{Base, Sizes, class_of};
use super::record::{Key, RingSlot};
use super::{Device, GpuExecutor, RING};
use crate::api::{Api, MemoryKind};
use crate::plan::{Back, Signature};
use crate::rope::RopeTables;
use crate::states::{States, geometry};
use crate::weights;

impl<A: Api> GpuExecutor<A> {
    /// Loads a program.
    ///
    /// # Errors
    /// When an op, type or state has no kernel, a weight cannot be had, or memory does not suffice.
    pub fn open(
        device: Device<A>,
        program: &Program,
        source: &dyn WeightSource,
        placement: &Placement,
    ) -> Result<GpuExecutor<A>, BackendError> {
        let Device { mut api, selector, options } = device;
        infr_graph::verify::verify_program(program)
            .map_err(|e| BackendError::Unsupported(e.to_string()))?;
        let signature = |(phase, graph): &(Phase, _)| Signature::new(*phase, graph, program);
        let mut base = Base {
            weights: weights::forms(program, &selector)?,
            states: geometry(program, placement)?,
            ropes: RopeTables::new(program),
            signatures: program.graphs.iter().map(signature).collect(),
            program: program.clone(),
            selector,
            options,
        };
        let max_rows = placement.max_rows;
        let largest = class_of(
            max_rows,
            Sizes { rows: max_rows, seqs: placement.slots, out: placement.slots.min(max_rows) },
            &base.selector,
        );
        base.check(largest)?;
        base.check(class_of(max_rows, Sizes { rows: 1, seqs: 1, out: 1 }, &base.selector))?;
        let loaded = weights::load(&mut api, program, source, &base.weights)?;
        base.weights.clone_from(&loaded.places);
        let rope_buffer = base.ropes.upload(&mut api, program, source)?;
        let states = States::new(&mut api, base.states, placement)?;
        base.states = states.places.clone();
        let mut ring = Vec::new();
        for _ in 0..RING {
            ring.push(RingSlot::new(&mut api, &base, max_rows)?);
        }
        let mut arena_bytes = 256;
        for signature in &base.signatures {
            arena_bytes = arena_bytes.max(base.plan(signature.phase, largest)?.arena);
        }
        let arena = api.allocate("activations", MemoryKind::Device, arena_bytes)?;
        let mut executor = GpuExecutor {
            recorded: HashMap::new(),
            recordings: RING as u64,
            timeline: 0,
            next_ticket: 0,
            open: VecDeque::new(),
            last: None,
            drawn: Vec::new(),
            patches: Vec::new(),
            api,
            base,
            loaded,
            rope_buffer,
            states,
            ring,
            arena,
            arena_bytes,
            max_rows,
        };
        executor.warm(placement.slots)?;
        Ok(executor)
    }

    /// Records the plans of small decode batches in both ring slots.
    fn warm(&mut self, slots: u32) -> Result<(), BackendError> {
        if !self.base.options.warm || self.base.program.graph(Phase::Forward).is_none() {
            return Ok(());
        }
        let mut rows = 1;
        while rows <= slots.min(self.max_rows).min(8) {
            for ring in 0..RING {
                let class = self.class(Sizes { rows, seqs: rows, out: rows });
                let key = Key { phase: Phase::Forward, class, back: Back::default(), ring };
                self.prepare(key)?;
            }
            rows *= 2;
        }
        Ok(())
    }
}

impl<A: Api> Drop for GpuExecutor<A> {
    fn drop(&mut self) {
        if let Err(error) = self.api.wait(self.timeline) {
            tracing::warn!(%error, "the device did not finish");
        }
        self.forget(|_| true);
        for mut slot in self.ring.drain(..) {
            self.api.destroy(slot.patch);
            slot.batch.free(&mut self.api);
            if let Some((buffer, _)) = slot.back {
                self.api.free(buffer);
            }
        }
        self.states.free(&mut self.api);
        for buffer in self.loaded.buffers.drain(..).chain(self.rope_buffer.take()) {
            self.api.free(buffer);
        }
        self.api.free(self.arena.clone());
    }
}
