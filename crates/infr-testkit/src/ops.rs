//! Compares a backend with the reference, case by case.

use infr_backend::{Backend, EvalResult, RowOut, StepOutput};
use infr_cpu::{CpuBackend, CpuOptions};

use crate::cases::cases;
use crate::maker::Case;
use crate::tolerance::Tolerance;

/// The backend that defines the results.
pub fn reference() -> CpuBackend {
    CpuBackend::new(CpuOptions::reference())
}

/// Runs every case on `backend` and on the reference; `select` chooses cases by their name.
///
/// # Panics
/// When a result is off, naming all such cases.
pub fn conform(backend: &dyn Backend, select: impl Fn(&str) -> bool) {
    let reference = reference();
    let chosen: Vec<Case> = cases().into_iter().filter(|c| select(&c.name)).collect();
    assert!(!chosen.is_empty(), "no case is selected");
    let fault = |case: &Case| {
        let fault = compare_case(&reference, backend, case).err()?;
        Some(format!("{}: {fault}", case.name))
    };
    let faults: Vec<String> = chosen.iter().filter_map(fault).collect();
    let n = chosen.len();
    assert!(faults.is_empty(), "{} of {n} cases are off\n{}", faults.len(), faults.join("\n"));
}

/// Compares one case.
///
/// # Errors
/// What differs, or why a backend could not run it.
pub fn compare_case(
    reference: &dyn Backend,
    backend: &dyn Backend,
    case: &Case,
) -> Result<(), String> {
    let expected = reference.eval(&case.eval).map_err(|e| format!("the reference fails: {e}"))?;
    let found = backend.eval(&case.eval).map_err(|e| e.to_string())?;
    compare(&expected, &found, case.tolerance)
}

/// Compares everything that a case gives.
///
/// # Errors
/// What differs.
pub fn compare(
    expected: &EvalResult,
    found: &EvalResult,
    tolerance: Tolerance,
) -> Result<(), String> {
    if expected.values.len() != found.values.len() {
        let (e, f) = (expected.values.len(), found.values.len());
        return Err(format!("{f} values, expected {e}"));
    }
    for (index, (expected, found)) in expected.values.iter().zip(&found.values).enumerate() {
        tolerance.check(expected, found).map_err(|e| format!("value {index}: {e}"))?;
    }
    compare_output(&expected.output, &found.output, tolerance)
}

/// Compares what the rows of a step give back. Tokens must be equal.
///
/// # Errors
/// What differs.
pub fn compare_output(
    expected: &StepOutput,
    found: &StepOutput,
    tolerance: Tolerance,
) -> Result<(), String> {
    if expected.rows.len() != found.rows.len() {
        let (e, f) = (expected.rows.len(), found.rows.len());
        return Err(format!("{f} output rows, expected {e}"));
    }
    for (index, (expected, found)) in expected.rows.iter().zip(&found.rows).enumerate() {
        compare_row(expected, found, tolerance).map_err(|e| format!("output row {index}: {e}"))?;
    }
    for (index, (e, f)) in expected.carried.iter().zip(&found.carried).enumerate() {
        if e.width != f.width {
            return Err(format!("carried {index} has width {}, expected {}", f.width, e.width));
        }
        tolerance.check(&e.data, &f.data).map_err(|e| format!("carried {index}: {e}"))?;
    }
    Ok(())
}

fn compare_row(expected: &RowOut, found: &RowOut, tolerance: Tolerance) -> Result<(), String> {
    if expected.token != found.token {
        return Err(format!("token {:?}, expected {:?}", found.token, expected.token));
    }
    let ids = |row: &RowOut| row.top.iter().map(|t| t.0).collect::<Vec<_>>();
    if ids(expected) != ids(found) {
        return Err(format!("top {:?}, expected {:?}", found.top, expected.top));
    }
    let numbers = |row: &RowOut| {
        let mut out: Vec<f32> = row.logprob.into_iter().collect();
        out.extend(row.top.iter().map(|t| t.1));
        out
    };
    tolerance
        .check(&numbers(expected), &numbers(found))
        .map_err(|e| format!("log-probabilities: {e}"))?;
    tolerance.check(&expected.logits, &found.logits).map_err(|e| format!("logits: {e}"))?;
    tolerance.check(&expected.hidden, &found.hidden).map_err(|e| format!("hidden: {e}"))
}

/// Tests that a backend computes every op like the reference: one test per group of ops.
///
/// `conformance!(name, expression)` makes a module `name` whose tests each evaluate `expression` to an
/// `Option` of a backend; `None` reports that the device is absent.
#[macro_export]
macro_rules! conformance {
    ($name:ident, $backend:expr) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            fn run(prefixes: &[&str]) {
                match $backend {
                    Some(backend) => $crate::ops::conform(&backend, |name| {
                        prefixes.iter().any(|p| name.starts_with(p))
                    }),
                    None => println!("skipped: {} has no device here", stringify!($name)),
                }
            }

            #[test]
            fn linear() {
                run(&["linear", "embed", "head_linear", "gather_out"]);
            }

            #[test]
            fn experts() {
                run(&["expert_linear", "route", "combine"]);
            }

            #[test]
            fn norms() {
                run(&["rms_norm", "l2_norm", "norms"]);
            }

            #[test]
            fn positions() {
                run(&["rope", "position_scale"]);
            }

            #[test]
            fn attention() {
                run(&["attention"]);
            }

            #[test]
            fn elementwise() {
                run(&["gated_act", "unary", "add", "scale", "slice", "concat"]);
            }

            #[test]
            fn recurrent() {
                run(&["conv1d", "delta_net"]);
            }

            #[test]
            fn fused() {
                run(&["fused"]);
            }

            #[test]
            fn sample() {
                run(&["sample"]);
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use crate::cases::cases;

    /// Every case name starts with a prefix that the macro runs.
    #[test]
    fn no_case_is_left_out() {
        let prefixes = [
            "linear",
            "embed",
            "head_linear",
            "gather_out",
            "expert_linear",
            "route",
            "combine",
            "rms_norm",
            "l2_norm",
            "norms",
            "rope",
            "position_scale",
            "attention",
            "gated_act",
            "unary",
            "add",
            "scale",
            "slice",
            "concat",
            "conv1d",
            "delta_net",
            "sample",
            "fused",
        ];
        for case in cases() {
            assert!(prefixes.iter().any(|p| case.name.starts_with(p)), "{}", case.name);
        }
    }

    /// Every op of the IR stands in some case.
    #[test]
    fn every_op_has_a_case() {
        let mut seen = std::collections::BTreeSet::new();
        for case in cases() {
            for (_, graph) in &case.eval.program.graphs {
                seen.extend(graph.nodes.iter().map(|n| n.op.name()));
            }
        }
        let all = [
            "input",
            "embed",
            "linear",
            "linear_t",
            "head_linear",
            "expert_linear",
            "rms_norm",
            "l2_norm",
            "rope",
            "position_scale",
            "kv_write",
            "attention",
            "route",
            "combine",
            "spread",
            "gated_act",
            "unary",
            "add",
            "mul",
            "add_weight",
            "mul_weight",
            "scale",
            "softcap",
            "slice",
            "concat",
            "conv1d",
            "delta_net",
            "gather_out",
            "sample",
            "softmax",
            "entropy",
        ];
        let missing: Vec<_> = all.iter().filter(|op| !seen.contains(*op)).collect();
        assert!(missing.is_empty(), "no case for {missing:?}");
    }
}
