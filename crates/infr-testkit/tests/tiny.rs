//! The tiny models of every family on the CPU backend: SIMD against the reference, and the laws of
//! execution.

use infr_cpu::{CpuBackend, CpuOptions};
use infr_testkit::{DType, Tolerance, laws, models, tiny};

fn simd() -> Option<CpuBackend> {
    Some(CpuBackend::new(CpuOptions::default()))
}

models!(simd_f32, simd(), "F32", Tolerance { max: 5e-3, rms: 1e-3 });
// Rounded activations, amplified by random weights.
models!(simd_q4_k_m, simd(), "Q4_K_M", Tolerance { max: 0.8, rms: 0.2 });
models!(simd_q8_0, simd(), "Q8_0", Tolerance { max: 0.8, rms: 0.2 });

#[test]
fn the_reference_keeps_the_laws() {
    let backend = CpuBackend::new(CpuOptions::reference());
    for subject in tiny::subjects("F32", DType::F16) {
        laws::check(&backend, &subject, Tolerance::EXACT);
    }
}

#[test]
fn strict_simd_keeps_the_laws() {
    let backend = CpuBackend::new(CpuOptions { strict: true, ..CpuOptions::default() });
    for subject in tiny::subjects("Q4_K_M", DType::F16) {
        laws::check(&backend, &subject, Tolerance::EXACT);
    }
}
