//! One block of 64 keys against all queries of a task: scores, softmax weights, weighted values.

use super::task::exp2_one;
use super::{AttentionShape, Interval, KEY_BLOCK, KvCache, KvData};
use crate::fast::math::{exp2, tanh};
use crate::fast::simd::{LANES, Simd};

/// Vectors of keys in a block.
const KEY_VECTORS: usize = KEY_BLOCK / LANES;

/// Which keys are read.
pub(super) struct Block<'a> {
    pub(super) shape: &'a AttentionShape<'a>,
    pub(super) cache: &'a KvCache<'a>,
    pub(super) pages: &'a [u32],
    pub(super) kv_head: usize,
    /// First position, a multiple of 64.
    pub(super) start: usize,
}

/// Buffers of a task.
pub(super) struct Scratch {
    /// Scaled queries.
    q: Vec<f32>,
    pub(super) visible: Vec<Interval>,
    /// Keys with the position as lane: `[key_dim][64]`.
    keys: Vec<f32>,
    /// Values `[64][value_dim rounded up]`, where they cannot be read in place.
    values: Vec<f32>,
    /// Scores, then weights: `[query][64]`.
    scores: Vec<f32>,
    row: Vec<f32>,
}

impl Scratch {
    pub(super) fn new(shape: &AttentionShape<'_>, n_queries: usize) -> Scratch {
        Scratch {
            q: vec![0.0; n_queries * shape.key_dim],
            visible: vec![Interval { lo: 0, hi: 0 }; n_queries],
            keys: vec![0.0; shape.key_dim.next_multiple_of(LANES) * KEY_BLOCK],
            values: vec![0.0; shape.value_dim.next_multiple_of(LANES) * KEY_BLOCK],
            scores: vec![0.0; n_queries * KEY_BLOCK],
            row: Vec::new(),
        }
    }

    /// Copies neighbouring queries, times `scale`.
    pub(super) fn set_queries(&mut self, first: usize, q: &[f32], scale: f32) {
        let key_dim = self.q.len() / self.visible.len();
        for (out, q) in self.q[first * key_dim..].iter_mut().zip(q) {
            *out = q * scale;
        }
    }
}

/// Adds the block's keys to the running softmax of every query that sees some of them.
///
/// # Safety
/// The level exists; visible positions lie inside the pages and the cache; `max_sum` has a place per query
/// and `values` a row of `value_dim` rounded up to 16.
#[inline(always)]
pub(super) unsafe fn block<S: Simd>(
    what: &Block<'_>,
    scratch: &mut Scratch,
    max_sum: &mut [[f32; 2]],
    values: &mut [f32],
) {
    // Queries that see the block, and the keys that any of them sees.
    let inside = |v: &Interval| {
        let lo = (v.lo as usize).max(what.start);
        let hi = (v.hi as usize).min(what.start + KEY_BLOCK);
        (lo < hi).then(|| (lo - what.start, hi - what.start))
    };
    let mut seeing = None;
    let mut keys = (KEY_BLOCK, 0);
    for (i, v) in scratch.visible.iter().enumerate() {
        if let Some((lo, hi)) = inside(v) {
            let (first, _) = seeing.unwrap_or((i, i));
            seeing = Some((first, i + 1));
            keys = (keys.0.min(lo), keys.1.max(hi));
        }
    }
    let Some((first, end)) = seeing else { return };
    let shape = what.shape;
    let width = shape.value_dim.next_multiple_of(LANES);
    // SAFETY: the caller's contract; buffers have the sizes that `Scratch::new` gave them.
    unsafe {
        load_keys::<S>(what, keys, scratch);
        let value_rows = load_values::<S>(what, keys, scratch);
        // Vectors of keys that somebody sees; scores behind them are masked whatever they are.
        let n_vectors = keys.1.div_ceil(LANES);
        let mut i = first;
        while i < end {
            let n = (end - i).min(if S::MAX_ROWS >= 16 { 4 } else { 2 });
            let q = scratch.q.as_ptr().add(i * shape.key_dim);
            let scores = scratch.scores.as_mut_ptr().add(i * KEY_BLOCK);
            let kt = scratch.keys.as_ptr();
            match n {
                4 => score_queries::<S, 4>(q, shape.key_dim, kt, scores, n_vectors),
                3 => score_queries::<S, 3>(q, shape.key_dim, kt, scores, n_vectors),
                2 => score_queries::<S, 2>(q, shape.key_dim, kt, scores, n_vectors),
                _ => score_queries::<S, 1>(q, shape.key_dim, kt, scores, n_vectors),
            }
            let mut rescale = [1f32; 4];
            for m in 0..n {
                let range = inside(&scratch.visible[i + m]).unwrap_or((0, 0));
                let scores = &mut scratch.scores[(i + m) * KEY_BLOCK..][..KEY_BLOCK];
                rescale[m] = soften::<S>(shape.softcap, range, scores, &mut max_sum[i + m]);
            }
            let weigh = Weigh {
                weights: scratch.scores.as_ptr().add(i * KEY_BLOCK),
                rows: &value_rows,
                keys,
                out: values.as_mut_ptr().add(i * width),
                width,
                rescale,
            };
            match n {
                4 => weigh_values::<S, 4>(&weigh),
                3 => weigh_values::<S, 3>(&weigh),
                2 => weigh_values::<S, 2>(&weigh),
                _ => weigh_values::<S, 1>(&weigh),
            }
            i += n;
        }
    }
}

/// Row of the cache that holds position `start + key`.
#[inline(always)]
fn cache_row(what: &Block<'_>, key: usize) -> usize {
    let position = what.start + key;
    let page = what.pages[position / what.cache.page_len] as usize;
    page * what.cache.page_len + position % what.cache.page_len
}

/// Sixteen elements from `at`, of a type that is read in place.
#[inline(always)]
unsafe fn load_lanes<S: Simd>(data: KvData<'_>, at: usize) -> S::F {
    // SAFETY: the caller's contract: 16 elements from `at` lie inside the cache.
    unsafe {
        match data {
            KvData::F32(x) => S::load(x.as_ptr().add(at)),
            KvData::F16(x) => S::load_f16(x.as_ptr().add(at).cast()),
            KvData::Coded(..) => S::splat(0.0),
        }
    }
}

/// Decodes `len` elements of a cache row from `at` on, through `row`.
fn decode(data: KvData<'_>, (row_idx, width): (usize, usize), at: usize, row: &mut Vec<f32>) {
    row.resize(width, 0.0);
    match data {
        KvData::F32(x) => row.copy_from_slice(&x[row_idx * width..][..width]),
        KvData::F16(x) => {
            for (out, x) in row.iter_mut().zip(&x[row_idx * width..][..width]) {
                *out = x.to_f32();
            }
        }
        KvData::Coded(dtype, bytes) => {
            let len = width / dtype.block_len() * dtype.block_bytes();
            if let Some(codec) = infr_tensor::quant::codec(dtype) {
                codec.decode(&bytes[row_idx * len..][..len], row);
            }
        }
    }
    row.drain(..at);
}

/// Brings the keys `lo..hi` of the block into lanes.
#[inline(always)]
unsafe fn load_keys<S: Simd>(what: &Block<'_>, (lo, hi): (usize, usize), scratch: &mut Scratch) {
    let (dim, width) = (what.shape.key_dim, what.shape.kv_heads * what.shape.key_dim);
    let head = what.kv_head * dim;
    let in_place = !matches!(what.cache.keys, KvData::Coded(..)) && dim.is_multiple_of(LANES);
    if !in_place {
        for key in lo..hi {
            decode(what.cache.keys, (cache_row(what, key), width), head, &mut scratch.row);
            for (d, value) in scratch.row[..dim].iter().enumerate() {
                scratch.keys[d * KEY_BLOCK + key] = *value;
            }
        }
        return;
    }
    for first in (lo / LANES * LANES..hi).step_by(LANES) {
        // Keys that nobody sees repeat a seen one; their scores are masked.
        let mut rows = [0usize; LANES];
        for (i, row) in rows.iter_mut().enumerate() {
            *row = cache_row(what, (first + i).clamp(lo, hi - 1)) * width + head;
        }
        for d in (0..dim).step_by(LANES) {
            // SAFETY: the caller's contract; `d + 16 <= dim`, and `keys` has a row of 64 per element.
            unsafe {
                let mut tile = [S::splat(0.0); LANES];
                for (lanes, row) in tile.iter_mut().zip(rows) {
                    *lanes = load_lanes::<S>(what.cache.keys, row + d);
                }
                S::transpose(&mut tile);
                for (i, lanes) in tile.into_iter().enumerate() {
                    S::store(scratch.keys.as_mut_ptr().add((d + i) * KEY_BLOCK + first), lanes);
                }
            }
        }
    }
}

/// Where the values of each key of the block stand, as `f32` rows of a multiple of 16.
#[inline(always)]
unsafe fn load_values<S: Simd>(
    what: &Block<'_>,
    (lo, hi): (usize, usize),
    scratch: &mut Scratch,
) -> [*const f32; KEY_BLOCK] {
    let shape = what.shape;
    let dim = shape.value_dim;
    let (data, head_dim) = match what.cache.values {
        Some(values) => (values, dim),
        None => (what.cache.keys, shape.key_dim),
    };
    let (width, head) = (shape.kv_heads * head_dim, what.kv_head * head_dim);
    let stride = dim.next_multiple_of(LANES);
    let mut rows = [scratch.values.as_ptr(); KEY_BLOCK];
    for (key, place) in rows.iter_mut().enumerate().take(hi).skip(lo) {
        let row = cache_row(what, key);
        // SAFETY: the caller's contract; `values` has a row of `stride` per key.
        unsafe {
            let copy = scratch.values.as_mut_ptr().add(key * stride);
            *place = copy;
            match data {
                KvData::F32(x) if dim == stride => *place = x.as_ptr().add(row * width + head),
                KvData::F16(_) if dim == stride => {
                    for d in (0..dim).step_by(LANES) {
                        S::store(copy.add(d), load_lanes::<S>(data, row * width + head + d));
                    }
                }
                _ => {
                    decode(data, (row, width), head, &mut scratch.row);
                    copy.copy_from_nonoverlapping(scratch.row.as_ptr(), dim);
                }
            }
        }
    }
    rows
}

/// Scores of `M` queries with the first `n_vectors` vectors of keys.
#[inline(always)]
unsafe fn score_queries<S: Simd, const M: usize>(
    q: *const f32,
    key_dim: usize,
    keys: *const f32,
    scores: *mut f32,
    n_vectors: usize,
) {
    // Levels with 16 registers of 8 lanes take half of the keys at a time.
    let most = if S::MAX_ROWS >= 16 { KEY_VECTORS } else { 2 };
    let mut first = 0;
    while first < n_vectors {
        let n = (n_vectors - first).min(most);
        // SAFETY: the caller's contract; keys and scores have 64 places per row.
        unsafe {
            let (keys, scores) = (keys.add(first * LANES), scores.add(first * LANES));
            match n {
                4 => score_keys::<S, M, 4>(q, key_dim, keys, scores),
                3 => score_keys::<S, M, 3>(q, key_dim, keys, scores),
                2 => score_keys::<S, M, 2>(q, key_dim, keys, scores),
                _ => score_keys::<S, M, 1>(q, key_dim, keys, scores),
            }
        }
        first += n;
    }
}

#[inline(always)]
unsafe fn score_keys<S: Simd, const M: usize, const N: usize>(
    q: *const f32,
    key_dim: usize,
    keys: *const f32,
    scores: *mut f32,
) {
    // SAFETY: the caller's contract.
    unsafe {
        let mut acc = [[S::splat(0.0); N]; M];
        for d in 0..key_dim {
            let row = keys.add(d * KEY_BLOCK);
            let mut k = [S::splat(0.0); N];
            for (n, k) in k.iter_mut().enumerate() {
                *k = S::load(row.add(n * LANES));
            }
            for (m, acc) in acc.iter_mut().enumerate() {
                let q = S::splat(*q.add(m * key_dim + d));
                for (acc, k) in acc.iter_mut().zip(k) {
                    *acc = S::fma(q, k, *acc);
                }
            }
        }
        for (m, acc) in acc.into_iter().enumerate() {
            for (n, acc) in acc.into_iter().enumerate() {
                S::store(scores.add(m * KEY_BLOCK + n * LANES), acc);
            }
        }
    }
}

/// Turns the scores of one query into weights; returns what earlier weights are multiplied with.
#[inline(always)]
unsafe fn soften<S: Simd>(
    softcap: Option<f32>,
    (lo, hi): (usize, usize),
    scores: &mut [f32],
    [max, sum]: &mut [f32; 2],
) -> f32 {
    if lo >= hi {
        scores.fill(0.0);
        return 1.0;
    }
    let p = scores.as_mut_ptr();
    // SAFETY: the caller's contract; `scores` has 64 places.
    unsafe {
        if let Some(cap) = softcap {
            for v in (0..KEY_BLOCK).step_by(LANES) {
                let capped = tanh::<S>(S::mul(S::load(p.add(v)), S::splat(1.0 / cap)));
                S::store(p.add(v), S::mul(capped, S::splat(cap * std::f32::consts::LOG2_E)));
            }
        }
        scores[..lo].fill(f32::NEG_INFINITY);
        scores[hi..].fill(f32::NEG_INFINITY);
        let mut top = S::load(p);
        for v in (LANES..KEY_BLOCK).step_by(LANES) {
            top = S::max(top, S::load(p.add(v)));
        }
        let top = S::largest(top);
        let new_max = if top > *max { top } else { *max };
        let mut total = S::splat(0.0);
        for v in (0..KEY_BLOCK).step_by(LANES) {
            let weight = exp2::<S>(S::sub(S::load(p.add(v)), S::splat(new_max)));
            total = S::add(total, weight);
            S::store(p.add(v), weight);
        }
        let factor = exp2_one::<S>(*max - new_max);
        *max = new_max;
        *sum = *sum * factor + S::sum(total);
        factor
    }
}

/// Weighted values of some queries.
struct Weigh<'a> {
    /// `[query][64]`.
    weights: *const f32,
    rows: &'a [*const f32; KEY_BLOCK],
    keys: (usize, usize),
    /// `[query][width]`.
    out: *mut f32,
    width: usize,
    rescale: [f32; 4],
}

#[inline(always)]
unsafe fn weigh_values<S: Simd, const M: usize>(w: &Weigh<'_>) {
    let mut at = 0;
    let most = if S::MAX_ROWS >= 16 { 4 } else { 2 };
    while at < w.width {
        // SAFETY: the caller's contract: the vectors from `at` lie inside the rows.
        unsafe {
            match ((w.width - at) / LANES).min(most) {
                4.. => {
                    weigh_vectors::<S, M, 4>(w, at);
                    at += 4 * LANES;
                }
                2.. => {
                    weigh_vectors::<S, M, 2>(w, at);
                    at += 2 * LANES;
                }
                _ => {
                    weigh_vectors::<S, M, 1>(w, at);
                    at += LANES;
                }
            }
        }
    }
}

#[inline(always)]
unsafe fn weigh_vectors<S: Simd, const M: usize, const N: usize>(w: &Weigh<'_>, at: usize) {
    // SAFETY: the caller's contract.
    unsafe {
        let mut acc = [[S::splat(0.0); N]; M];
        for (m, acc) in acc.iter_mut().enumerate() {
            let out = w.out.add(m * w.width + at);
            for (n, acc) in acc.iter_mut().enumerate() {
                *acc = S::mul(S::load(out.add(n * LANES)), S::splat(w.rescale[m]));
            }
        }
        for key in w.keys.0..w.keys.1 {
            let row = w.rows[key].add(at);
            let mut v = [S::splat(0.0); N];
            for (n, v) in v.iter_mut().enumerate() {
                *v = S::load(row.add(n * LANES));
            }
            for (m, acc) in acc.iter_mut().enumerate() {
                let weight = S::splat(*w.weights.add(m * KEY_BLOCK + key));
                for (acc, v) in acc.iter_mut().zip(v) {
                    *acc = S::fma(weight, v, *acc);
                }
            }
        }
        for (m, acc) in acc.into_iter().enumerate() {
            let out = w.out.add(m * w.width + at);
            for (n, acc) in acc.into_iter().enumerate() {
                S::store(out.add(n * LANES), acc);
            }
        }
    }
}
