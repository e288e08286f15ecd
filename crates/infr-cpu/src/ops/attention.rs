//! Softmax attention over the cache (Vaswani et al., 2017; grouped queries: Ainslie et al., 2023).

use infr_backend::{SeqRows, Visible};
use infr_graph::{AttnSpec, Node};

use super::Context;
use super::linear::dot;
use crate::par::for_parts;
use crate::state::Paged;

/// The cache rows of one sequence that some row sees, expanded.
struct Gathered {
    /// Logical index of the first row.
    first: usize,
    keys: Vec<f32>,
    /// Empty when values are the first part of the keys.
    values: Vec<f32>,
}

/// Every query head of every row over the rows that it sees; a row that sees nothing gets zeros.
pub(crate) fn attention(
    cx: &Context<'_>,
    node: &Node,
    spec: &AttnSpec,
    cache: &Paged,
    out: &mut [f32],
) {
    let sinks = spec.sinks.then(|| cx.vector(node, 0)).flatten();
    let (heads, value_dim) = (spec.heads as usize, spec.value_dim as usize);
    let q_width = heads * spec.key_dim as usize;
    for seq in &cx.step.batch.seqs {
        let rows = seq.rows.start as usize..seq.rows.end as usize;
        let q = &cx.input(node, 0)[rows.start * q_width..rows.end * q_width];
        let out = &mut out[rows.start * heads * value_dim..rows.end * heads * value_dim];
        let visible =
            |row: usize| cx.step.batch.rows[rows.start + row].visible.as_slice()[cache.group];
        let gathered = gather(cx, cache, seq);
        for_parts(cx.pool, out, value_dim, |part, out| {
            let (row, head) = (part / heads, part % heads);
            let q = &q[part * spec.key_dim as usize..][..spec.key_dim as usize];
            let sink = sinks.map(|s| f64::from(s[head]));
            attend(spec, (&gathered, visible(row)), (q, head, sink), out);
        });
    }
}

fn gather(cx: &Context<'_>, cache: &Paged, seq: &SeqRows) -> Gathered {
    let rows = &cx.step.batch.rows[seq.rows.start as usize..seq.rows.end as usize];
    let ranges = rows.iter().map(|r| r.visible.as_slice()[cache.group]).filter(|v| v.lo < v.hi);
    let first = ranges.clone().map(|v| v.lo).min().unwrap_or(0) as usize;
    let end = ranges.clone().map(|v| v.hi).max().unwrap_or(0) as usize;
    let seen = |row: usize| ranges.clone().any(|v| (v.lo as usize..v.hi as usize).contains(&row));
    let mut keys = vec![0.0; (end - first) * cache.key_width];
    let mut values = vec![0.0; (end - first) * cache.value_width];
    let table = &seq.pages[cache.group];
    // Rows between two visible ranges may lie on pages that do not exist.
    let wanted: Vec<bool> = (first..end).map(seen).collect();
    for_parts(cx.pool, &mut keys, cache.key_width, |i, out| {
        if wanted[i] {
            cache.keys.read(cache.row(table, first + i), out);
        }
    });
    if let Some(pool) = &cache.values {
        for_parts(cx.pool, &mut values, cache.value_width, |i, out| {
            if wanted[i] {
                pool.read(cache.row(table, first + i), out);
            }
        });
    }
    Gathered { first, keys, values }
}

/// One query head: scores, softmax, weighted sum of values.
fn attend(
    spec: &AttnSpec,
    (cache, visible): (&Gathered, Visible),
    (q, head, sink): (&[f32], usize, Option<f64>),
    out: &mut [f32],
) {
    let (key_dim, value_dim) = (spec.key_dim as usize, spec.value_dim as usize);
    let kv_heads = spec.kv_heads as usize;
    let kv_head = head / (spec.heads as usize / kv_heads);
    if visible.lo >= visible.hi {
        return out.fill(0.0);
    }
    let rows = visible.lo as usize - cache.first..visible.hi as usize - cache.first;
    let score = |row: usize| {
        let key = &cache.keys[(row * kv_heads + kv_head) * key_dim..][..key_dim];
        let score = dot(q, key) * f64::from(spec.scale);
        match spec.softcap.map(f64::from) {
            Some(cap) => cap * (score / cap).tanh(),
            None => score,
        }
    };
    let mut weights: Vec<f64> = rows.clone().map(score).collect();
    let max = weights.iter().copied().chain(sink).fold(f64::NEG_INFINITY, f64::max);
    weights.iter_mut().for_each(|w| *w = (*w - max).exp());
    let total = weights.iter().sum::<f64>() + sink.map_or(0.0, |s| (s - max).exp());
    let mut sums = vec![0.0f64; value_dim];
    for (row, weight) in rows.zip(&weights) {
        let value = if cache.values.is_empty() {
            &cache.keys[row * key_dim..][..value_dim]
        } else {
            &cache.values[(row * kv_heads + kv_head) * value_dim..][..value_dim]
        };
        sums.iter_mut().zip(value).for_each(|(sum, v)| *sum += weight * f64::from(*v));
    }
    out.iter_mut().zip(&sums).for_each(|(out, sum)| *out = (sum / total) as f32);
}
