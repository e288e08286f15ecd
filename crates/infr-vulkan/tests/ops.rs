//! Every op that lowers, against the reference; the others must say that they are not supported.

mod support;

use infr_gpu::GpuOptions;
use infr_testkit::cases::cases;
use infr_testkit::ops::{compare_case, reference};

/// Checks the cases with one of these prefixes.
fn check(options: GpuOptions, prefixes: &[&str]) {
    let Some(backend) = support::backend(options) else { return };
    let reference = reference();
    let (mut ran, mut faults, mut refused) = (0, Vec::new(), Vec::new());
    for case in cases() {
        if !prefixes.iter().any(|p| case.name.starts_with(p)) {
            continue;
        }
        match compare_case(&reference, &backend, &case) {
            Ok(()) => ran += 1,
            Err(what) if what.contains("not supported here") => refused.push((case.name, what)),
            Err(what) => faults.push(format!("{}: {what}", case.name)),
        }
    }
    assert!(faults.is_empty(), "{} are off, {ran} are not\n{}", faults.len(), faults.join("\n"));
    println!("{ran} cases ran, {} are not supported", refused.len());
    // Ops without kernels, values that alias keys, caches of other types, weight types without a file.
    let known = ["op ", "alias", "cache of type", "no kernel"];
    refused.retain(|(_, what)| !known.iter().any(|k| what.contains(k)));
    assert!(refused.is_empty(), "refused: {refused:?}");
    assert!(ran > 0, "no case ran");
}

macro_rules! groups {
    ($name:ident, $options:expr) => {
        mod $name {
            use super::*;

            #[test]
            fn linear() {
                check($options, &["linear"]);
            }

            #[test]
            fn rows() {
                check($options, &["embed", "gather_out"]);
            }

            #[test]
            fn norms() {
                check($options, &["rms_norm"]);
            }

            #[test]
            fn rope() {
                check($options, &["rope"]);
            }

            #[test]
            fn attention() {
                check($options, &["attention"]);
            }

            #[test]
            fn elementwise() {
                check($options, &["gated_act", "unary", "add", "scale", "slice", "concat"]);
            }

            #[test]
            fn sample() {
                check($options, &["sample"]);
            }
        }
    };
}

groups!(fast, GpuOptions::default());
groups!(strict, GpuOptions { strict: true, ..GpuOptions::default() });
