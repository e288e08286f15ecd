//! Runs the specification in Python, and models on the CPU backend as an engine would.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use infr_backend::{
    Backend, Batch, ExpertPlacement, GroupRanges, HostRows, PageTable, Placement, Row,
    SampleParams, SeqRows, Slot, StepOutput, TokenIn, Visible, Want,
};
use infr_cpu::{CpuBackend, CpuOptions};
use infr_gguf::Gguf;
use infr_graph::{Phase, Program, Reach};
use infr_models::{BuildOptions, Loaded};
use infr_tensor::DType;

/// Tokens in the specification's vocabulary.
const VOCAB: usize = 320;

/// A folder that is removed with its owner.
pub struct Spec {
    dir: PathBuf,
    names: Vec<String>,
}

/// One random file with tokens and the log-probabilities that they have.
pub struct Case {
    pub name: String,
    pub bytes: Vec<u8>,
    pub tokens: Vec<u32>,
    pub logits: Vec<f32>,
}

fn script() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/spec/tiny.py")
}

fn python(args: &[&str]) -> Option<String> {
    let out = Command::new("python3").arg(script()).args(args).output().ok()?;
    if !out.status.success() {
        eprintln!("{}", String::from_utf8_lossy(&out.stderr));
        return None;
    }
    String::from_utf8(out.stdout).ok()
}

impl Spec {
    /// The specification, when Python can run it.
    pub fn start() -> Option<Spec> {
        let Some(list) = python(&["list"]) else {
            println!("skipped: python3 with numpy and gguf is not there");
            return None;
        };
        let dir = std::env::temp_dir().join(format!("infr-spec-{}", std::process::id()));
        let dir = dir.join(format!("{:?}", std::thread::current().id()));
        std::fs::create_dir_all(&dir).unwrap();
        Some(Spec { dir, names: list.split_whitespace().map(str::to_owned).collect() })
    }

    /// All models of the specification.
    pub fn names(&self) -> Vec<String> {
        self.names.clone()
    }

    /// Makes a file, draws tokens and runs the specification on them.
    pub fn case(&self, name: &str, seed: u64, n: usize) -> Case {
        let tokens = tokens(seed, n);
        let text: Vec<String> = tokens.iter().map(u32::to_string).collect();
        let (gguf, out) = (self.dir.join("m.gguf"), self.dir.join("m.f32"));
        let list = self.dir.join("m.tokens");
        std::fs::write(&list, text.join(" ")).unwrap();
        let seed = seed.to_string();
        python(&["gguf", name, &seed, gguf.to_str().unwrap()]).unwrap();
        python(&["logits", name, &seed, list.to_str().unwrap(), out.to_str().unwrap()]).unwrap();
        let logits = floats(&std::fs::read(&out).unwrap());
        Case { name: name.to_owned(), bytes: std::fs::read(&gguf).unwrap(), tokens, logits }
    }
}

impl Drop for Spec {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Little-endian floats.
pub fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

/// Tokens drawn from a seed.
pub fn tokens(seed: u64, n: usize) -> Vec<u32> {
    let mut rng = infr_testkit::Rng::new(seed);
    (0..n).map(|_| rng.below(VOCAB as u32)).collect()
}

/// The largest difference of two equally long lists; infinite when a value is not finite.
pub fn max_diff(found: &[f32], wanted: &[f32]) -> f32 {
    assert_eq!(found.len(), wanted.len());
    let diffs = found.iter().zip(wanted).map(|(a, b)| (a - b).abs());
    diffs.fold(0.0, |m, d| if d.is_finite() { m.max(d) } else { f32::INFINITY })
}

/// Log-softmax of rows of the vocabulary's width.
pub fn log_softmax(logits: &[f32]) -> Vec<f32> {
    let row = |row: &[f32]| {
        let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = row.iter().map(|&x| f64::from(x - max).exp()).sum();
        let lse = f64::from(max) + sum.ln();
        row.iter().map(|&x| (f64::from(x) - lse) as f32).collect::<Vec<f32>>()
    };
    logits.chunks(VOCAB).flat_map(row).collect()
}

/// A model on the CPU.
pub struct Run {
    pub loaded: Loaded,
    pub options: BuildOptions,
    pub cpu: CpuOptions,
    tokens: Vec<u32>,
}

const PAGE: u32 = 16;

impl Run {
    /// A case on the reference, with a cache that rounds nothing.
    pub fn new(case: &Case) -> Run {
        let gguf = Gguf::from_bytes(&case.name, case.bytes.clone()).unwrap();
        let loaded = infr_models::from_gguf(Arc::new(gguf)).unwrap();
        Run {
            loaded,
            options: BuildOptions {
                cache_k: DType::F32,
                cache_v: DType::F32,
                context: 256,
                draft: false,
            },
            cpu: CpuOptions { simd: false, threads: 2, ..CpuOptions::default() },
            tokens: case.tokens.clone(),
        }
    }

    /// Log-probabilities of every position, the tokens cut into chunks of these lengths.
    pub fn logits(&self, chunks: &[usize]) -> Result<Vec<f32>, String> {
        let program = self
            .loaded
            .model
            .program(&self.loaded.gguf, &self.options)
            .map_err(|e| e.to_string())?;
        let mut out = Vec::new();
        let mut seen = 0;
        let mut session = Session::open(self, &program, self.tokens.len())?;
        for &len in chunks {
            let rows = &self.tokens[seen..seen + len];
            let step = session.step(&[(0, seen, rows)], Want::Logits)?;
            out.extend(step.rows.into_iter().flat_map(|r| r.logits));
            seen += len;
        }
        Ok(log_softmax(&out))
    }
}

/// An executor with one contiguous page table per sequence.
pub struct Session {
    executor: Box<dyn infr_backend::Executor>,
    reach: Vec<Reach>,
    pages_per_seq: u32,
}

/// What a row at `at` sees when the sequence has `end` rows after the step.
pub fn visible(reach: Reach, at: u32, end: u32) -> Visible {
    let lo = match reach {
        Reach::Full => 0,
        Reach::Window(n) => (at + 1).saturating_sub(n),
        Reach::Chunk(n) => at / n * n,
        Reach::Symmetric(n) => at.saturating_sub(n / 2),
    };
    let hi = match reach {
        Reach::Symmetric(n) => at.saturating_add(n / 2).saturating_add(1).min(end),
        Reach::Full | Reach::Window(_) | Reach::Chunk(_) => at + 1,
    };
    Visible { lo, hi }
}

impl Session {
    /// Opens a program for up to three sequences of `len` rows.
    pub fn open(run: &Run, program: &Program, len: usize) -> Result<Session, String> {
        let groups = program.cache_groups();
        let pages_per_seq = (len as u32).div_ceil(PAGE);
        let placement = Placement {
            homes: Vec::new(),
            experts: ExpertPlacement::Resident,
            pages: vec![pages_per_seq * 3; groups.len()],
            page_len: PAGE,
            slots: 3,
            max_rows: 3 * len as u32,
        };
        let backend = CpuBackend::new(run.cpu.clone());
        let weights = run.loaded.weights();
        let executor = backend.open(program, &weights, &placement).map_err(|e| e.to_string())?;
        Ok(Session { executor, reach: groups.iter().map(|g| g.reach).collect(), pages_per_seq })
    }

    /// Runs rows of some sequences: slot, first position, tokens.
    pub fn step(
        &mut self,
        work: &[(u32, usize, &[u32])],
        want: Want,
    ) -> Result<StepOutput, String> {
        self.step_of(Phase::Forward, work, want, Vec::new())
    }

    /// The same for any graph, with carried rows.
    pub fn step_of(
        &mut self,
        phase: Phase,
        work: &[(u32, usize, &[u32])],
        want: Want,
        carried: Vec<HostRows>,
    ) -> Result<StepOutput, String> {
        let mut batch = Batch { carried, ..Batch::default() };
        for (index, &(slot, start, tokens)) in work.iter().enumerate() {
            let first = batch.rows.len() as u32;
            let end = (start + tokens.len()) as u32;
            for (&token, at) in tokens.iter().zip(start as u32..) {
                let ranges: Vec<Visible> =
                    self.reach.iter().map(|&r| visible(r, at, end)).collect();
                batch.rows.push(Row {
                    token: TokenIn::Id(token),
                    position: at,
                    seq: index as u16,
                    write: Some(at),
                    visible: GroupRanges::new(&ranges),
                    output: want,
                    mask: None,
                });
            }
            let base = slot * self.pages_per_seq;
            let table = PageTable((base..base + self.pages_per_seq).collect());
            batch.seqs.push(SeqRows {
                slot: Slot(slot),
                rows: first..batch.rows.len() as u32,
                pages: vec![Arc::new(table); self.reach.len()],
                sample: SampleParams::default(),
            });
        }
        self.run(phase, &batch)
    }

    /// Runs a batch.
    pub fn run(&mut self, phase: Phase, batch: &Batch) -> Result<StepOutput, String> {
        let ticket = self.executor.submit(phase, batch).map_err(|e| e.to_string())?;
        let mut out = StepOutput::default();
        self.executor.collect(ticket, &mut out).map_err(|e| e.to_string())?;
        Ok(out)
    }
}

/// Counts by name, for tables.
pub type Figures = HashMap<String, f32>;
