//! Splits an output buffer over the threads of the pool, in safe code.

use std::sync::{Mutex, PoisonError};

use crate::threads::ThreadPool;

/// Calls `work(index, part)` for every `len` elements of `out`, on all threads.
///
/// Which thread computes a part does not change its value.
pub(crate) fn for_parts<T: Send>(
    pool: &ThreadPool,
    out: &mut [T],
    len: usize,
    work: impl Fn(usize, &mut [T]) + Sync,
) {
    if out.is_empty() || len == 0 {
        return;
    }
    let n_parts = out.len().div_ceil(len);
    if n_parts == 1 || pool.n_threads() == 1 {
        out.chunks_mut(len).enumerate().for_each(|(i, part)| work(i, part));
        return;
    }
    // Some pieces per thread: uneven work evens out, and a piece is still worth a claim.
    let per_task = n_parts.div_ceil(pool.n_threads() * 4);
    let tasks: Vec<Mutex<&mut [T]>> = out.chunks_mut(len * per_task).map(Mutex::new).collect();
    pool.run(tasks.len(), &|task| {
        let mut piece = tasks[task].lock().unwrap_or_else(PoisonError::into_inner);
        for (i, part) in piece.chunks_mut(len).enumerate() {
            work(task * per_task + i, part);
        }
    });
}
