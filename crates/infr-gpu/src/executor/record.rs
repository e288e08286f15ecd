//! Recordings of plans, made once per key, and the buffers that their size asks for.

use std::sync::Arc;

use infr_backend::BackendError;
use infr_graph::{Phase, ShapeClass};
use infr_kernels::{Ask, KernelFamily, Work};

use super::GpuExecutor;
use super::base::Base;
use crate::api::{Api, MemoryKind};
use crate::barrier::with_barriers;
use crate::batch_buffers::{BatchBuffers, BatchPlaces};
use crate::dispatch::{Dispatch, Grid, Push};
use crate::lower::no_kernel;
use crate::plan::{Back, BackValue, Leaving};

/// What a recording was made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) phase: Phase,
    pub(super) class: ShapeClass,
    pub(super) back: Back,
    pub(super) ring: usize,
}

/// A plan in one ring slot.
#[derive(Debug)]
pub(super) struct Recorded<R> {
    pub(super) recording: R,
    pub(super) leaving: Vec<Option<Leaving>>,
    pub(super) back: Arc<[BackValue]>,
}

/// One of the two sets of buffers that steps alternate between.
#[derive(Debug)]
pub(super) struct RingSlot<A: Api> {
    pub(super) batch: BatchBuffers<A::Buffer>,
    /// The launch that applies patches, and nothing else.
    pub(super) patch: A::Recording,
    /// What the host reads beside tokens, and its bytes.
    pub(super) back: Option<(A::Buffer, u64)>,
    pub(super) busy: bool,
}

impl<A: Api> RingSlot<A> {
    pub(super) fn new(
        api: &mut A,
        base: &Base,
        max_rows: u32,
    ) -> Result<RingSlot<A>, BackendError> {
        let batch = BatchBuffers::new(api, &base.batch_shape(max_rows))?;
        let patch = api.record(&with_barriers(vec![patch_dispatch(base, &batch.places)?]))?;
        Ok(RingSlot { batch, patch, back: None, busy: false })
    }
}

fn patch_dispatch(base: &Base, batch: &BatchPlaces) -> Result<Dispatch, BackendError> {
    let work = Work::Kernel(KernelFamily::Patch);
    let ask = Ask { work, quant: None, strict: base.options.strict };
    let pick = base.selector.select(&ask).map_err(no_kernel)?;
    Ok(Dispatch {
        label: "patch".into(),
        kernel: pick.id,
        spec: pick.spec(&[]).map_err(no_kernel)?,
        push: Push::addresses(&[batch.counts, batch.patches, base.states.last.start]).finish(),
        grid: Grid::Fixed([4, 1, 1]),
        reads: Vec::new(),
        writes: Vec::new(),
    })
}

impl<A: Api> GpuExecutor<A> {
    /// Makes sure that the recording of a key exists.
    pub(super) fn prepare(&mut self, key: Key) -> Result<(), BackendError> {
        if self.recorded.contains_key(&key) {
            return Ok(());
        }
        let plan = self.base.plan(key.phase, key.class)?;
        if plan.arena > self.arena_bytes {
            self.grow_arena(plan.arena)?;
        }
        let (back, bytes) = plan.back(key.back);
        self.grow_back(key.ring, bytes)?;
        let slot = &self.ring[key.ring];
        let mut places = slot.batch.places.clone();
        if let Some((buffer, _)) = &slot.back {
            let base = self.api.address(buffer);
            places.back = back.iter().map(|v| (v.value, base + v.offset)).collect();
        }
        let list = plan.lower(self.base.ground(), &places, self.api.address(&self.arena))?;
        tracing::debug!(dispatches = list.dispatches.len(), ?key, "recording a plan");
        let recording = self.api.record(&list)?;
        self.recordings += 1;
        self.recorded
            .insert(key, Recorded { recording, leaving: plan.leaving(), back: back.into() });
        Ok(())
    }

    /// Gives a ring slot room for what goes back; more room ends the recordings that wrote to less.
    fn grow_back(&mut self, ring: usize, bytes: u64) -> Result<(), BackendError> {
        let have = self.ring[ring].back.as_ref().map_or(0, |(_, have)| *have);
        if bytes <= have {
            return Ok(());
        }
        self.api.wait(self.timeline)?;
        self.forget(|k| k.ring == ring && k.back != Back::default());
        if let Some((old, _)) = self.ring[ring].back.take() {
            self.api.free(old);
        }
        let new = self.api.allocate("rows for the host", MemoryKind::Readback, bytes)?;
        self.ring[ring].back = Some((new, bytes));
        Ok(())
    }

    /// A larger arena ends all recordings.
    fn grow_arena(&mut self, bytes: u64) -> Result<(), BackendError> {
        self.api.wait(self.timeline)?;
        self.forget(|_| true);
        let larger = self.api.allocate("activations", MemoryKind::Device, bytes)?;
        self.api.free(std::mem::replace(&mut self.arena, larger));
        self.arena_bytes = bytes;
        Ok(())
    }

    pub(super) fn forget(&mut self, which: impl Fn(&Key) -> bool) {
        let keys: Vec<Key> = self.recorded.keys().copied().filter(|k| which(k)).collect();
        for key in keys {
            if let Some(old) = self.recorded.remove(&key) {
                self.api.destroy(old.recording);
            }
        }
    }
}
