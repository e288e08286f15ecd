//! A program opened on one device.
//!
//! A step is: check the batch, find the plan of its shape class, write the batch arrays of the free ring slot,
//! submit the plan's recording. Nothing is recorded once a class has been met in both ring slots, and
//! nothing waits for the device but `collect` and the operations that read it.

use std::collections::{HashMap, VecDeque};

use infr_backend::{
    BackendError, Batch, Executor, MemoryReport, Placement, Slot, StateOp, StepOutput, Ticket,
    TokenIn, WeightSource,
};
use infr_graph::{Output, Phase, Program, ShapeClass};
use infr_kernels::{KernelFamily, Selector};

use crate::api::{Api, MemoryKind};
use crate::barrier::with_barriers;
use crate::batch_buffers::{BatchBuffers, BatchPlaces, BatchShape, Filling, MAX_PATCHES};
use crate::check::Limits;
use crate::dispatch::{Dispatch, Grid, Push};
use crate::lower::{Ground, RowKind, no_kernel};
use crate::options::GpuOptions;
use crate::outputs::{Pending, Written, draw_on_host};
use crate::places::{StatePlaces, WeightPlace};
use crate::plan::{Back, BackValue, Leaving, Plan, Signature};
use crate::rope::RopeTables;
use crate::states::{Patch, States, geometry};
use crate::weights::{self, Weights};

/// Steps that may wait for collection, and buffers for what they need.
const RING: usize = 2;

/// What a recording was made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    phase: Phase,
    class: ShapeClass,
    back: Back,
    ring: usize,
}

/// A plan in one ring slot.
#[derive(Debug)]
struct Recorded<R> {
    recording: R,
    leaving: Vec<Option<Leaving>>,
    back: Vec<BackValue>,
}

/// One of the two sets of buffers that steps alternate between.
#[derive(Debug)]
struct RingSlot<A: Api> {
    batch: BatchBuffers<A::Buffer>,
    /// The launch that applies patches, and nothing else.
    patch: A::Recording,
    /// What the host reads beside tokens, and its bytes.
    back: Option<(A::Buffer, u64)>,
    busy: bool,
}

/// A submitted step.
#[derive(Debug)]
struct InFlight {
    ticket: Ticket,
    value: u64,
    key: Key,
    n_rows: usize,
    rows: Vec<Pending>,
    /// Its results, when they had to be taken before they were asked for.
    done: Option<StepOutput>,
}

/// The parts of a program that lowering stands on.
#[derive(Debug)]
struct Base {
    program: Program,
    selector: Selector,
    options: GpuOptions,
    weights: Vec<WeightPlace>,
    states: StatePlaces,
    ropes: RopeTables,
    signatures: Vec<Signature>,
}

impl Base {
    fn ground(&self) -> Ground<'_> {
        Ground {
            program: &self.program,
            selector: &self.selector,
            weights: &self.weights,
            states: &self.states,
            ropes: &self.ropes,
            strict: self.options.strict,
        }
    }

    fn plan(&self, phase: Phase, class: ShapeClass) -> Result<Plan, BackendError> {
        let graph = self.program.graph(phase).ok_or_else(|| no_graph(phase))?;
        Plan::new(graph, &self.ground(), class, self.options.fuse)
    }

    /// Lowers every graph once at made-up addresses: what has no kernel is found before anything loads.
    fn check(&self, class: ShapeClass) -> Result<(), BackendError> {
        let (places, _) = BatchPlaces::new(256, &self.batch_shape(class.rows));
        for signature in &self.signatures {
            self.plan(signature.phase, class)?.lower(self.ground(), &places, 256)?;
        }
        Ok(())
    }
}

fn no_graph(phase: Phase) -> BackendError {
    BackendError::Unsupported(format!("the program has no {phase:?} graph"))
}

/// Runs a program on one device.
#[derive(Debug)]
pub struct GpuExecutor<A: Api> {
    api: A,
    base: Base,
    loaded: Weights<A::Buffer>,
    rope_buffer: Option<A::Buffer>,
    states: States<A::Buffer>,
    ring: Vec<RingSlot<A>>,
    arena: A::Buffer,
    arena_bytes: u64,
    recorded: HashMap<Key, Recorded<A::Recording>>,
    recordings: u64,
    /// The last value that a submission will give the timeline.
    timeline: u64,
    next_ticket: u64,
    open: VecDeque<InFlight>,
    /// The plan that was submitted last.
    last: Option<Key>,
    max_rows: u32,
    /// Tokens that the host drew and the device does not know yet.
    drawn: Vec<(Slot, u32)>,
    patches: Vec<Patch>,
}

/// What an executor is opened with, beside the program.
#[derive(Debug)]
pub struct Device<A> {
    /// The API on one device.
    pub api: A,
    /// Its kernels and how they are chosen.
    pub selector: Selector,
    /// How work is planned.
    pub options: GpuOptions,
}

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

    /// How many recordings were made so far: stays as it is while decoding.
    pub fn recordings(&self) -> u64 {
        self.recordings
    }

    /// The device's API, for tests and profiles.
    pub fn api(&self) -> &A {
        &self.api
    }

    /// Dispatches of the plan of a batch with `rows` sequences of one row each.
    ///
    /// # Errors
    /// When an op or a type has no kernel.
    pub fn decode_plan(&self, rows: u32) -> Result<Vec<Dispatch>, BackendError> {
        let class = self.class(Sizes { rows, seqs: rows, out: rows });
        let plan = self.base.plan(Phase::Forward, class)?;
        let arena = self.api.address(&self.arena);
        Ok(plan.lower(self.base.ground(), &self.ring[0].batch.places, arena)?.dispatches)
    }

    fn class(&self, sizes: Sizes) -> ShapeClass {
        class_of(self.max_rows, sizes, &self.base.selector)
    }

    fn next_value(&mut self) -> u64 {
        self.timeline += 1;
        self.timeline
    }

    /// Makes sure that the recording of a key exists.
    fn prepare(&mut self, key: Key) -> Result<(), BackendError> {
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
        self.recorded.insert(key, Recorded { recording, leaving: plan.leaving(), back });
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

    fn forget(&mut self, which: impl Fn(&Key) -> bool) {
        let keys: Vec<Key> = self.recorded.keys().copied().filter(|k| which(k)).collect();
        for key in keys {
            if let Some(old) = self.recorded.remove(&key) {
                self.api.destroy(old.recording);
            }
        }
    }

    /// Takes the results of an open step, waiting for it.
    fn finish(&mut self, index: usize) -> Result<(), BackendError> {
        if self.open[index].done.is_some() {
            return Ok(());
        }
        self.api.wait(self.open[index].value)?;
        let step = &mut self.open[index];
        let slot = &mut self.ring[step.key.ring];
        let written = Written {
            api: &self.api,
            results: &slot.batch.results,
            back: self.recorded.get(&step.key).map_or(&[], |r| &r.back),
            buffer: slot.back.as_ref().map(|(buffer, _)| buffer),
            n_rows: step.n_rows,
        };
        let mut out = StepOutput::default();
        let drawn = written.collect(&step.rows, &mut out);
        step.done = Some(out);
        slot.busy = false;
        for (slot, token) in drawn {
            self.drawn.retain(|(s, _)| *s != slot);
            // A later step that is already submitted has the last word.
            let mut later = self.open.iter().skip(index + 1).flat_map(|step| &step.rows);
            if !later.any(|row| row.samples() && row.slot == slot) {
                self.drawn.push((slot, token));
            }
        }
        Ok(())
    }

    /// Sends changed table entries and tokens drawn by the host, before the step that needs them.
    fn send_patches(&mut self, batch: &Batch, ring: usize) -> Result<(), BackendError> {
        self.patches.clear();
        self.states.table_patches(batch, &mut self.patches)?;
        self.patches.extend(self.drawn.drain(..).map(|(slot, token)| [slot.0, token]));
        let patches = std::mem::take(&mut self.patches);
        let pieces = patches.chunks(MAX_PATCHES as usize);
        let n_pieces = pieces.len();
        for (index, piece) in pieces.enumerate() {
            self.ring[ring].batch.fill_patches(&mut self.api, piece);
            let value = self.next_value();
            self.api.submit(&self.ring[ring].patch, value)?;
            if index + 1 < n_pieces {
                // The next piece goes where this one lies.
                self.api.wait(value)?;
            }
        }
        self.patches = patches;
        Ok(())
    }

    /// Every graph output of the step submitted last, as `f32` rows: for `eval`.
    pub(crate) fn last_values(&mut self, batch: &Batch) -> Result<Vec<Vec<f32>>, BackendError> {
        let Some(recorded) = self.last.and_then(|key| self.recorded.get(&key)) else {
            return Ok(Vec::new());
        };
        let (out_rows, mut out) = (batch.out_rows(), Vec::new());
        let leaving: Vec<Leaving> = recorded.leaving.iter().flatten().cloned().collect();
        let mut logits = None;
        for value in &leaving {
            let n_rows = match value.rows {
                RowKind::Batch => batch.rows.len(),
                RowKind::Out => out_rows.len(),
            };
            let mut words = vec![0u32; n_rows * value.width as usize];
            let bytes = bytemuck::cast_slice_mut(&mut words);
            self.api.download(&self.arena, value.offset, bytes)?;
            let float = |w: u32| if value.is_ids { w as i32 as f32 } else { f32::from_bits(w) };
            out.push(words.into_iter().map(float).collect::<Vec<f32>>());
            if value.kind == Output::Logits {
                logits = Some((out.len() - 1, value.width as usize));
            }
        }
        // Where the device cannot draw, the host has the last word on tokens.
        let tokens = leaving.iter().position(|v| v.kind == Output::Tokens);
        if let (Some(tokens), Some((logits, vocab))) = (tokens, logits) {
            for (out_idx, row_idx) in out_rows.iter().enumerate() {
                let row = &batch.rows[*row_idx as usize];
                let params = &batch.seqs[usize::from(row.seq)].sample;
                if row.mask.is_some() || params.edits_logits() {
                    let logits = &out[logits][out_idx * vocab..][..vocab];
                    let host = (params.clone(), row.mask.clone());
                    out[tokens][out_idx] = draw_on_host(&host, row.position, logits) as f32;
                }
            }
        }
        Ok(out)
    }
}

/// A batch's sizes.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    rows: u32,
    seqs: u32,
    out: u32,
}

/// The smallest class that a batch fits into. The number of sequences matters only where rows are attended
/// in tiles.
fn class_of(max_rows: u32, sizes: Sizes, selector: &Selector) -> ShapeClass {
    let bucket = |n: u32| if n == 0 { 0 } else { n.next_power_of_two().min(max_rows) };
    let rows = bucket(sizes.rows);
    let small = rows < selector.tuning.attention.prefill_rows;
    let seqs = if small { rows } else { bucket(sizes.seqs.min(sizes.rows)) };
    ShapeClass { rows, seqs, out_rows: bucket(sizes.out) }
}

impl<A: Api> RingSlot<A> {
    fn new(api: &mut A, base: &Base, max_rows: u32) -> Result<RingSlot<A>, BackendError> {
        let batch = BatchBuffers::new(api, &base.batch_shape(max_rows))?;
        let patch = api.record(&with_barriers(vec![patch_dispatch(base, &batch.places)?]))?;
        Ok(RingSlot { batch, patch, back: None, busy: false })
    }
}

fn patch_dispatch(base: &Base, batch: &BatchPlaces) -> Result<Dispatch, BackendError> {
    let work = infr_kernels::Work::Kernel(KernelFamily::Patch);
    let ask = infr_kernels::Ask { work, quant: None, strict: base.options.strict };
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

impl<A: Api> Executor for GpuExecutor<A> {
    fn submit(&mut self, phase: Phase, batch: &Batch) -> Result<Ticket, BackendError> {
        if self.open.len() >= RING {
            return Err(BackendError::InvalidBatch(format!("{RING} steps are not collected")));
        }
        let graph = self.base.signatures.iter().find(|s| s.phase == phase);
        let graph = graph.ok_or_else(|| no_graph(phase))?;
        let limits = Limits {
            graph,
            pages: &self.states.pages,
            page_len: self.states.page_len,
            sampled: &self.states.sampled,
            max_rows: self.max_rows,
        };
        limits.check(batch)?;
        let out_rows = batch.out_rows();
        let pending = |row_idx: &u32| {
            let row = &batch.rows[*row_idx as usize];
            let seq = &batch.seqs[usize::from(row.seq)];
            Pending::new(row, seq.slot, &seq.sample, graph.samples)
        };
        let rows: Vec<Pending> = out_rows.iter().map(pending).collect();
        let carries = graph.carries;
        self.finish_for_tokens(batch)?;
        let Some(ring) = self.ring.iter().position(|r| !r.busy) else {
            return Err(BackendError::InvalidBatch("both ring slots are busy".into()));
        };
        let class = self.class(Sizes {
            rows: batch.rows.len() as u32,
            seqs: batch.seqs.len() as u32,
            out: out_rows.len() as u32,
        });
        let back = Back {
            logits: rows.iter().any(Pending::needs_logits),
            hidden: rows.iter().any(Pending::needs_hidden),
            carried: carries,
        };
        let key = Key { phase, class, back, ring };
        self.prepare(key)?;
        self.send_patches(batch, ring)?;
        let sampled: Vec<bool> = rows.iter().map(|r| !r.on_host()).collect();
        let filling = Filling {
            batch,
            out_rows: &out_rows,
            sampled: &sampled,
            page_len: self.states.page_len,
            q_tile: self.base.q_tile(),
        };
        self.ring[ring].batch.fill(&mut self.api, &filling);
        let value = self.next_value();
        self.api.submit(&self.recorded[&key].recording, value)?;
        for row in rows.iter().filter(|r| r.samples()) {
            self.states.sampled[row.slot.0 as usize] = true;
        }
        self.ring[ring].busy = true;
        self.last = Some(key);
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        let n_rows = batch.rows.len();
        self.open.push_back(InFlight { ticket, value, key, n_rows, rows, done: None });
        Ok(ticket)
    }

    fn collect(&mut self, ticket: Ticket, out: &mut StepOutput) -> Result<(), BackendError> {
        match self.open.front() {
            Some(oldest) if oldest.ticket == ticket => {}
            other => {
                let oldest = other.map(|step| step.ticket.0);
                return Err(BackendError::InvalidBatch(format!(
                    "ticket {} is not the oldest open one, which is {oldest:?}",
                    ticket.0
                )));
            }
        }
        self.finish(0)?;
        if let Some(result) = self.open.pop_front().and_then(|step| step.done) {
            *out = result;
        }
        Ok(())
    }

    fn state(&mut self, ops: &mut [StateOp<'_>]) -> Result<(), BackendError> {
        for op in ops {
            let value = self.timeline + 1;
            if self.states.apply(&mut self.api, op, value)? {
                self.timeline = value;
            }
            if let StateOp::Clear(slot) = op {
                // A token drawn before the slot was given away must not come back.
                self.drawn.retain(|(s, _)| s != slot);
            }
        }
        Ok(())
    }

    fn memory(&self) -> MemoryReport {
        let ring = |r: &RingSlot<A>| r.batch.bytes + r.back.as_ref().map_or(0, |(_, b)| *b);
        MemoryReport {
            weights: self.loaded.bytes,
            pages: self.states.bytes,
            slots: 0,
            scratch: self.arena_bytes + self.ring.iter().map(ring).sum::<u64>(),
        }
    }
}

impl<A: Api> GpuExecutor<A> {
    /// A token that the host draws is not on the device: the step that draws it ends first.
    fn finish_for_tokens(&mut self, batch: &Batch) -> Result<(), BackendError> {
        for index in 0..self.open.len() {
            let draws =
                |slot: Slot| self.open[index].rows.iter().any(|r| r.on_host() && r.slot == slot);
            let waits = batch.rows.iter().any(|row| match row.token {
                TokenIn::LastOf(slot) => draws(slot),
                TokenIn::Id(_) | TokenIn::Carried(_) => false,
            });
            if waits {
                self.finish(index)?;
            }
        }
        Ok(())
    }
}

impl Base {
    /// What the batch arrays are sized for.
    fn batch_shape(&self, rows: u32) -> BatchShape {
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
    fn q_tile(&self) -> u32 {
        self.selector.tuning.constant(KernelFamily::AttnPrefill, "q_tile").unwrap_or(1)
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
