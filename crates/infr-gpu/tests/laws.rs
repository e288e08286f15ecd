//! The laws of execution on the fake device: within rounding as planned for speed, to the bit in strict mode.

#![allow(clippy::unwrap_used)]

use infr_backend::{SampleParams, TokenIn, Want};
use infr_gpu::GpuOptions;
use infr_gpu::fake::FakeBackend;
use infr_testkit::driver::{Driver, Work};
use infr_testkit::ops::reference;
use infr_testkit::{Backend, Rng, Subject, Tolerance, laws, subject};

/// Single precision, where a key may round to the neighbouring half.
const CLOSE: Tolerance = Tolerance { max: 2e-3, rms: 5e-4 };

fn backend(strict: bool, fuse: bool) -> FakeBackend {
    FakeBackend::new(GpuOptions { strict, fuse, warm: true })
}

#[test]
fn fused_plans_keep_the_laws() {
    laws::check(&backend(false, true), &subject::dense(), CLOSE);
}

#[test]
fn strict_plans_keep_the_laws_to_the_bit() {
    laws::check(&backend(true, true), &subject::dense(), Tolerance::EXACT);
}

fn logits(backend: &dyn Backend, subject: &Subject, cuts: &[usize]) -> Vec<Vec<f32>> {
    let mut rng = Rng::new(5);
    let mut driver = Driver::new(backend, subject, 4, 1);
    let mut seq = driver.start();
    let mut out = Vec::new();
    for n in cuts {
        let tokens: Vec<u32> = (0..*n).map(|_| rng.below(subject.vocab)).collect();
        out.extend(driver.logits(&mut seq, &tokens));
    }
    out
}

#[test]
fn logits_are_those_of_the_reference() {
    let subject = subject::dense();
    // A prefill of tiles, one that splits, single rows.
    let cuts = [13, 3, 1, 1, 9, 1, 2];
    let expected = logits(&reference(), &subject, &cuts);
    for (strict, fuse) in [(false, true), (false, false), (true, true)] {
        let found = logits(&backend(strict, fuse), &subject, &cuts);
        for (row, (expected, found)) in expected.iter().zip(&found).enumerate() {
            let place = format!("row {row}, strict {strict}, fused {fuse}");
            CLOSE.check(expected, found).unwrap_or_else(|e| panic!("{place}: {e}"));
        }
    }
}

#[test]
fn what_has_no_kernel_is_refused_when_opened() {
    for subject in [subject::experts(), subject::hybrid()] {
        let placement = infr_backend::Placement {
            homes: Vec::new(),
            experts: infr_backend::ExpertPlacement::Resident,
            pages: vec![8; subject.program.cache_groups().len()],
            page_len: 4,
            slots: 2,
            max_rows: 8,
        };
        let result = backend(false, true).open(&subject.program, &*subject.weights, &placement);
        match result.err() {
            Some(infr_backend::BackendError::Unsupported(what)) => {
                assert!(what.contains("op ") || what.contains("recurrent"), "{what}");
            }
            other => panic!("{}: {other:?}", subject.name),
        }
    }
}

#[test]
fn a_batch_may_want_different_things() {
    let subject = subject::dense();
    let run = |backend: &dyn Backend| {
        let mut driver = Driver::new(backend, &subject, 4, 1);
        let (mut a, mut b) = (driver.start(), driver.start());
        b.sample = SampleParams { temperature: 0.7, top_k: 9, seed: 3, ..SampleParams::default() };
        let tokens = [3, 5, 7].map(TokenIn::Id);
        let mut out = Vec::new();
        for (one, other) in [
            (Want::Token, Want::Hidden),
            (Want::Nothing, Want::Logprobs { top: 3 }),
            (Want::Logits, Want::Token),
        ] {
            let first = Work { seq: &mut a, tokens: &tokens, want: one };
            let second = Work { seq: &mut b, tokens: &tokens[..2], want: other };
            out.push(driver.step(&mut [first, second]));
        }
        out
    };
    let (expected, found) = (run(&reference()), run(&backend(false, true)));
    for (e, f) in expected.iter().flatten().zip(found.iter().flatten()) {
        assert_eq!(e.token, f.token);
        assert_eq!(e.top.len(), f.top.len());
        CLOSE.check(&e.hidden, &f.hidden).unwrap();
        CLOSE.check(&e.logits, &f.logits).unwrap();
    }
}
