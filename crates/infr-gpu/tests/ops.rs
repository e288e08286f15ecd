//! Every op that lowers, against the reference; the others must say that they are not supported.

#![allow(clippy::unwrap_used)]

use infr_backend::{Backend, BackendError};
use infr_gpu::GpuOptions;
use infr_gpu::fake::FakeBackend;
use infr_testkit::cases::cases;
use infr_testkit::ops::{compare_case, reference};

/// Prefixes of the cases whose ops have no kernel.
const UNSUPPORTED: &[&str] = &[
    "linear_t",
    "head_linear",
    "expert_linear",
    "route",
    "combine",
    "l2_norm",
    "norms",
    "position_scale",
    "conv1d",
    "delta_net",
    "sample softmax",
];

fn check(options: GpuOptions) {
    let backend = FakeBackend::new(options);
    let reference = reference();
    let (mut ran, mut faults, mut refused) = (0, Vec::new(), Vec::new());
    for case in cases() {
        match backend.eval(&case.eval) {
            Err(BackendError::Unsupported(what)) => refused.push((case.name.clone(), what)),
            _ => {
                ran += 1;
                if let Err(fault) = compare_case(&reference, &backend, &case) {
                    faults.push(format!("{}: {fault}", case.name));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{} of {ran} are off\n{}", faults.len(), faults.join("\n"));
    refused.retain(|(name, _)| !UNSUPPORTED.iter().any(|p| name.starts_with(p)));
    println!("{ran} cases ran");
    // Values that alias keys, and caches of other types.
    refused.retain(|(_, what)| !what.contains("alias") && !what.contains("cache of type"));
    assert!(refused.is_empty(), "refused: {refused:?}");
    assert!(ran >= 150, "only {ran} cases ran");
}

#[test]
fn fused() {
    check(GpuOptions::default());
}

#[test]
fn strict() {
    check(GpuOptions { strict: true, ..GpuOptions::default() });
}
