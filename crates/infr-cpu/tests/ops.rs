//! Every op, on every instruction set that this machine has, against the reference.

use infr_cpu::{CpuBackend, CpuOptions};
use infr_testkit::conformance;

// The reference itself on one thread: results do not depend on the number of threads.
conformance!(
    reference_on_one_thread,
    Some(CpuBackend::new(CpuOptions { threads: 1, ..CpuOptions::reference() }))
);
