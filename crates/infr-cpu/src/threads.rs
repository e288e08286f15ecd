//! The crate's own thread pool: persistent workers, dynamic claiming, the caller takes part.

use std::sync::Arc;
use std::thread::JoinHandle;

use crate::fast::pool::Slot;

/// A fixed set of threads that run the tasks of one job at a time.
///
/// Workers spin briefly between jobs and then sleep, so an idle pool uses no processor time.
pub struct ThreadPool {
    slot: Arc<Slot>,
    workers: Vec<JoinHandle<()>>,
}

impl ThreadPool {
    /// A pool that computes on `n_threads` threads, the calling one included.
    ///
    /// Where the system refuses a thread the pool works with fewer.
    pub fn new(n_threads: usize) -> ThreadPool {
        let slot = Arc::new(Slot::new());
        let workers = (1..n_threads)
            .map_while(|i| {
                let slot = Arc::clone(&slot);
                let builder = std::thread::Builder::new().name(format!("infr-cpu-{i}"));
                builder.spawn(move || slot.serve()).ok()
            })
            .collect();
        ThreadPool { slot, workers }
    }

    /// A pool with one thread per processor that this process may use.
    pub fn with_all_processors() -> ThreadPool {
        ThreadPool::new(std::thread::available_parallelism().map_or(1, usize::from))
    }

    /// Threads that compute, the caller included.
    pub fn n_threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `task` once for every index below `n_tasks`, from any thread and in any order, and returns
    /// when all calls have returned.
    ///
    /// Threads claim the next index when they are free. A call from inside a task, or while another thread
    /// uses the pool, runs all its tasks on the calling thread.
    ///
    /// # Panics
    /// When a task panics: the first panic is passed on after every running task has ended; tasks that had
    /// not started do not run.
    pub fn run(&self, n_tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        if n_tasks <= 1 || self.workers.is_empty() {
            (0..n_tasks).for_each(task);
        } else {
            self.slot.run(n_tasks, task);
        }
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.slot.stop();
        for worker in self.workers.drain(..) {
            // A worker cannot panic: task panics are caught and handed to the caller.
            let _ = worker.join();
        }
    }
}

impl std::fmt::Debug for ThreadPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ThreadPool").field("n_threads", &self.n_threads()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::ThreadPool;

    #[test]
    fn every_task_runs_once() {
        for n_threads in [0, 1, 2, 3, 8] {
            let pool = ThreadPool::new(n_threads);
            for n_tasks in [0, 1, 2, 3, 17, 1000] {
                let counts: Vec<AtomicUsize> = (0..n_tasks).map(|_| AtomicUsize::new(0)).collect();
                pool.run(n_tasks, &|i| {
                    counts[i].fetch_add(1, Ordering::Relaxed);
                });
                assert!(counts.iter().all(|c| c.load(Ordering::Relaxed) == 1));
            }
        }
    }

    #[test]
    fn many_small_jobs_with_sleeps_between() {
        let pool = ThreadPool::new(4);
        let total = AtomicUsize::new(0);
        for job in 0..20_000 {
            pool.run(5, &|i| {
                total.fetch_add(i, Ordering::Relaxed);
            });
            if job % 2_000 == 0 {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        assert_eq!(total.load(Ordering::Relaxed), 200_000);
    }

    #[test]
    fn panic_reaches_the_caller_and_the_pool_survives() {
        let pool = ThreadPool::new(3);
        for _ in 0..50 {
            let caught = catch_unwind(AssertUnwindSafe(|| {
                pool.run(64, &|i| assert!(i != 20, "task {i}"));
            }));
            let message = caught.expect_err("a task panics");
            assert_eq!(message.downcast_ref::<String>().map(String::as_str), Some("task 20"));
            let ran = AtomicUsize::new(0);
            pool.run(9, &|_| {
                ran.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(ran.load(Ordering::Relaxed), 9);
        }
    }

    #[test]
    fn nested_and_concurrent_calls_finish() {
        let pool = ThreadPool::new(3);
        let ran = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        pool.run(4, &|_| {
                            pool.run(3, &|_| {
                                ran.fetch_add(1, Ordering::Relaxed);
                            });
                        });
                    }
                });
            }
        });
        assert_eq!(ran.load(Ordering::Relaxed), 3 * 200 * 12);
    }
}
