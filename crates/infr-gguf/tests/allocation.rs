//! Memory stays within a small multiple of the file, whatever the file claims. The counter is
//! global, so this is the only test of its binary.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod common;

use common::{Raw, sample};
use infr_gguf::Gguf;
use peak_alloc::PeakAlloc;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Bytes that opening takes at most, beyond the file itself.
fn opening(bytes: Vec<u8>) -> usize {
    ALLOCATOR.reset_peak_usage();
    let before = ALLOCATOR.current_usage();
    drop(Gguf::from_bytes("m", bytes));
    ALLOCATOR.peak_usage().saturating_sub(before)
}

fn check(bytes: Vec<u8>) {
    let allowed = 12 * bytes.len() + 4096;
    let taken = opening(bytes);
    assert!(taken <= allowed, "{taken} bytes taken, {allowed} allowed");
}

#[test]
fn memory_is_bounded_by_the_file() {
    assert!(opening(sample()) > 1000, "the counter counts");
    // The densest files: many short keys, many tensors of rank 0, many empty strings.
    let keys =
        (0..20_000).fold(Raw::start(0, 20_000), |r, n| r.str(&format!("{n:x}")).u32(0).bytes(&[0]));
    check(keys.0);
    let tensors =
        (0..20_000).fold(Raw::start(20_000, 0), |r, n| r.entry(&format!("{n:x}"), &[], 0, n * 32));
    check(tensors.clone().0);
    check(tensors.pad(32).data(20_000 * 32).0);
    let strings = Raw::start(0, 1).str("k").u32(9).u32(8).u64(100_000);
    check((0..100_000).fold(strings, |r, _| r.str("")).0);
    // Claims far beyond the file.
    for element in 0..13 {
        check(Raw::start(0, 1).str("k").u32(9).u32(element).u64(1 << 28).data(1000).0);
    }
    let mut runner = TestRunner::new(Config::with_cases(2000));
    let damage = (8usize..500, prop_oneof![any::<u64>(), 0..100u64, Just(1 << 27), Just(65_536)]);
    let result = runner.run(&damage, |(at, number)| {
        let mut bytes = sample();
        bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
        check(bytes);
        Ok(())
    });
    result.unwrap();
}
