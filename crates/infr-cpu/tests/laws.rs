//! The laws of execution, on the reference and on the SIMD kernels.

use infr_cpu::{CpuBackend, CpuOptions};
use infr_testkit::driver::Driver;
use infr_testkit::{Tolerance, laws, subject};

laws!(reference, Some(CpuBackend::new(CpuOptions::reference())), Tolerance::EXACT);
laws!(simd, Some(CpuBackend::new(CpuOptions::default())), Tolerance { max: 1e-3, rms: 3e-4 });
laws!(
    strict,
    Some(CpuBackend::new(CpuOptions { strict: true, ..CpuOptions::default() })),
    Tolerance::EXACT
);

/// Work is split over the threads in other ways, down to one context in pieces, and nothing changes.
#[test]
fn the_number_of_threads_does_not_matter() {
    for subject in subject::subjects() {
        let tokens: Vec<u32> = (0..300).map(|i| (i * 31 + 7) % subject.vocab).collect();
        for simd in [false, true] {
            let logits = |threads: usize| {
                let options = CpuOptions { simd, threads, ..CpuOptions::default() };
                let mut driver = Driver::new(&CpuBackend::new(options), &subject, 64, 1);
                let mut seq = driver.start();
                let mut rows = driver.logits(&mut seq, &tokens[..298]);
                rows.extend(driver.logits(&mut seq, &tokens[298..299]));
                rows.extend(driver.logits(&mut seq, &tokens[299..]));
                rows
            };
            assert!(logits(1) == logits(5), "{}, simd {simd}", subject.name);
        }
    }
}
