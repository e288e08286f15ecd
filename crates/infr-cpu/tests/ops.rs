//! Every op, on every instruction set that this machine has, against the reference.

use infr_cpu::{CpuBackend, CpuOptions, SimdLevel};
use infr_testkit::conformance;

fn simd(level: SimdLevel) -> Option<CpuBackend> {
    let options = CpuOptions { level: Some(level), ..CpuOptions::default() };
    level.is_available().then(|| CpuBackend::new(options))
}

// The reference itself on one thread: results do not depend on the number of threads.
conformance!(
    reference_on_one_thread,
    Some(CpuBackend::new(CpuOptions { threads: 1, ..CpuOptions::reference() }))
);
conformance!(scalar, simd(SimdLevel::Scalar));
conformance!(avx2, simd(SimdLevel::Avx2));
conformance!(avx512, simd(SimdLevel::Avx512Vnni));
conformance!(neon, simd(SimdLevel::Neon));
