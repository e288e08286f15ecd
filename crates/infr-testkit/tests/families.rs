//! Every family against the executable specification `tests/spec/tiny.py`: the same random file, the
//! same tokens, log-probabilities at every position; and against what llama.cpp computed for the files of
//! seed 7, which `tests/spec/seed7` keeps.
//!
//! Needs `python3` with numpy and gguf; without them the tests print that they are skipped.
//! `INFR_BLESS=1` writes the figures to `docs/models.md`; `INFR_FAMILY=name` looks at one model only.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

#[path = "support/document.rs"]
mod document;
#[path = "support/spec.rs"]
mod spec;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::path::Path;

use document::Cells;
use infr_backend::{GroupRanges, Visible, Want};
use infr_cpu::CpuOptions;
use infr_graph::{Phase, Reach};
use spec::{Case, Run, Session, Spec, VOCAB, carried, floats, list, log_softmax, max_diff, tokens};

/// Seeds of the random files; a failure on a new seed is a failure.
const SEEDS: [u64; 4] = [7, 11, 23, 1009];
/// Positions per sequence.
const LEN: usize = 64;

/// Ragged chunks of a prompt.
const RAGGED: [usize; 5] = [7, 1, 30, 3, 23];

/// Largest difference of a log-probability that single precision explains.
fn bound(name: &str, seed: u64) -> f32 {
    match name {
        "gemma4_e2b" if seed != 7 => 2e-4,
        "qwen35" | "qwen35_mtp" | "qwen35_mtp_own" | "qwen35moe" | "qwen3next" => 5e-4,
        "llama4_long" => 5e-4,
        _ => 5e-5,
    }
}

/// Largest difference from llama.cpp: its own from the specification, and ours.
fn llama_bound(name: &str) -> f32 {
    let its = match name {
        "qwen35" | "qwen35_mtp" | "qwen35_mtp_own" => 5e-5,
        "qwen35moe" | "qwen3next" => 7e-5,
        "llama4_long" => 2.6e-4,
        "gemma2" => 2e-3,
        "gemma3" => 4.1e-3,
        "gemma4_moe" => 5e-3,
        "gemma4_e2b" => 7.2e-2,
        "gemma_emb" => 1e-4,
        _ => 1.2e-5,
    };
    its + bound(name, 7)
}

/// The largest differences by row and column of the document, and what is out of bounds.
#[derive(Default)]
struct Report {
    figures: BTreeMap<(String, &'static str), (f32, f32)>,
    cells: Cells,
    failures: Vec<String>,
}

impl Report {
    fn add(&mut self, name: &str, column: &'static str, bound: f32, diff: Result<f32, String>) {
        match diff {
            Ok(diff) => {
                println!("{name}, {column}: {diff:.1e}");
                let figure = self.figures.entry((name.to_owned(), column)).or_default();
                *figure = (figure.0.max(diff), figure.1.max(bound));
                // Written so that NaN fails.
                if diff.partial_cmp(&bound).is_none_or(Ordering::is_gt) {
                    self.failures.push(format!("{name}, {column}: {diff:.1e}, bound {bound:.1e}"));
                }
            }
            Err(e) => self.failures.push(format!("{name}, {column}: {e}")),
        }
    }

    fn note(&mut self, name: &str, column: &'static str, text: String) {
        self.cells.entry(name.to_owned()).or_default().insert(column.to_owned(), text);
    }

    fn finish(mut self) {
        assert!(self.failures.is_empty(), "\n{}", self.failures.join("\n"));
        for ((name, column), (diff, bound)) in std::mem::take(&mut self.figures) {
            let text = match bound {
                0.0 => "equal".to_owned(),
                _ => format!("{diff:.0e} ({bound:.1e})"),
            };
            self.note(&name, column, text);
        }
        document::settle(self.cells);
    }
}

/// Names that take part, when they are chosen by the environment.
fn chosen(names: Vec<String>) -> Vec<String> {
    match std::env::var("INFR_FAMILY") {
        Ok(one) => names.into_iter().filter(|n| *n == one).collect(),
        Err(_) => names,
    }
}

/// A file of `tests/spec/seed7`, which llama.cpp wrote; `None` where it has no such model.
fn kept(file: &str) -> Option<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/spec/seed7");
    std::fs::read(folder.join(file)).ok()
}

fn kept_tokens(file: &str) -> Option<Vec<u32>> {
    let text = String::from_utf8(kept(file)?).unwrap();
    Some(text.trim().split(',').map(|id| id.trim().parse().unwrap()).collect())
}

/// Log-probabilities that llama.cpp computed.
fn kept_logits(file: &str) -> Vec<f32> {
    log_softmax(&floats(&kept(file).unwrap_or_else(|| panic!("tests/spec/seed7/{file}"))))
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
            let run = match Run::new(&name, &case.bytes) {
                Ok(run) => run,
                Err(e) => {
                    report.failures.push(format!("{name}: {e}"));
                    continue;
                }
            };
            let whole = run.logits(&case.tokens, &[LEN]);
            let diff = whole.as_ref().map(|found| max_diff(found, &case.wanted));
            report.add(&name, "tiny.py", bound(&name, seed), diff.map_err(Clone::clone));
            if let (7, Ok(whole)) = (seed, &whole) {
                other_batches(&mut report, &name, &run, &Case { wanted: whole.clone(), ..case });
                llama_cpp(&mut report, &name, &run);
                edges(&mut report, &name, &run, LEN);
            }
        }
    }
    report.finish();
}

/// The same tokens in other batches; `case` wants what one batch gave.
fn other_batches(report: &mut Report, name: &str, run: &Run, case: &Case) {
    for (column, chunks) in [("ragged chunks", &RAGGED[..]), ("token by token", &[1; LEN][..])] {
        let found = run.logits(&case.tokens, chunks);
        report.add(name, column, 0.0, found.map(|f| max_diff(&f, &case.wanted)));
    }
    report.add(name, "beside another", 0.0, beside_another(run, case));
}

/// What llama.cpp computed for the file of seed 7.
fn llama_cpp(report: &mut Report, name: &str, run: &Run) {
    let Some(tokens) = kept_tokens(&format!("{name}.tokens")) else {
        let absent = ["bitnet_b158", "bitnet_b158_i2s", "diffusion_gemma"];
        assert!(absent.contains(&name), "tests/spec/seed7/{name}.tokens");
        return report.note(name, "llama.cpp", "no such graph".to_owned());
    };
    let wanted = kept_logits(&format!("{name}.logits.f32"));
    let found = run.logits(&tokens, &[tokens.len()]);
    report.add(name, "llama.cpp", llama_bound(name), found.map(|f| max_diff(&f, &wanted)));
}

/// Which edges of windows and chunks `n` tokens cross.
fn edges(report: &mut Report, name: &str, run: &Run, n: usize) {
    let program = run.program().unwrap();
    let mut texts: Vec<String> = Vec::new();
    for group in program.cache_groups() {
        let (what, len) = match group.reach {
            Reach::Full | Reach::Symmetric(u32::MAX) => continue,
            Reach::Window(len) => ("window", len),
            Reach::Chunk(len) => ("chunk", len),
            Reach::Symmetric(len) => ("symmetric window", len),
        };
        match n > len as usize {
            true => texts.push(format!("{what} {len}")),
            false if name == "llama4" => texts.push(format!("{what} {len}: see `llama4_long`")),
            false => report.failures.push(format!("{name}: {n} tokens in a {what} of {len}")),
        }
    }
    texts.sort();
    texts.dedup();
    let text = if texts.is_empty() { "none".to_owned() } else { texts.join(", ") };
    report.note(name, "edges crossed", text);
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
    for name in chosen(spec.names()) {
        // The kernel of type 36 rounds activations to bytes.
        if name == "llama4_long" || name == "bitnet_b158_i2s" {
            continue;
        }
        for seed in SEEDS {
            let case = spec.case(&name, seed, LEN);
            let diff = Run::new(&name, &case.bytes).and_then(|mut run| {
                run.cpu = CpuOptions { simd: true, ..run.cpu };
                Ok(max_diff(&run.logits(&case.tokens, &[LEN])?, &case.wanted))
            });
            report.add(&name, "SIMD", simd_bound(&name), diff);
        }
    }
    report.finish();
}

/// What kernels that sum in single precision reach.
fn simd_bound(name: &str) -> f32 {
    4.0 * bound(name, SEEDS[1])
}

#[test]
fn long_context_of_llama4() {
    let Some(mut spec) = Spec::start() else { return };
    if chosen(vec!["llama4_long".to_owned()]).is_empty() {
        return;
    }
    let tokens = kept_tokens("other/llama4_long.tokens").unwrap();
    let n = tokens.len();
    let case = spec.ask("logits", "llama4_long", 7, &list(&tokens));
    let case = Case { tokens, ..case };
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
    let found = log_softmax(&found);
    let name = "llama4_long";
    let diff = max_diff(&found, &case.wanted[tail * VOCAB..]);
    report.add(name, "tiny.py", bound(name, 7), Ok(diff));
    let diff = max_diff(&found, &kept_logits("other/llama4_long.last64.logits.f32"));
    report.add(name, "llama.cpp", llama_bound(name), Ok(diff));
    edges(&mut report, name, &run, n);
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
            report.add(&format!("{name} (drafts)"), "tiny.py", bound(&name, seed), diff);
        }
        let tokens = kept_tokens(&format!("{name}.tokens")).unwrap();
        let case = spec.ask("mtp", &name, 7, &list(&tokens));
        let case = Case { wanted: kept_logits(&format!("other/{name}.draft.f32")), ..case };
        let diff = draft(&name, &case, &tokens);
        report.add(&format!("{name} (drafts)"), "llama.cpp", 4e-5 + bound(&name, 7), diff);
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
    if chosen(vec!["gemma_emb".to_owned()]).is_empty() {
        return;
    }
    for seed in SEEDS {
        let tokens = tokens(seed, LEN);
        let case = spec.ask("embed", "gemma_emb", seed, &list(&tokens));
        let diff = vector("gemma_emb", &case, &tokens);
        report.add("gemma_emb (vector)", "tiny.py", 5e-5, diff);
    }
    let tokens = kept_tokens("other/gemma_emb.tokens").unwrap();
    let case = spec.ask("embed", "gemma_emb", 7, &list(&tokens));
    let raw = floats(&kept("other/gemma_emb.vector.f32").unwrap());
    let raw: Vec<f64> = raw.into_iter().map(f64::from).collect();
    let case = Case { wanted: unit(&raw), ..case };
    let diff = vector("gemma_emb", &case, &tokens);
    report.add("gemma_emb (vector)", "llama.cpp", llama_bound("gemma_emb"), diff);
    edges(&mut report, "gemma_emb (vector)", &Run::new("gemma_emb", &case.bytes).unwrap(), LEN);
    report.finish();
}

fn vector(name: &str, case: &Case, tokens: &[u32]) -> Result<f32, String> {
    let run = Run::new(name, &case.bytes)?;
    let step = Session::open(&run, LEN)?.step(&[(0, 0, tokens)], Want::Hidden)?;
    let mut mean = vec![0.0f64; case.wanted.len()];
    for row in &step.rows {
        mean.iter_mut().zip(&row.hidden).for_each(|(m, h)| *m += f64::from(*h));
    }
    Ok(max_diff(&unit(&mean), &case.wanted))
}

/// A vector of length 1.
fn unit(vector: &[f64]) -> Vec<f32> {
    let length = vector.iter().map(|x| x * x).sum::<f64>().sqrt();
    vector.iter().map(|x| (x / length) as f32).collect()
}

#[test]
fn steps_of_diffusion_gemma() {
    let Some(mut spec) = Spec::start() else { return };
    let mut report = Report::default();
    if chosen(vec!["diffusion_gemma".to_owned()]).is_empty() {
        return;
    }
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
        report.add("diffusion_gemma (canvas)", "tiny.py", 5e-5, diff);
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
