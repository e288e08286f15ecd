//! Softmax attention over a paged cache, without materialised score matrices.
//!
//! Keys are taken in blocks of 64 positions and chunks of 128, both at multiples of the absolute position.
//! Each chunk has its own running maximum, sum and weighted values (Milakov and Gimelshein, 2018; Dao et al., 2022),
//! and chunks are merged in order. So a row's result depends on its query and its visible keys alone: not on the
//! rows beside it, nor on how chunks are spread over threads.
//! Reading order: this file (interface and plan), [`block`] (one block of keys), [`task`].

mod block;
mod task;
#[cfg(test)]
mod tests;

use std::ops::Range;

use half::f16;
use infr_tensor::DType;

use super::Runner;
use super::pool::Shared;
use task::{Job, Partials, Task};

/// Positions of one block of keys.
pub(crate) const KEY_BLOCK: usize = 64;
/// Positions of one chunk: the unit of work when a context is split over threads.
pub(crate) const CHUNK: usize = 2 * KEY_BLOCK;
/// Query vectors of one task, roughly.
const TASK_QUERIES: usize = 64;

/// Sizes and score function of an attention.
#[derive(Debug, Clone, Copy)]
pub struct AttentionShape<'a> {
    /// Query heads.
    pub heads: usize,
    /// Key/value heads; divides `heads`.
    pub kv_heads: usize,
    /// Elements of a query and key head.
    pub key_dim: usize,
    /// Elements of a value head.
    pub value_dim: usize,
    /// Multiplies the scores.
    pub scale: f32,
    /// `c·tanh(score/c)` after the scale.
    pub softcap: Option<f32>,
    /// One logit per query head that joins the softmax without a value.
    pub sinks: Option<&'a [f32]>,
}

/// Rows of a cache: `[page][token][width]`.
#[derive(Debug, Clone, Copy)]
pub enum KvData<'a> {
    /// Single precision.
    F32(&'a [f32]),
    /// Half precision.
    F16(&'a [f16]),
    /// Any type with a codec, as stored.
    Coded(DType, &'a [u8]),
}

/// The paged cache of one layer.
#[derive(Debug, Clone, Copy)]
pub struct KvCache<'a> {
    /// Keys: rows of `kv_heads · key_dim`.
    pub keys: KvData<'a>,
    /// Values: rows of `kv_heads · value_dim`; `None` when a head's values are the first part of its keys.
    pub values: Option<KvData<'a>>,
    /// Tokens of a page.
    pub page_len: usize,
}

/// Neighbouring rows of the batch that belong to one sequence.
#[derive(Debug, Clone)]
pub struct AttentionSeq<'a> {
    /// Rows of the batch.
    pub rows: Range<usize>,
    /// Page of each `page_len` positions.
    pub pages: &'a [u32],
}

/// Positions `lo..hi` that a row sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    /// First position.
    pub lo: u32,
    /// One past the last position.
    pub hi: u32,
}

/// The rows of a step and what they see.
#[derive(Debug, Clone, Copy)]
pub struct AttentionRows<'a> {
    /// Sequences; rows of no sequence keep their output.
    pub seqs: &'a [AttentionSeq<'a>],
    /// Visible positions of every row of the batch.
    pub visible: &'a [Interval],
    /// Queries: rows of `heads · key_dim`.
    pub q: &'a [f32],
}

/// Attends every query head of every row to the positions it sees; a row that sees nothing gets zeros.
///
/// `out` has rows of `heads · value_dim`.
///
/// # Panics
/// When sizes disagree, or a visible position lies outside its sequence's pages or the cache.
pub fn attention(
    run: Runner<'_>,
    shape: &AttentionShape<'_>,
    cache: &KvCache<'_>,
    rows: &AttentionRows<'_>,
    out: &mut [f32],
) {
    check(shape, cache, rows, out.len());
    let level = run.level.or_scalar();
    let tasks = plan(shape, rows, run.pool.n_threads());
    let vectors = shape.value_dim.next_multiple_of(16);
    let n_partials = tasks.iter().map(|t| t.partials_end()).max().unwrap_or(0);
    let mut partials = Partials::new(n_partials, vectors);
    let (shared, target) = (partials.share(), Shared::new(out));
    run.pool.run(tasks.len(), &|i| {
        let job = Job { shape, cache, rows, task: &tasks[i], partials: shared, out: target };
        // SAFETY: sizes were checked above; tasks write disjoint outputs and partial results.
        unsafe { task::run(level, &job) }
    });
    // Tasks that split a context left the state of each chunk: the first task of each split merges them.
    let splits: Vec<&Task> = tasks.iter().filter(|t| t.merges()).collect();
    run.pool.run(splits.len(), &|i| {
        // SAFETY: as above; every task of the split has ended.
        unsafe { task::merge(level, shape, splits[i], shared, target) }
    });
}

fn check(shape: &AttentionShape<'_>, cache: &KvCache<'_>, rows: &AttentionRows<'_>, out: usize) {
    let &AttentionShape { heads, kv_heads, key_dim, value_dim, .. } = shape;
    assert!(kv_heads > 0 && heads.is_multiple_of(kv_heads), "{heads} heads on {kv_heads}");
    assert!(shape.sinks.is_none_or(|s| s.len() == heads), "one sink per head");
    assert!(cache.values.is_some() || value_dim <= key_dim, "values within keys");
    let capacity = cache.keys.rows(kv_heads * key_dim);
    let capacity = match cache.values {
        Some(values) => capacity.min(values.rows(kv_heads * value_dim)),
        None => capacity,
    };
    for seq in rows.seqs {
        assert!(seq.rows.end <= rows.visible.len(), "a row without a visible range");
        assert!(seq.rows.end * heads * key_dim <= rows.q.len(), "queries are too short");
        assert!(seq.rows.end * heads * value_dim <= out, "output is too short");
        for range in &rows.visible[seq.rows.clone()] {
            if range.lo < range.hi {
                let pages = range.lo as usize / cache.page_len
                    ..(range.hi as usize).div_ceil(cache.page_len);
                assert!(pages.end <= seq.pages.len(), "position {} has no page", range.hi - 1);
                let inside = |p: &u32| (*p as usize + 1) * cache.page_len <= capacity;
                assert!(seq.pages[pages].iter().all(inside), "page outside the cache");
            }
        }
    }
}

impl KvData<'_> {
    /// Whole rows of `width` elements.
    fn rows(&self, width: usize) -> usize {
        match self {
            KvData::F32(data) => data.len() / width,
            KvData::F16(data) => data.len() / width,
            KvData::Coded(dtype, bytes) => {
                assert!(width.is_multiple_of(dtype.block_len()), "rows of whole blocks");
                bytes.len() / (width / dtype.block_len() * dtype.block_bytes())
            }
        }
    }
}

/// Cuts the rows into tasks, and contexts into chunks where there are too few rows for the threads.
fn plan(shape: &AttentionShape<'_>, rows: &AttentionRows<'_>, n_threads: usize) -> Vec<Task> {
    let group = shape.heads / shape.kv_heads;
    let task_rows = (TASK_QUERIES / group).max(1);
    let mut tasks = Vec::new();
    for (seq_idx, seq) in rows.seqs.iter().enumerate() {
        for start in seq.rows.clone().step_by(task_rows) {
            let part = start..(start + task_rows).min(seq.rows.end);
            let seen = rows.visible[part.clone()].iter().filter(|v| v.lo < v.hi);
            let lo = seen.clone().map(|v| v.lo as usize).min().unwrap_or(0);
            let hi = seen.map(|v| v.hi as usize).max().unwrap_or(0);
            for kv_head in 0..shape.kv_heads {
                tasks.push(Task::new(
                    seq_idx,
                    part.clone(),
                    kv_head,
                    lo / CHUNK..hi.div_ceil(CHUNK),
                ));
            }
        }
    }
    if n_threads == 1 || tasks.len() >= 4 * n_threads {
        return tasks;
    }
    let chunks: usize = tasks.iter().map(|t| t.chunks.len()).sum();
    let per_task = chunks.div_ceil(4 * n_threads).max(2);
    let mut split = Vec::new();
    let mut next = 0;
    for task in tasks {
        next = task.split_into(per_task, group, next, &mut split);
    }
    split
}
