//! Runs the specification in Python, and models on the CPU backend as an engine would.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;

use infr_backend::{
    Backend, Batch, Executor, ExpertPlacement, GroupRanges, HostRows, PageTable, Placement, Row,
    SampleParams, SeqRows, Slot, StateOp, StepOutput, TokenIn, Visible, Want,
};
use infr_cpu::{CpuBackend, CpuOptions};
use infr_gguf::Gguf;
use infr_graph::{Phase, Program, Reach};
use infr_models::{BuildOptions, Loaded};
use infr_tensor::DType;

/// Tokens in the specification's vocabulary.
pub(crate) const VOCAB: usize = 320;

/// Answers one request a line: kind, name, seed, file to write, result to write, numbers.
const SERVER: &str = r"
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np, tiny
print(*sorted(tiny.fam), flush=True)
ints = lambda s: [int(x) for x in s.split(',')]
for line in sys.stdin:
    kind, name, seed, gguf, out, *rest = line.split()
    m, fwd = tiny.build(name, seed)
    if kind == 'diffusion':
        steps = [(ints(c), float(t)) for c, t in zip(rest[1::2], rest[2::2])]
        y = m.denoise(ints(rest[0]), steps)
    else:
        tiny.ids[:] = ints(rest[0])
        y = m.draft() if kind == 'mtp' else fwd()
    m.write(gguf)
    np.asarray(y).astype('<f4').tofile(out)
    print('done', flush=True)
";

/// The specification, in a Python process of its own.
pub(crate) struct Spec {
    dir: PathBuf,
    names: Vec<String>,
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// One random file with tokens and the numbers that they give.
pub(crate) struct Case {
    pub(crate) bytes: Vec<u8>,
    pub(crate) tokens: Vec<u32>,
    pub(crate) wanted: Vec<f32>,
}

/// Tokens as a request has them.
pub(crate) fn list(tokens: &[u32]) -> String {
    tokens.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

impl Spec {
    /// The specification, when Python can run it.
    pub(crate) fn start() -> Option<Spec> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/spec");
        let child = Command::new("python3")
            .args(["-B", "-c", SERVER])
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let started = child.ok().and_then(|mut child| {
            let (requests, out) = (child.stdin.take()?, child.stdout.take()?);
            let mut answers = BufReader::new(out);
            let mut names = String::new();
            answers.read_line(&mut names).ok().filter(|&n| n > 0)?;
            Some((child, requests, answers, names))
        });
        let Some((child, requests, answers, names)) = started else {
            println!("skipped: python3 with numpy and gguf is not there");
            return None;
        };
        let thread = format!("{:?}", std::thread::current().id());
        let dir = std::env::temp_dir().join(format!("infr-spec-{}-{thread}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let names = names.split_whitespace().map(str::to_owned).collect();
        Some(Spec { dir, names, child, requests, answers })
    }

    /// All generators of the specification.
    pub(crate) fn names(&self) -> Vec<String> {
        self.names.clone()
    }

    /// Makes a file and runs the specification: `kind` is `logits`, `mtp`, `embed` or `diffusion`,
    /// `numbers` what the kind takes.
    pub(crate) fn ask(&mut self, kind: &str, name: &str, seed: u64, numbers: &str) -> Case {
        let (gguf, out) = (self.dir.join("m.gguf"), self.dir.join("m.f32"));
        let (gguf_name, out_name) = (gguf.to_str().unwrap(), out.to_str().unwrap());
        writeln!(self.requests, "{kind} {name} {seed} {gguf_name} {out_name} {numbers}").unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        assert_eq!(answer.trim(), "done", "{kind} {name} {seed}");
        Case {
            bytes: std::fs::read(&gguf).unwrap(),
            tokens: Vec::new(),
            wanted: floats(&std::fs::read(&out).unwrap()),
        }
    }

    /// A file with the specification's log-probabilities of `n` random tokens.
    pub(crate) fn case(&mut self, name: &str, seed: u64, n: usize) -> Case {
        let tokens = tokens(seed, n);
        let case = self.ask("logits", name, seed, &list(&tokens));
        Case { tokens, ..case }
    }
}

impl Drop for Spec {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Little-endian floats.
pub(crate) fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

/// Tokens drawn from a seed.
pub(crate) fn tokens(seed: u64, n: usize) -> Vec<u32> {
    let mut rng = infr_testkit::Rng::new(seed);
    (0..n).map(|_| rng.below(VOCAB as u32)).collect()
}

/// The largest difference of two equally long lists; infinite when a value is not finite.
pub(crate) fn max_diff(found: &[f32], wanted: &[f32]) -> f32 {
    assert_eq!(found.len(), wanted.len());
    let diffs = found.iter().zip(wanted).map(|(a, b)| (a - b).abs());
    diffs.fold(0.0, |m, d| if d.is_finite() { m.max(d) } else { f32::INFINITY })
}

/// Log-softmax of rows of the vocabulary's width.
pub(crate) fn log_softmax(logits: &[f32]) -> Vec<f32> {
    let row = |row: &[f32]| {
        let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = row.iter().map(|&x| f64::from(x - max).exp()).sum();
        let lse = f64::from(max) + sum.ln();
        row.iter().map(|&x| (f64::from(x) - lse) as f32).collect::<Vec<f32>>()
    };
    logits.chunks(VOCAB).flat_map(row).collect()
}

/// A model on the CPU.
pub(crate) struct Run {
    pub(crate) loaded: Loaded,
    pub(crate) options: BuildOptions,
    pub(crate) cpu: CpuOptions,
}

/// Rows of a page: small, so that sequences have several.
const PAGE: u32 = 16;
/// Sequences that a session holds.
const SLOTS: u32 = 3;

impl Run {
    /// A file on the reference, with a cache that rounds nothing.
    pub(crate) fn new(name: &str, bytes: &[u8]) -> Result<Run, String> {
        let gguf = Gguf::from_bytes(name, bytes.to_vec()).map_err(|e| e.to_string())?;
        let loaded = infr_models::from_gguf(Arc::new(gguf)).map_err(|e| e.to_string())?;
        let options =
            BuildOptions { cache_k: DType::F32, cache_v: DType::F32, context: 256, draft: false };
        let cpu = CpuOptions { simd: false, threads: 2, ..CpuOptions::default() };
        Ok(Run { loaded, options, cpu })
    }

    /// Its program.
    pub(crate) fn program(&self) -> Result<Program, String> {
        self.loaded.model.program(&self.loaded.gguf, &self.options).map_err(|e| e.to_string())
    }

    /// Log-probabilities at every position, the tokens cut into chunks of these lengths.
    pub(crate) fn logits(&self, tokens: &[u32], chunks: &[usize]) -> Result<Vec<f32>, String> {
        let mut session = Session::open(self, tokens.len())?;
        let mut out = Vec::new();
        let mut seen = 0;
        for &len in chunks {
            let step = session.step(&[(0, seen, &tokens[seen..seen + len])], Want::Logits)?;
            out.extend(step.rows.into_iter().flat_map(|r| r.logits));
            seen += len;
        }
        assert_eq!(seen, tokens.len());
        Ok(log_softmax(&out))
    }
}

/// An executor with one contiguous page table per sequence.
pub(crate) struct Session {
    executor: Box<dyn Executor>,
    reach: Vec<Reach>,
    pages_per_seq: u32,
}

/// What a row at `at` sees when the sequence has `end` rows after the step.
pub(crate) fn visible(reach: Reach, at: u32, end: u32) -> Visible {
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
    /// Opens a model for sequences of `len` rows, in cleared slots.
    pub(crate) fn open(run: &Run, len: usize) -> Result<Session, String> {
        let program = run.program()?;
        let groups = program.cache_groups();
        let pages_per_seq = (len as u32).div_ceil(PAGE);
        let placement = Placement {
            homes: Vec::new(),
            experts: ExpertPlacement::Resident,
            pages: vec![pages_per_seq * SLOTS; groups.len()],
            page_len: PAGE,
            slots: SLOTS,
            max_rows: SLOTS * len as u32,
        };
        let backend = CpuBackend::new(run.cpu.clone());
        let weights = run.loaded.weights();
        let executor = backend.open(&program, &weights, &placement).map_err(|e| e.to_string())?;
        let reach = groups.iter().map(|g| g.reach).collect();
        let mut session = Session { executor, reach, pages_per_seq };
        let mut clear: Vec<StateOp<'_>> = (0..SLOTS).map(|s| StateOp::Clear(Slot(s))).collect();
        session.executor.state(&mut clear).map_err(|e| e.to_string())?;
        Ok(session)
    }

    /// What each cache group's rows see.
    pub(crate) fn reach(&self) -> &[Reach] {
        &self.reach
    }

    /// Runs rows of some sequences: slot, first position, tokens.
    pub(crate) fn step(
        &mut self,
        work: &[(u32, usize, &[u32])],
        want: Want,
    ) -> Result<StepOutput, String> {
        let batch = self.batch(work, want);
        self.run(Phase::Forward, &batch)
    }

    /// The batch of such rows.
    pub(crate) fn batch(&self, work: &[(u32, usize, &[u32])], want: Want) -> Batch {
        let mut batch = Batch::default();
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
            let table = Arc::new(PageTable((base..base + self.pages_per_seq).collect()));
            batch.seqs.push(SeqRows {
                slot: Slot(slot),
                rows: first..batch.rows.len() as u32,
                pages: self.reach.iter().map(|_| table.clone()).collect(),
                sample: SampleParams::default(),
            });
        }
        batch
    }

    /// Runs a batch on a graph.
    pub(crate) fn run(&mut self, phase: Phase, batch: &Batch) -> Result<StepOutput, String> {
        let ticket = self.executor.submit(phase, batch).map_err(|e| e.to_string())?;
        let mut out = StepOutput::default();
        self.executor.collect(ticket, &mut out).map_err(|e| e.to_string())?;
        Ok(out)
    }
}

/// Carried rows of a width.
pub(crate) fn carried(data: Vec<f32>, width: usize) -> HostRows {
    HostRows { width: width as u32, data }
}
