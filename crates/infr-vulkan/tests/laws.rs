//! The laws of execution: within rounding as planned for speed, to the bit in strict mode.

mod support;

use infr_gpu::GpuOptions;
use infr_testkit::{Tolerance, laws, subject};

/// Single precision, where a key may round to the neighbouring half.
const CLOSE: Tolerance = Tolerance { max: 2e-3, rms: 5e-4 };

fn check(options: GpuOptions, tolerance: Tolerance) {
    let Some(backend) = support::backend(options) else { return };
    laws::check(&backend, &subject::dense(), tolerance);
}

#[test]
fn fused_plans_keep_the_laws() {
    check(GpuOptions::default(), CLOSE);
}

#[test]
fn plain_plans_keep_the_laws() {
    check(GpuOptions { fuse: false, ..GpuOptions::default() }, CLOSE);
}

#[test]
fn strict_plans_keep_the_laws_to_the_bit() {
    check(GpuOptions { strict: true, ..GpuOptions::default() }, Tolerance::EXACT);
}
