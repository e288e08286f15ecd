//! The laws of execution, on the reference and on the SIMD kernels.

use infr_cpu::{CpuBackend, CpuOptions};
use infr_testkit::{Tolerance, laws};

laws!(reference, Some(CpuBackend::new(CpuOptions::reference())), Tolerance::EXACT);
laws!(simd, Some(CpuBackend::new(CpuOptions::default())), Tolerance { max: 1e-3, rms: 3e-4 });
laws!(
    strict,
    Some(CpuBackend::new(CpuOptions { strict: true, ..CpuOptions::default() })),
    Tolerance::EXACT
);
