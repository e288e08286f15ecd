//! One task: the query heads of some rows that share a key/value head, over a range of chunks.

use std::ops::Range;

use super::block::{Block, Scratch, block};
use super::{AttentionRows, AttentionShape, CHUNK, KEY_BLOCK, KvCache};
use crate::fast::math::exp2;
use crate::fast::pool::Shared;
use crate::fast::simd::{LANES, Simd, SimdLevel, simd_entry};

pub(super) struct Task {
    seq: usize,
    rows: Range<usize>,
    kv_head: usize,
    pub(super) chunks: Range<usize>,
    /// Where the states of a split context go: the first chunk's place, and how many chunks there are.
    partials: Option<(usize, usize)>,
    /// Place of this task's first chunk within them.
    offset: usize,
    n_queries: usize,
}

impl Task {
    pub(super) fn new(
        seq: usize,
        rows: Range<usize>,
        kv_head: usize,
        chunks: Range<usize>,
    ) -> Task {
        Task { seq, rows, kv_head, chunks, partials: None, offset: 0, n_queries: 0 }
    }

    /// Splits the task into parts of `per_task` chunks whose states start at place `next`; returns the
    /// next free place.
    pub(super) fn split_into(
        self,
        per_task: usize,
        group: usize,
        next: usize,
        out: &mut Vec<Task>,
    ) -> usize {
        let n_chunks = self.chunks.len();
        if n_chunks <= per_task {
            out.push(self);
            return next;
        }
        let n_queries = self.rows.len() * group;
        for start in self.chunks.clone().step_by(per_task) {
            out.push(Task {
                seq: self.seq,
                rows: self.rows.clone(),
                kv_head: self.kv_head,
                chunks: start..(start + per_task).min(self.chunks.end),
                partials: Some((next, n_chunks)),
                offset: start - self.chunks.start,
                n_queries,
            });
        }
        next + n_chunks * n_queries
    }

    /// One past the last state of the split that this task belongs to.
    pub(super) fn partials_end(&self) -> usize {
        self.partials.map_or(0, |(start, n_chunks)| start + n_chunks * self.n_queries)
    }

    /// Whether this is the first part of a split.
    pub(super) fn merges(&self) -> bool {
        self.partials.is_some() && self.offset == 0
    }
}

/// Running softmax of some queries: maximum and sum of each, and weighted sums of values. Scores are exponents
/// of two.
pub(super) struct Partials {
    max_sum: Vec<[f32; 2]>,
    values: Vec<f32>,
    width: usize,
}

/// [`Partials`] that tasks fill at disjoint places.
#[derive(Clone, Copy)]
pub(super) struct SharedPartials {
    max_sum: Shared<[f32; 2]>,
    values: Shared<f32>,
    width: usize,
}

impl Partials {
    pub(super) fn new(len: usize, width: usize) -> Partials {
        Partials {
            max_sum: vec![[f32::NEG_INFINITY, 0.0]; len],
            values: vec![0.0; len * width],
            width,
        }
    }

    pub(super) fn share(&mut self) -> SharedPartials {
        SharedPartials {
            max_sum: Shared::new(&mut self.max_sum),
            values: Shared::new(&mut self.values),
            width: self.width,
        }
    }

    fn clear(&mut self) {
        self.max_sum.fill([f32::NEG_INFINITY, 0.0]);
        self.values.fill(0.0);
    }
}

/// What a task works with.
pub(super) struct Job<'a> {
    pub(super) shape: &'a AttentionShape<'a>,
    pub(super) cache: &'a KvCache<'a>,
    pub(super) rows: &'a AttentionRows<'a>,
    pub(super) task: &'a Task,
    pub(super) partials: SharedPartials,
    pub(super) out: Shared<f32>,
}

/// # Safety
/// The level is available, sizes agree, and no other task writes this task's outputs and states.
pub(super) unsafe fn run(level: SimdLevel, job: &Job<'_>) {
    // SAFETY: the caller's contract.
    unsafe { run_job(level, job) }
}

/// # Safety
/// As [`run`]; the tasks of the split have ended.
pub(super) unsafe fn merge(
    level: SimdLevel,
    shape: &AttentionShape<'_>,
    task: &Task,
    partials: SharedPartials,
    out: Shared<f32>,
) {
    // SAFETY: the caller's contract.
    unsafe { merge_split(level, shape, task, partials, out) }
}

simd_entry! { unsafe fn run_job(job: &Job<'_>) = run_job_generic }
simd_entry! {
    unsafe fn merge_split(
        shape: &AttentionShape<'_>, task: &Task, partials: SharedPartials, out: Shared<f32>,
    ) = merge_split_generic
}

#[inline(always)]
unsafe fn run_job_generic<S: Simd>(job: &Job<'_>) {
    let (task, shape) = (job.task, job.shape);
    let seq = &job.rows.seqs[task.seq];
    let group = shape.heads / shape.kv_heads;
    let n_queries = task.rows.len() * group;
    let width = shape.value_dim.next_multiple_of(LANES);
    let mut scratch = Scratch::new(shape, n_queries);
    // Scores are exponents of two; a soft cap needs them as they are first.
    let scale = match shape.softcap {
        Some(_) => shape.scale,
        None => shape.scale * std::f32::consts::LOG2_E,
    };
    for (i, row) in task.rows.clone().enumerate() {
        let q = &job.rows.q[(row * shape.heads + task.kv_head * group) * shape.key_dim..];
        scratch.set_queries(i * group, &q[..group * shape.key_dim], scale);
        scratch.visible[i * group..][..group].fill(job.rows.visible[row]);
    }
    let mut total = Partials::new(n_queries, width);
    let mut state = Partials::new(n_queries, width);
    let chunks = task.chunks.clone();
    for (i, chunk) in chunks.enumerate() {
        state.clear();
        for start in (chunk * CHUNK..(chunk + 1) * CHUNK).step_by(KEY_BLOCK) {
            let what =
                Block { shape, cache: job.cache, pages: seq.pages, kv_head: task.kv_head, start };
            // SAFETY: the caller's contract; states have one place per query.
            unsafe { block::<S>(&what, &mut scratch, &mut state.max_sum, &mut state.values) }
        }
        match task.partials {
            Some((first, _)) => {
                let at = first + (task.offset + i) * n_queries;
                // SAFETY: these places belong to this chunk of this split alone.
                unsafe {
                    let max_sum = job.partials.max_sum.part(at, n_queries);
                    max_sum.copy_from_slice(&state.max_sum);
                    let values = job.partials.values.part(at * width, n_queries * width);
                    values.copy_from_slice(&state.values);
                }
            }
            // SAFETY: both states have the same number of queries.
            None => unsafe { join::<S>(&mut total, &state.max_sum, &state.values) },
        }
    }
    if task.partials.is_none() {
        // SAFETY: the caller's contract.
        unsafe { finish::<S>(shape, task, &total, job.out) }
    }
}

#[inline(always)]
unsafe fn merge_split_generic<S: Simd>(
    shape: &AttentionShape<'_>,
    task: &Task,
    partials: SharedPartials,
    out: Shared<f32>,
) {
    let Some((first, n_chunks)) = task.partials else { return };
    let (n, width) = (task.n_queries, partials.width);
    let mut total = Partials::new(n, width);
    for chunk in 0..n_chunks {
        let at = first + chunk * n;
        // SAFETY: the caller's contract: nobody writes the states any more.
        unsafe {
            let max_sum = partials.max_sum.part(at, n);
            let values = partials.values.part(at * width, n * width);
            join::<S>(&mut total, max_sum, values);
        }
    }
    // SAFETY: the caller's contract.
    unsafe { finish::<S>(shape, task, &total, out) }
}

/// Adds the state of a later chunk to `total`.
#[inline(always)]
unsafe fn join<S: Simd>(total: &mut Partials, max_sum: &[[f32; 2]], values: &[f32]) {
    let width = total.width;
    for (i, (total_ms, ms)) in total.max_sum.iter_mut().zip(max_sum).enumerate() {
        if ms[0] == f32::NEG_INFINITY {
            continue;
        }
        let max = if total_ms[0] > ms[0] { total_ms[0] } else { ms[0] };
        // SAFETY: the caller's contract; both value rows have `width` elements, a multiple of 16.
        unsafe {
            let (old, new) = (exp2_one::<S>(total_ms[0] - max), exp2_one::<S>(ms[0] - max));
            *total_ms = [max, total_ms[1] * old + ms[1] * new];
            let into = total.values.as_mut_ptr().add(i * width);
            let from = values.as_ptr().add(i * width);
            for v in (0..width).step_by(LANES) {
                let scaled = S::mul(S::load(from.add(v)), S::splat(new));
                let sum = S::fma(S::load(into.add(v)), S::splat(old), scaled);
                S::store(into.add(v), sum);
            }
        }
    }
}

#[inline(always)]
pub(super) unsafe fn exp2_one<S: Simd>(x: f32) -> f32 {
    if x == 0.0 {
        // The same value, without the latency: most blocks do not raise the maximum.
        return 1.0;
    }
    let mut lanes = [0f32; LANES];
    // SAFETY: the caller's contract; `lanes` has 16 places.
    unsafe { S::store(lanes.as_mut_ptr(), exp2::<S>(S::splat(x))) };
    lanes[0]
}

/// Divides by the sums, sinks included, and writes the outputs.
#[inline(always)]
unsafe fn finish<S: Simd>(
    shape: &AttentionShape<'_>,
    task: &Task,
    total: &Partials,
    out: Shared<f32>,
) {
    let group = shape.heads / shape.kv_heads;
    for (i, &[max, sum]) in total.max_sum.iter().enumerate() {
        let head = task.kv_head * group + i % group;
        let row = task.rows.start + i / group;
        // SAFETY: the caller's contract: this query's output belongs to this task.
        unsafe {
            let out = out.part((row * shape.heads + head) * shape.value_dim, shape.value_dim);
            if max == f32::NEG_INFINITY {
                out.fill(0.0);
                continue;
            }
            let factor = match shape.sinks {
                Some(sinks) => {
                    let sink = sinks[head] * std::f32::consts::LOG2_E;
                    let top = if sink > max { sink } else { max };
                    let shrink = exp2_one::<S>(max - top);
                    shrink / (sum * shrink + exp2_one::<S>(sink - top))
                }
                None => 1.0 / sum,
            };
            let values = &total.values[i * total.width..][..shape.value_dim];
            for (out, value) in out.iter_mut().zip(values) {
                *out = value * factor;
            }
        }
    }
}
