//! Every family against the executable specification `tests/spec/tiny.py`: the same random file, the
//! same tokens, log-probabilities at every position.
//!
//! Needs `python3` with numpy and gguf; without them the tests print that they are skipped.
//! `INFR_BLESS=1` writes the figures to `docs/models.md`; `INFR_FAMILY=name` looks at one model only.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

#[path = "support/spec.rs"]
mod spec;

use std::fmt::Write;

use infr_backend::{GroupRanges, Visible, Want};
use infr_cpu::CpuOptions;
use infr_graph::{Phase, Reach};
use spec::{Case, Run, Session, Spec, VOCAB, carried, list, log_softmax, max_diff, tokens};

/// Seeds of the random files; a failure on a new seed is a failure.
const SEEDS: [u64; 4] = [7, 11, 23, 1009];
/// Positions per sequence.
const LEN: usize = 64;

/// Largest difference of a log-probability that single precision explains.
fn bound(name: &str, seed: u64) -> f32 {
    match name {
        "gemma4_e2b" if seed != 7 => 2e-4,
        "qwen35" | "qwen35_mtp" | "qwen35_mtp_own" | "qwen35moe" | "qwen3next" => 5e-4,
        "llama4_long" => 5e-4,
        _ => 5e-5,
    }
}

/// Results by name, and what is out of bounds.
#[derive(Default)]
struct Report {
    table: Vec<(String, f32)>,
    failures: Vec<String>,
}

impl Report {
    fn add(&mut self, name: &str, seed: u64, bound: f32, diff: Result<f32, String>) {
        match diff {
            Ok(diff) => {
                println!("{name} seed {seed}: {diff:.1e}");
                match self.table.iter_mut().find(|(n, _)| n == name) {
                    Some(entry) => entry.1 = entry.1.max(diff),
                    None => self.table.push((name.to_owned(), diff)),
                }
                // Written so that NaN fails.
                if diff.partial_cmp(&bound) != Some(std::cmp::Ordering::Less) {
                    self.failures
                        .push(format!("{name} seed {seed}: {diff:.1e}, bound {bound:.0e}"));
                }
            }
            Err(e) => self.failures.push(format!("{name} seed {seed}: {e}")),
        }
    }

    fn finish(self) {
        assert!(self.failures.is_empty(), "\n{}", self.failures.join("\n"));
    }
}

/// Names that take part, when they are chosen by the environment.
fn chosen(names: Vec<String>) -> Vec<String> {
    match std::env::var("INFR_FAMILY") {
        Ok(one) => names.into_iter().filter(|n| *n == one).collect(),
        Err(_) => names,
    }
}

#[test]
fn the_reference_equals_the_specification() {
    let Some(mut spec) = Spec::start() else { return };
    let mut report = Report::default();
    for name in chosen(spec.names()) {
        if name == "llama4_long" {
            continue;
        }
        for seed in SEEDS {
            let case = spec.case(&name, seed, LEN);
            let diff = Run::new(&name, &case.bytes)
                .and_then(|run| run.logits(&case.tokens, &[LEN]))
                .map(|found| max_diff(&found, &case.wanted));
            report.add(&name, seed, bound(&name, seed), diff);
        }
    }
    if std::env::var_os("INFR_BLESS").is_some() {
        bless(&report.table);
    }
    report.finish();
}

fn bless(table: &[(String, f32)]) {
    let mut text = String::from(
        "# Model families\n\n\
         Largest difference of a log-probability between the CPU reference and `tests/spec/tiny.py` over\n\
         random files of several seeds, 64 positions and the whole vocabulary. Written by\n\
         `INFR_BLESS=1 cargo test -p infr-testkit --test families`.\n\n\
         | model of the specification | largest difference |\n|---|---|\n",
    );
    for (name, diff) in table {
        let _ = writeln!(text, "| {name} | {diff:.0e} |");
    }
    text.push_str("\nSupported values of `general.architecture`: ");
    text.push_str(&infr_models::architectures().join(", "));
    text.push_str(".\n");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/models.md");
    std::fs::write(path, text).unwrap();
}

/// The specification's model of one seed.
fn case(spec: &mut Spec, name: &str) -> Case {
    spec.case(name, 7, LEN)
}

#[test]
fn chunks_do_not_matter() {
    let Some(mut spec) = Spec::start() else { return };
    let mut report = Report::default();
    for name in chosen(spec.names()) {
        if name == "llama4_long" {
            continue;
        }
        let case = case(&mut spec, &name);
        let run = Run::new(&name, &case.bytes);
        for chunks in [&[7, 1, 30, 3, 23][..], &[1; LEN]] {
            let diff = run
                .as_ref()
                .map_err(Clone::clone)
                .and_then(|run| Ok(max_diff(&run.logits(&case.tokens, chunks)?, &case.wanted)));
            report.add(&name, 7, bound(&name, 7), diff);
        }
    }
    report.finish();
}

#[test]
fn neighbours_do_not_matter() {
    let Some(mut spec) = Spec::start() else { return };
    let mut report = Report::default();
    for name in chosen(spec.names()) {
        if name == "llama4_long" {
            continue;
        }
        let case = case(&mut spec, &name);
        let diff = Run::new(&name, &case.bytes).and_then(|run| beside_another(&run, &case));
        report.add(&name, 7, bound(&name, 7), diff);
    }
    report.finish();
}

/// Two sequences in one batch, out of step with each other; the second is the case's.
fn beside_another(run: &Run, case: &Case) -> Result<f32, String> {
    let other = tokens(99, LEN);
    let mut session = Session::open(run, LEN)?;
    let mut found = Vec::new();
    session.step(&[(2, 0, &other[..9])], Want::Nothing)?;
    for (start, end) in [(0, 20), (20, 21), (21, 50), (50, LEN)] {
        let work =
            [(2, 9 + start.min(40), &other[..end - start]), (1, start, &case.tokens[start..end])];
        let work = if 9 + end > LEN { &work[1..] } else { &work[..] };
        let step = session.step(work, Want::Logits)?;
        let own = step.rows.into_iter().rev().take(end - start).rev();
        found.extend(own.flat_map(|r| r.logits));
    }
    Ok(max_diff(&log_softmax(&found), &case.wanted))
}

#[test]
fn simd_equals_the_specification() {
    let Some(mut spec) = Spec::start() else { return };
    let mut report = Report::default();
    for name in chosen(["llama", "qwen2", "qwen3", "gemma3"].map(str::to_owned).to_vec()) {
        for seed in SEEDS {
            let case = spec.case(&name, seed, LEN);
            let diff = Run::new(&name, &case.bytes).and_then(|mut run| {
                run.cpu = CpuOptions { simd: true, ..run.cpu };
                Ok(max_diff(&run.logits(&case.tokens, &[LEN])?, &case.wanted))
            });
            report.add(&name, seed, 2e-4, diff);
        }
    }
    report.finish();
}

#[test]
fn long_context_of_llama4() {
    let Some(mut spec) = Spec::start() else { return };
    let n = 8300;
    if chosen(vec!["llama4_long".to_owned()]).is_empty() {
        return;
    }
    let case = spec.case("llama4_long", 7, n);
    let mut run = Run::new("llama4_long", &case.bytes).unwrap();
    run.options.context = 16384;
    let mut session = Session::open(&run, n).unwrap();
    let tail = n - 64;
    for start in (0..tail).step_by(512) {
        let rows = &case.tokens[start..tail.min(start + 512)];
        session.step(&[(0, start, rows)], Want::Nothing).unwrap();
    }
    let step = session.step(&[(0, tail, &case.tokens[tail..])], Want::Logits).unwrap();
    let found: Vec<f32> = step.rows.into_iter().flat_map(|r| r.logits).collect();
    let mut report = Report::default();
    let diff = max_diff(&log_softmax(&found), &case.wanted[tail * VOCAB..]);
    report.add("llama4_long", 7, bound("llama4_long", 7), Ok(diff));
    report.finish();
}

#[test]
fn drafts_of_qwen35() {
    let Some(mut spec) = Spec::start() else { return };
    let mut report = Report::default();
    for name in chosen(["qwen35_mtp", "qwen35_mtp_own"].map(str::to_owned).to_vec()) {
        for seed in SEEDS {
            let tokens = tokens(seed, LEN);
            let case = spec.ask("mtp", &name, seed, &list(&tokens));
            let diff = draft(&name, &case, &tokens);
            report.add(&name, seed, bound(&name, seed), diff);
        }
    }
    report.finish();
}

/// The trunk's hidden rows, shifted by one, through the draft graph.
fn draft(name: &str, case: &Case, tokens: &[u32]) -> Result<f32, String> {
    let mut run = Run::new(name, &case.bytes)?;
    run.options.draft = true;
    let width = run.loaded.model.info().embedding as usize;
    let mut session = Session::open(&run, LEN)?;
    let trunk = session.step(&[(0, 0, tokens)], Want::Hidden)?;
    let mut hidden = vec![0.0; width];
    hidden.extend(trunk.rows.into_iter().flat_map(|r| r.hidden));
    hidden.truncate(LEN * width);
    let mut batch = session.batch(&[(0, 0, tokens)], Want::Logits);
    batch.carried = vec![carried(hidden, width)];
    let step = session.run(Phase::Draft, &batch)?;
    let found: Vec<f32> = step.rows.into_iter().skip(1).flat_map(|r| r.logits).collect();
    Ok(max_diff(&log_softmax(&found), &case.wanted))
}

#[test]
fn vectors_of_gemma_embedding() {
    let Some(mut spec) = Spec::start() else { return };
    let mut report = Report::default();
    for seed in SEEDS {
        let tokens = tokens(seed, LEN);
        let case = spec.ask("embed", "gemma_emb", seed, &list(&tokens));
        let diff = vector("gemma_emb", &case, &tokens);
        report.add("gemma_emb", seed, 5e-5, diff);
    }
    report.finish();
}

fn vector(name: &str, case: &Case, tokens: &[u32]) -> Result<f32, String> {
    let run = Run::new(name, &case.bytes)?;
    let step = Session::open(&run, LEN)?.step(&[(0, 0, tokens)], Want::Hidden)?;
    let mut mean = vec![0.0f64; case.wanted.len()];
    for row in &step.rows {
        mean.iter_mut().zip(&row.hidden).for_each(|(m, h)| *m += f64::from(*h));
    }
    let length = mean.iter().map(|m| m * m).sum::<f64>().sqrt();
    let unit: Vec<f32> = mean.iter().map(|m| (m / length) as f32).collect();
    Ok(max_diff(&unit, &case.wanted))
}

#[test]
fn steps_of_diffusion_gemma() {
    let Some(mut spec) = Spec::start() else { return };
    let mut report = Report::default();
    for seed in SEEDS {
        let prompt = tokens(seed, 23);
        let canvases: Vec<Vec<u32>> = (1..=3).map(|i| tokens(seed + 100 * i, 12)).collect();
        // One over the temperature of the step before; the first has none.
        let taus = [1.0f32, 1.0 / 0.75, 1.0 / 0.6];
        let steps: Vec<String> =
            canvases.iter().zip(taus).map(|(c, tau)| format!("{} {tau}", list(c))).collect();
        let numbers = format!("{} {}", list(&prompt), steps.join(" "));
        let case = spec.ask("diffusion", "diffusion_gemma", seed, &numbers);
        let diff = denoise(&case, &prompt, &canvases, &[1.0 / taus[1], 1.0 / taus[2], 0.5]);
        report.add("diffusion_gemma", seed, 5e-5, diff);
    }
    report.finish();
}

/// Prompt, then a canvas per step at the temperature of that step.
fn denoise(
    case: &Case,
    prompt: &[u32],
    canvases: &[Vec<u32>],
    temperatures: &[f32],
) -> Result<f32, String> {
    let run = Run::new("diffusion_gemma", &case.bytes)?;
    let info = run.loaded.model.info();
    let infr_models::DecodeStyle::BlockDiffusion(diffusion) = info.style else {
        return Err(format!("{:?}", info.style));
    };
    assert_eq!(diffusion.canvas, 12);
    let width = info.embedding as usize;
    let (start, len) = (prompt.len(), canvases[0].len());
    let end = (start + len) as u32;
    let mut session = Session::open(&run, start + len)?;
    session.step(&[(0, 0, prompt)], Want::Nothing)?;
    let mut soft = vec![0.0; len * width];
    let mut found = Vec::new();
    for (canvas, &temperature) in canvases.iter().zip(temperatures) {
        let mut batch = session.batch(&[(0, start, canvas)], Want::Logits);
        let ranges = session.reach().iter().map(|reach| match reach {
            Reach::Window(n) => Visible { lo: (start as u32 + 1).saturating_sub(*n), hi: end },
            _ => Visible { lo: 0, hi: end },
        });
        let ranges = GroupRanges::new(&ranges.collect::<Vec<_>>());
        batch.rows.iter_mut().for_each(|row| row.visible = ranges);
        batch.seqs[0].sample.temperature = temperature;
        batch.carried = vec![carried(std::mem::take(&mut soft), width)];
        let step = session.run(Phase::Denoise, &batch)?;
        soft = step.carried[0].data.clone();
        let logits: Vec<f32> = step.rows.into_iter().flat_map(|r| r.logits).collect();
        check_entropy(&logits, temperature, &step.carried[1].data);
        found.extend(log_softmax(&logits));
    }
    Ok(max_diff(&found, &case.wanted))
}

/// Entropies of a step against their definition.
fn check_entropy(logits: &[f32], temperature: f32, found: &[f32]) {
    let cooled: Vec<f32> = logits.iter().map(|l| l / temperature).collect();
    for (row, found) in log_softmax(&cooled).chunks(VOCAB).zip(found) {
        let wanted: f64 = row.iter().map(|&l| -f64::from(l).exp() * f64::from(l)).sum();
        assert!((wanted - f64::from(*found)).abs() < 1e-4, "{wanted} {found}");
    }
}
