//! Laws of execution: what must hold on every backend for every program, whatever it computes.

use infr_backend::{Backend, PageTable, RowOut, SampleParams, Slot, StateOp, TokenIn, Want};

use crate::driver::{Driver, Sequence, Work};
use crate::rng::Rng;
use crate::subject::Subject;
use crate::tolerance::Tolerance;

type Law = fn(&dyn Backend, &Subject, Tolerance);

/// All laws by name.
pub const LAWS: &[(&str, Law)] = &[
    ("one chunk is many chunks", chunks),
    ("long contexts are like short ones", long),
    ("a batch is each sequence alone", batches),
    ("page sizes and places do not matter", pages),
    ("restored states go on as before", snapshots),
    ("a cleared slot is a new one", cleared),
    ("chained steps are unchained steps", chained),
];

/// Runs all laws on one subject.
pub fn check(backend: &dyn Backend, subject: &Subject, tolerance: Tolerance) {
    for (_, law) in LAWS {
        law(backend, subject, tolerance);
    }
}

fn tokens(subject: &Subject, seed: u64, n: usize) -> Vec<u32> {
    let mut rng = Rng::new(seed);
    (0..n).map(|_| rng.below(subject.vocab)).collect()
}

fn same(law: &str, subject: &Subject, tolerance: Tolerance, pair: (&[Vec<f32>], &[Vec<f32>])) {
    let (expected, found) = pair;
    assert_eq!(expected.len(), found.len(), "{}: {law}: rows", subject.name);
    assert!(expected.iter().all(|row| row.len() == subject.vocab as usize), "{}", subject.name);
    for (row, (expected, found)) in expected.iter().zip(found).enumerate() {
        if let Err(what) = tolerance.check(expected, found) {
            panic!("{}: {law}: row {row}: {what}", subject.name);
        }
    }
}

/// Logits of a sequence alone, in one chunk, on an executor of its own.
fn alone(backend: &dyn Backend, subject: &Subject, tokens: &[u32]) -> Vec<Vec<f32>> {
    let mut driver = Driver::new(backend, subject, 64, 1);
    let mut seq = driver.start();
    driver.logits(&mut seq, tokens)
}

/// A prompt in one step, in several, and token by token.
pub fn chunks(backend: &dyn Backend, subject: &Subject, tolerance: Tolerance) {
    let tokens = tokens(subject, 1, 29);
    let expected = alone(backend, subject, &tokens);
    let mut driver = Driver::new(backend, subject, 4, 2);
    for cuts in [&[29][..], &[7, 9, 13], &[1; 29], &[16, 1, 1, 11]] {
        let mut seq = driver.start();
        let mut found = Vec::new();
        let mut rest = &tokens[..];
        for &n in cuts {
            let (now, later) = rest.split_at(n);
            found.extend(driver.logits(&mut seq, now));
            rest = later;
        }
        same(&format!("chunks {cuts:?}"), subject, tolerance, (&expected, &found));
        driver.end(seq);
    }
}

/// A context beyond the pieces that kernels cut one into, in one step and in several.
pub fn long(backend: &dyn Backend, subject: &Subject, tolerance: Tolerance) {
    let tokens = tokens(subject, 2, 300);
    let expected = alone(backend, subject, &tokens);
    let mut driver = Driver::new(backend, subject, 16, 4);
    let mut seq = driver.start();
    let mut found = Vec::new();
    let mut rest = &tokens[..];
    for n in [130, 1, 1, 100, 3, 1, 64] {
        let (now, later) = rest.split_at(n);
        found.extend(driver.logits(&mut seq, now));
        rest = later;
    }
    same("long context", subject, tolerance, (&expected, &found));
}

/// Sequences of different lengths share steps in ragged pieces.
pub fn batches(backend: &dyn Backend, subject: &Subject, tolerance: Tolerance) {
    let prompts: Vec<Vec<u32>> =
        [17, 5, 26].iter().zip(10..).map(|(n, seed)| tokens(subject, seed, *n)).collect();
    let mut driver = Driver::new(backend, subject, 4, 3);
    let mut seqs: Vec<Sequence> = prompts.iter().map(|_| driver.start()).collect();
    let mut found: Vec<Vec<Vec<f32>>> = vec![Vec::new(); prompts.len()];
    // Tokens of each sequence in each step; zero leaves the sequence out.
    for piece in [[5, 1, 9], [0, 2, 1], [1, 1, 1], [11, 0, 7], [0, 1, 8]] {
        let ids: Vec<Vec<TokenIn>> = (0..prompts.len())
            .map(|i| {
                let at = found[i].len();
                prompts[i][at..at + piece[i]].iter().map(|t| TokenIn::Id(*t)).collect()
            })
            .collect();
        let mut work: Vec<Work<'_>> = seqs
            .iter_mut()
            .zip(&ids)
            .filter(|(_, tokens)| !tokens.is_empty())
            .map(|(seq, tokens)| Work { seq, tokens, want: Want::Logits })
            .collect();
        let mut rows = driver.step(&mut work).into_iter().map(|r| r.logits);
        for (found, n) in found.iter_mut().zip(piece) {
            found.extend(rows.by_ref().take(n));
        }
    }
    for (prompt, found) in prompts.iter().zip(&found) {
        let expected = alone(backend, subject, prompt);
        same("ragged batches", subject, tolerance, (&expected, found));
    }
}

/// The same tokens on pages of several sizes in several orders.
pub fn pages(backend: &dyn Backend, subject: &Subject, tolerance: Tolerance) {
    let tokens = tokens(subject, 20, 33);
    let expected = alone(backend, subject, &tokens);
    for (page_len, seed) in [(4, 5), (4, 6), (16, 7), (64, 8)] {
        let mut driver = Driver::new(backend, subject, page_len, seed);
        let mut seq = driver.start();
        let mut found = driver.logits(&mut seq, &tokens[..30]);
        found.extend(driver.logits(&mut seq, &tokens[30..]));
        same(&format!("pages of {page_len}"), subject, tolerance, (&expected, &found));
    }
}

/// Pages and slot are read, the sequence goes on, and a copy made from what was read goes on alike.
pub fn snapshots(backend: &dyn Backend, subject: &Subject, tolerance: Tolerance) {
    let tokens = tokens(subject, 30, 25);
    let mut driver = Driver::new(backend, subject, 4, 9);
    let mut seq = driver.start();
    driver.logits(&mut seq, &tokens[..14]);

    let mut slot_bytes = Vec::new();
    driver.state(&mut [StateOp::ReadSlot { slot: seq.slot, out: &mut slot_bytes }]);
    let mut copy = driver.start();
    copy.len = seq.len;
    driver.state(&mut [StateOp::WriteSlot { slot: copy.slot, data: &slot_bytes }]);
    for group in 0..driver.n_groups() {
        for index in 0..seq.pages[group].len() {
            let from = seq.pages[group][index];
            if from == PageTable::NONE {
                copy.pages[group].push(PageTable::NONE);
                continue;
            }
            let to = driver.take_page(group);
            let group_id = group as u16;
            if index % 2 == 0 {
                let mut bytes = Vec::new();
                driver.state(&mut [StateOp::ReadPage {
                    group: group_id,
                    page: from,
                    out: &mut bytes,
                }]);
                driver.state(&mut [StateOp::WritePage { group: group_id, page: to, data: &bytes }]);
            } else {
                driver.state(&mut [StateOp::CopyPage { group: group_id, from, to }]);
            }
            copy.pages[group].push(to);
        }
    }
    let expected = driver.logits(&mut seq, &tokens[14..]);
    let found = driver.logits(&mut copy, &tokens[14..]);
    same("restored copy", subject, tolerance, (&expected, &found));
    let straight = alone(backend, subject, &tokens);
    same("straight run", subject, tolerance, (&straight[14..], &expected));
}

/// A slot and pages that another sequence has used.
pub fn cleared(backend: &dyn Backend, subject: &Subject, tolerance: Tolerance) {
    let tokens = tokens(subject, 40, 12);
    let expected = alone(backend, subject, &tokens);
    let mut driver = Driver::new(backend, subject, 4, 10);
    for round in 0..8 {
        let mut seq = driver.start();
        let noise = self::tokens(subject, 50 + round, 20);
        driver.logits(&mut seq, &noise);
        driver.end(seq);
    }
    let mut seq = driver.start();
    let found = driver.logits(&mut seq, &tokens);
    same("cleared slot", subject, tolerance, (&expected, &found));
}

/// Steps that take the last token from its slot, two in flight, against steps that are told the token.
pub fn chained(backend: &dyn Backend, subject: &Subject, tolerance: Tolerance) {
    for temperature in [0.0, 1.5] {
        let sample = SampleParams { temperature, seed: 99, ..SampleParams::default() };
        let unchained = generate(backend, subject, &sample, false);
        let chained = generate(backend, subject, &sample, true);
        assert_eq!(unchained.len(), chained.len());
        for (index, (u, c)) in unchained.iter().zip(&chained).enumerate() {
            let place = format!("{}: chained: token {index} at {temperature}", subject.name);
            assert!(u.token.is_some(), "{place}: none");
            assert_eq!(u.token, c.token, "{place}");
            let (u, c) = (u.logprob.into_iter().collect::<Vec<_>>(), c.logprob.into_iter());
            tolerance.check(&u, &c.collect::<Vec<_>>()).unwrap_or_else(|e| panic!("{place}: {e}"));
        }
    }
}

fn generate(
    backend: &dyn Backend,
    subject: &Subject,
    sample: &SampleParams,
    chain: bool,
) -> Vec<RowOut> {
    let prompt: Vec<TokenIn> = tokens(subject, 60, 9).into_iter().map(TokenIn::Id).collect();
    let mut driver = Driver::new(backend, subject, 4, 11);
    let mut seq = driver.start();
    seq.sample = sample.clone();
    let slot: Slot = seq.slot;
    let (head, last) = prompt.split_at(prompt.len() - 1);
    driver.step(&mut [Work { seq: &mut seq, tokens: head, want: Want::Nothing }]);
    let mut out = Vec::new();
    let mut open = driver.submit(&mut [Work { seq: &mut seq, tokens: last, want: Want::Token }]);
    for _ in 0..20 {
        if chain {
            let next = [TokenIn::LastOf(slot)];
            let work = Work { seq: &mut seq, tokens: &next, want: Want::Token };
            let ahead = driver.submit(&mut [work]);
            out.extend(driver.collect(open));
            open = ahead;
        } else {
            let rows = driver.collect(open);
            let next = [TokenIn::Id(rows[0].token.unwrap_or(0))];
            out.extend(rows);
            open = driver.submit(&mut [Work { seq: &mut seq, tokens: &next, want: Want::Token }]);
        }
    }
    out.extend(driver.collect(open));
    out
}

/// Tests that a backend keeps the laws of execution, one test per law, on every subject.
///
/// `laws!(name, expression, tolerance)` makes a module `name` whose tests each evaluate `expression` to
/// an `Option` of a backend; `None` reports that the device is absent.
#[macro_export]
macro_rules! laws {
    ($name:ident, $backend:expr, $tolerance:expr) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            fn run(law: fn(&dyn $crate::Backend, &$crate::Subject, $crate::Tolerance)) {
                match $backend {
                    Some(backend) => {
                        for subject in $crate::subject::subjects() {
                            law(&backend, &subject, $tolerance);
                        }
                    }
                    None => println!("skipped: {} has no device here", stringify!($name)),
                }
            }

            #[test]
            fn chunks() {
                run($crate::laws::chunks);
            }

            #[test]
            fn long() {
                run($crate::laws::long);
            }

            #[test]
            fn batches() {
                run($crate::laws::batches);
            }

            #[test]
            fn pages() {
                run($crate::laws::pages);
            }

            #[test]
            fn snapshots() {
                run($crate::laws::snapshots);
            }

            #[test]
            fn cleared() {
                run($crate::laws::cleared);
            }

            #[test]
            fn chained() {
                run($crate::laws::chained);
            }
        }
    };
}
