//! The unsafe core of the thread pool: a job slot that lends a borrowed closure to the workers.
//!
//! One word holds the epoch of the job, whether it is open, and how many workers have joined it. A worker
//! joins by compare-and-swap while the job is open; the caller closes the job when no task is left and waits
//! for the joined workers only, so a worker that wakes late costs nothing. Workers spin for a short time
//! after a job and then sleep on a condition variable.

use std::any::Any;
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What the workers run, valid while the job that carries it is open or joined.
type Task = *const (dyn Fn(usize) + Sync);

const OPEN: u64 = 1 << 31;
const JOINED: u64 = OPEN - 1;

/// How long an idle worker looks for the next job before it sleeps: longer than the serial parts between
/// the matrix products of a step, shorter than anything a user sees in a process monitor.
const SPIN: Duration = Duration::from_micros(150);

pub(crate) struct Slot {
    /// Epoch in the upper half, then [`OPEN`], then the joined workers.
    state: AtomicU64,
    next: AtomicUsize,
    n_tasks: AtomicUsize,
    task: UnsafeCell<Option<Task>>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    sleepers: AtomicUsize,
    stop: AtomicBool,
    sleep: Mutex<()>,
    wake: Condvar,
    caller: Mutex<()>,
}

// SAFETY: `task` is written only by the thread that holds `caller`, while no worker is joined, and read
// only by joined workers; the closure behind it is `Sync`.
unsafe impl Sync for Slot {}
// SAFETY: the pointer is only dereferenced while the thread that lent it waits in `run`.
unsafe impl Send for Slot {}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Slot {
    pub(crate) fn new() -> Slot {
        Slot {
            state: AtomicU64::new(0),
            next: AtomicUsize::new(0),
            n_tasks: AtomicUsize::new(0),
            task: UnsafeCell::new(None),
            panic: Mutex::new(None),
            sleepers: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            sleep: Mutex::new(()),
            wake: Condvar::new(),
            caller: Mutex::new(()),
        }
    }

    /// Runs `task(0..n_tasks)` on the calling thread and on whichever workers join in time.
    pub(crate) fn run(&self, n_tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        // A nested or concurrent call finds the slot taken and does its own work alone.
        let Ok(_caller) = self.caller.try_lock() else {
            (0..n_tasks).for_each(task);
            return;
        };
        // SAFETY: only the lifetime changes. The job is closed and has no joined worker before this
        // function returns or unwinds (`drain`), so no worker sees the closure after its borrow ends.
        let lent: Task = unsafe {
            std::mem::transmute::<*const (dyn Fn(usize) + Sync + '_), Task>(std::ptr::from_ref(
                task,
            ))
        };
        // SAFETY: the slot is closed and drained, and `caller` is held, so nobody else accesses the cell.
        unsafe { *self.task.get() = Some(lent) };
        self.next.store(0, Ordering::Relaxed);
        self.n_tasks.store(n_tasks, Ordering::Relaxed);
        let epoch = (self.state.load(Ordering::Relaxed) >> 32).wrapping_add(1);
        self.state.store(epoch << 32 | OPEN, Ordering::Release);
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            drop(lock(&self.sleep));
            self.wake.notify_all();
        }
        self.work(task);
        self.drain();
        if let Some(payload) = lock(&self.panic).take() {
            std::panic::resume_unwind(payload);
        }
    }

    /// Closes the job and waits until every joined worker has left it.
    fn drain(&self) {
        self.state.fetch_and(!OPEN, Ordering::AcqRel);
        let mut spins = 0u32;
        while self.state.load(Ordering::Acquire) & JOINED != 0 {
            spins += 1;
            if spins < 4096 { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
    }

    /// Claims tasks until none is left; a panic is kept for the caller and ends the claiming.
    fn work(&self, task: &(dyn Fn(usize) + Sync)) {
        let n_tasks = self.n_tasks.load(Ordering::Relaxed);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            loop {
                let idx = self.next.fetch_add(1, Ordering::Relaxed);
                if idx >= n_tasks {
                    break;
                }
                task(idx);
            }
        }));
        if let Err(payload) = outcome {
            self.next.store(n_tasks, Ordering::Relaxed);
            lock(&self.panic).get_or_insert(payload);
        }
    }

    /// Body of a worker thread; returns after [`Slot::stop`].
    pub(crate) fn serve(&self) {
        let mut done = 0;
        while let Some(epoch) = self.join(done) {
            done = epoch;
            // SAFETY: this worker has joined, so the caller is inside `run` and the cell holds its task.
            let task = unsafe { (*self.task.get()).map(|t| &*t) };
            if let Some(task) = task {
                self.work(task);
            }
            self.state.fetch_sub(1, Ordering::Release);
        }
    }

    /// Waits for an open job other than `done`, joins it and returns its epoch; `None` on stop.
    fn join(&self, done: u64) -> Option<u64> {
        let mut since = None;
        let mut spins = 0u32;
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return None;
            }
            let state = self.state.load(Ordering::Acquire);
            let epoch = state >> 32;
            if state & OPEN != 0 && epoch != done {
                let joined = self.state.compare_exchange_weak(
                    state,
                    state + 1,
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                );
                if joined.is_ok() {
                    return Some(epoch);
                }
                continue;
            }
            std::hint::spin_loop();
            spins += 1;
            if spins.is_multiple_of(64) && since.get_or_insert_with(Instant::now).elapsed() > SPIN {
                self.sleep_until_job(done);
                since = None;
            }
        }
    }

    fn sleep_until_job(&self, done: u64) {
        let mut guard = lock(&self.sleep);
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        loop {
            let state = self.state.load(Ordering::SeqCst);
            let job = state & OPEN != 0 && state >> 32 != done;
            if job || self.stop.load(Ordering::SeqCst) {
                break;
            }
            guard = self.wake.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Tells the workers to return.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        drop(lock(&self.sleep));
        self.wake.notify_all();
    }
}

/// A pointer into an output that tasks write in disjoint parts.
pub(crate) struct Shared<T>(*mut T);

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Shared<T> {
        *self
    }
}

impl<T> Copy for Shared<T> {}

// SAFETY: users write disjoint ranges from different tasks and only within the lifetime of the slice that
// the pointer was taken from.
unsafe impl<T: Send> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Shared<T> {
    pub(crate) fn new(slice: &mut [T]) -> Shared<T> {
        Shared(slice.as_mut_ptr())
    }

    pub(crate) fn ptr(self) -> *mut T {
        self.0
    }

    /// The part `start..start + len`.
    ///
    /// # Safety
    /// The range lies inside the slice, which outlives the result, and no other task touches it.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn part<'a>(self, start: usize, len: usize) -> &'a mut [T] {
        // SAFETY: the caller's contract.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(start), len) }
    }
}
