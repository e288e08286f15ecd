//! Tiny models of every family: the SIMD kernels against the reference, and the laws of execution.

use infr_cpu::{CpuBackend, CpuOptions};
use infr_graph::{Op, Program, StateKind};
use infr_tensor::DType;
use infr_testkit::driver::Driver;
use infr_testkit::tolerance::difference;
use infr_testkit::{Backend, Subject, Tolerance, laws, models, tiny};

fn simd() -> Option<CpuBackend> {
    Some(CpuBackend::new(CpuOptions::default()))
}

models!(simd_f32, simd(), "F32", Tolerance { max: 2e-2, rms: 4e-3 });

/// Whether small errors stay small: a choice of experts jumps, and recurrent states of random models
/// amplify.
fn is_steady(program: &Program) -> bool {
    let slots = program.states.iter().any(|s| matches!(s.kind, StateKind::Slot { .. }));
    let nodes = program.graphs.iter().flat_map(|(_, g)| &g.nodes);
    !slots && !nodes.into_iter().any(|n| matches!(n.op, Op::Route(_)))
}

/// Kernels of quantised types see activations rounded to bytes. Unrelated rows differ by 1.4 of their
/// spread.
fn mostly_close(mix: &str) {
    let (reference, simd) =
        (CpuBackend::new(CpuOptions::reference()), CpuBackend::new(CpuOptions::default()));
    for subject in tiny::subjects(mix, DType::F16) {
        let tokens: Vec<u32> = (0..24).map(|i| (i * 37 + 11) % subject.vocab).collect();
        let logits = |backend: &CpuBackend| {
            let mut driver = Driver::new(backend, &subject, 16, 3);
            let mut seq = driver.start();
            driver.logits(&mut seq, &tokens)
        };
        let (expected, found) = (logits(&reference), logits(&simd));
        let rows = expected.iter().zip(&found);
        let mut errors: Vec<f32> = rows.map(|(e, f)| difference(e, f).rms).collect();
        errors.sort_by(f32::total_cmp);
        let median = errors[errors.len() / 2];
        println!("{}: median {median:.3}, largest {:.3}", subject.name, errors[errors.len() - 1]);
        let bound = if is_steady(&subject.program) { 0.1 } else { 0.6 };
        assert!(median < bound, "{}: errors {errors:?}", subject.name);
    }
}

#[test]
fn simd_q8_0() {
    mostly_close("Q8_0");
}

#[test]
fn simd_q4_k_m() {
    mostly_close("Q4_K_M");
}

fn laws_on(backend: &dyn Backend, mix: &str, cache: DType, tolerance: Tolerance) {
    // Rows of the cache are whole blocks of its type.
    let fits = |s: &Subject| {
        let groups = s.program.cache_groups();
        let fits = |width: u32| (width as usize).is_multiple_of(cache.block_len());
        groups.iter().all(|g| fits(g.key_width) && fits(g.value_width))
    };
    for subject in tiny::subjects(mix, cache).into_iter().filter(fits) {
        laws::check(backend, &subject, tolerance);
    }
}

#[test]
fn laws_of_the_reference() {
    let backend = CpuBackend::new(CpuOptions::reference());
    laws_on(&backend, "F32", DType::F32, Tolerance::EXACT);
}

#[test]
fn laws_of_simd() {
    let options = CpuOptions { strict: true, ..CpuOptions::default() };
    laws_on(&CpuBackend::new(options.clone()), "Q4_K_M", DType::F16, Tolerance::EXACT);
    laws_on(&CpuBackend::new(options), "Q8_0", DType::Q8_0, Tolerance::EXACT);
}
