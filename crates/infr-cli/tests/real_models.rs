//! Two real models against llama.cpp, by log-probabilities on a fixed text.
//!
//! Needs the folder that `test.sh` fills (`INFR_PEERS`): llama.cpp's programs and the models.
//! Each model is expanded to F32 with `llama-quantize`, which is exact, so that what is compared is
//! arithmetic and not rounding. llama.cpp's answers come from the base file of `llama-perplexity
//! --kl-divergence-base`: log-probabilities in steps of about 2e-4 for the second half of a chunk.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use infr_cpu::{CpuBackend, CpuOptions};
use infr_engine::{Engine, EngineOptions, EngineSource, Event, Request, Wanted};
use infr_gguf::Gguf;
use infr_models::BuildOptions;
use infr_tensor::DType;

const TEXT: &str = include_str!("data/text.txt");
const CONTEXT: usize = 1280;
/// Positions compared with the F32 expansion.
const EXACT: usize = 256;
/// Positions over which quantised runs are judged.
const JUDGED: usize = 512;

#[test]
fn smollm2_agrees_with_llama_cpp() {
    check("SmolLM2-135M-Instruct.Q4_1.gguf");
}

#[test]
fn gemma3_agrees_with_llama_cpp() {
    check("gemma-3-270m-q4_k_m.gguf");
}

fn check(name: &str) {
    let Some(peers) = peers() else { return };
    let shipped = peers.join("models").join(name);
    let work = tempfile::tempdir().unwrap();
    let expanded = work.path().join("f32.gguf");
    let quantize = peers.join("llama/bin/llama-quantize");
    let args = ["--allow-requantize", text(&shipped), text(&expanded), "F32"];
    run(Command::new(quantize).args(args));

    let exact = Base::make(&peers, &expanded, work.path(), &["-ctk", "f32", "-ctv", "f32"]);
    let theirs = Base::make(&peers, &shipped, work.path(), &[]);
    assert!(exact.rows.len() >= JUDGED && exact.tokens == theirs.tokens);

    let truth = log_probs(&expanded, Kernels::Reference, &exact);
    let (worst, flips) = distance(&truth[..EXACT], &exact.rows[..EXACT]);
    println!("{name}: F32 expansion, {EXACT} positions: top-50 max {worst:.5}, {flips} flips");
    assert!(worst <= 0.02, "{name}: expansion differs by {worst} from llama.cpp");
    assert_eq!(flips, 0, "{name}: the expansion's most likely token differs");

    let reference = log_probs(&shipped, Kernels::Reference, &exact);
    let (worst, flips) = distance(&reference, &truth);
    println!("{name}: reference path, {JUDGED} positions: top-50 max {worst:.5}, {flips} flips");
    assert!(worst <= 0.02 && flips == 0, "{name}: the reference path differs by {worst}");
    drop(reference);

    let ours = log_probs(&shipped, Kernels::Simd, &exact);
    let (kl, agree) = judge(&truth, &ours);
    let (their_kl, their_agree) = judge(&truth, &theirs.rows[..JUDGED]);
    println!(
        "{name}: SIMD path, {JUDGED} positions: mean KL {kl:.2e} (llama.cpp {their_kl:.2e}), \
         top-1 {agree:.2} % (llama.cpp {their_agree:.2} %)"
    );
    assert!(kl <= 1.25 * their_kl, "{name}: KL {kl} against {their_kl} of llama.cpp");
    assert!(kl <= 2e-3, "{name}: KL {kl}");
    assert!(agree >= their_agree - 0.5, "{name}: top-1 {agree} against {their_agree}");
}

/// Where llama.cpp and the models are, or `None` with a word about it.
#[allow(clippy::disallowed_methods)]
fn peers() -> Option<PathBuf> {
    let folder = std::env::var_os("INFR_PEERS").map(PathBuf::from);
    let found = folder.filter(|f| f.join("models").is_dir() && f.join("llama/bin").is_dir());
    if found.is_none() {
        println!("skipped: INFR_PEERS names no folder with llama.cpp and models (see test.sh)");
    }
    found
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
}

/// llama.cpp's log-probabilities of one chunk.
struct Base {
    /// The chunk's tokens, BOS included where the model wants one.
    tokens: Vec<u32>,
    /// Position of the first row.
    first: usize,
    /// One row of log-probabilities per position.
    rows: Vec<Vec<f32>>,
}

impl Base {
    fn make(peers: &Path, model: &Path, work: &Path, options: &[&str]) -> Base {
        let prompt = work.join("text.txt");
        // llama-perplexity asks for two chunks of text and computes one.
        std::fs::write(&prompt, format!("{TEXT}\n{TEXT}")).unwrap();
        let file = work.join("base.bin");
        let context = CONTEXT.to_string();
        let mut command = Command::new(peers.join("llama/bin/llama-perplexity"));
        command.args(["-m", text(model), "-f", text(&prompt), "-c", &context, "--chunks", "1"]);
        command.args(["-fa", "off", "-t", "2", "--kl-divergence-base", text(&file)]).args(options);
        run(&mut command);
        Base::read(&std::fs::read(&file).unwrap(), bos(model))
    }

    fn read(bytes: &[u8], bos: Option<u32>) -> Base {
        assert_eq!(&bytes[..8], b"_logits_");
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        let (context, vocab) = (word(8) as usize, word(12) as usize);
        let mut tokens: Vec<u32> = (0..context).map(|i| word(20 + 4 * i)).collect();
        if let Some(bos) = bos {
            tokens[0] = bos;
        }
        let first = context / 2;
        let start = 20 + 4 * context * word(16) as usize;
        let size = 8 + 2 * vocab.next_multiple_of(2);
        let row = |i: usize| {
            let at = start + i * size;
            let (scale, low) = (f32::from_bits(word(at)), f32::from_bits(word(at + 4)));
            let code = |v: usize| {
                let at = at + 8 + 2 * v;
                u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap())
            };
            (0..vocab).map(|v| low + scale * f32::from(code(v))).collect()
        };
        let rows = (0..(context - first - 1).min(JUDGED)).map(row).collect();
        Base { tokens, first, rows }
    }
}

fn bos(model: &Path) -> Option<u32> {
    let gguf = Gguf::open(model).unwrap();
    let tokenizer = infr_chat::load::tokenizer(&gguf).unwrap();
    tokenizer.adds_bos().then(|| tokenizer.bos().unwrap())
}

#[derive(Clone, Copy, PartialEq)]
enum Kernels {
    Reference,
    Simd,
}

/// Our log-probabilities at the base's positions.
fn log_probs(model: &Path, path: Kernels, base: &Base) -> Vec<Vec<f32>> {
    let loaded = infr_models::load(model).unwrap();
    let cache = if path == Kernels::Simd { DType::F16 } else { DType::F32 };
    let build = BuildOptions { cache_k: cache, cache_v: cache, ..BuildOptions::default() };
    let backend =
        CpuBackend::new(CpuOptions { simd: path == Kernels::Simd, ..CpuOptions::default() });
    let options = EngineOptions { context: Some(CONTEXT as u32), ..EngineOptions::default() };
    let source = EngineSource::from_model(Arc::new(backend), &loaded, &options, build).unwrap();
    let engine = Engine::start(source, options).unwrap();
    let wanted = base.first..base.first + JUDGED;
    let tokens = base.tokens[..wanted.end].to_vec();
    let mut rows = Vec::new();
    for event in engine.submit(Request { want: Wanted::Logits, ..Request::new(tokens, 0) }) {
        match event {
            Event::Logits { first, rows: logits } => {
                for (i, row) in logits.data.chunks_exact(logits.width as usize).enumerate() {
                    if wanted.contains(&(first as usize + i)) {
                        rows.push(log_softmax(row));
                    }
                }
            }
            Event::Failed(error) => panic!("{error}"),
            _ => {}
        }
    }
    assert_eq!(rows.len(), JUDGED);
    rows
}

fn log_softmax(logits: &[f32]) -> Vec<f32> {
    let lse = infr_backend::sample::log_sum_exp(logits);
    logits.iter().map(|&l| (f64::from(l) - lse) as f32).collect()
}

/// Largest difference over the second's 50 most likely tokens, and how often another token is the
/// most likely although the second has a gap above 0.05.
fn distance(ours: &[Vec<f32>], theirs: &[Vec<f32>]) -> (f32, usize) {
    let (mut worst, mut flips) = (0f32, 0);
    for (a, b) in ours.iter().zip(theirs) {
        let mut order: Vec<usize> = (0..b.len()).collect();
        order.select_nth_unstable_by(50, |&x, &y| b[y].total_cmp(&b[x]));
        order.truncate(50);
        order.sort_unstable_by(|&x, &y| b[y].total_cmp(&b[x]));
        for &t in &order {
            worst = worst.max((a[t] - b[t]).abs());
        }
        let clear = b[order[0]] - b[order[1]] > 0.05;
        flips += usize::from(clear && argmax(a) != order[0]);
    }
    (worst, flips)
}

/// Mean Kullback-Leibler divergence from the truth, and how often the most likely token is the
/// same, in percent.
fn judge(truth: &[Vec<f32>], run: &[Vec<f32>]) -> (f64, f64) {
    let (mut kl, mut same) = (0f64, 0);
    for (p, q) in truth.iter().zip(run) {
        kl += p.iter().zip(q).map(|(&p, &q)| f64::from(p).exp() * f64::from(p - q)).sum::<f64>();
        same += usize::from(argmax(p) == argmax(q));
    }
    (kl / truth.len() as f64, 100.0 * same as f64 / truth.len() as f64)
}

fn argmax(row: &[f32]) -> usize {
    infr_backend::sample::argmax(row) as usize
}
