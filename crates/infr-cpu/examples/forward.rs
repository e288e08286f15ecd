//! Times the kernels of whole forward passes with random weights: what an executor can reach at best.
//!
//! `cargo run --release -p infr-cpu --example forward [threads]`: prints tokens per second for a prompt of 512
//! and for generation at a context of 64, for the shapes of two small public models.

use std::time::Instant;

/// Seconds that this thread has run, from the kernel's accounting; 0 where there is none.
///
/// On a machine with other work it measures the kernels and not the neighbours, for one thread.
fn thread_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|n| n.parse::<f64>().ok()).unwrap_or(0.0) / 1e9
}

/// Wall time, or the thread's own time when there is one thread.
#[derive(Clone, Copy)]
struct Clock {
    start: Instant,
    own: Option<f64>,
}

impl Clock {
    fn new(n_threads: usize) -> Clock {
        let own = (n_threads == 1).then(thread_seconds);
        Clock { start: Instant::now(), own }
    }

    fn seconds(&self) -> f64 {
        match self.own {
            Some(own) => thread_seconds() - own,
            None => self.start.elapsed().as_secs_f64(),
        }
    }
}

use infr_cpu::fast::rows::{Activation, RopePairs, RopeShape, activate, add, rms_norm, rope};
use infr_cpu::fast::{
    Acts, AttentionRows, AttentionSeq, AttentionShape, Interval, KvCache, KvData, Output,
    PackedWeight, RowChoice, Runner, SimdLevel, WeightArena, WeightView, attention, linear,
};
use infr_cpu::threads::ThreadPool;
use infr_tensor::DType;

struct Shape {
    name: &'static str,
    layers: usize,
    width: usize,
    hidden: usize,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    vocabulary: usize,
    types: Types,
}

struct Types {
    q: DType,
    v: DType,
    up: DType,
    down: DType,
    head: DType,
}

const SHAPES: [Shape; 2] = [
    Shape {
        name: "SmolLM2-135M Q4_1",
        layers: 30,
        width: 576,
        hidden: 1536,
        heads: 9,
        kv_heads: 3,
        head_dim: 64,
        vocabulary: 49152,
        types: Types {
            q: DType::Q4_1,
            v: DType::Q4_1,
            up: DType::Q4_1,
            down: DType::Q4_1,
            head: DType::Q8_0,
        },
    },
    Shape {
        name: "Gemma 3 270M Q4_K_M",
        layers: 18,
        width: 640,
        hidden: 2048,
        heads: 4,
        kv_heads: 1,
        head_dim: 256,
        vocabulary: 262_144,
        types: Types {
            q: DType::Q5_0,
            v: DType::Q8_0,
            up: DType::Q5_0,
            down: DType::Q6_K,
            head: DType::Q8_0,
        },
    },
];

struct Layer {
    q: PackedWeight,
    k: PackedWeight,
    v: PackedWeight,
    o: PackedWeight,
    gate: PackedWeight,
    up: PackedWeight,
    down: PackedWeight,
    keys: Vec<half::f16>,
    values: Vec<half::f16>,
}

fn random_weight(
    (pool, arena): (&ThreadPool, &WeightArena),
    dtype: DType,
    outer: usize,
    inner: usize,
) -> PackedWeight {
    let mut bytes = vec![0u8; outer * inner / dtype.block_len() * dtype.block_bytes()];
    let scale = half::f16::from_f32(1e-3).to_le_bytes();
    for (i, block) in bytes.chunks_exact_mut(dtype.block_bytes()).enumerate() {
        for (j, byte) in block.iter_mut().enumerate() {
            *byte = (i * 31 + j * 7) as u8;
        }
        let at = if dtype == DType::Q6_K { 208 } else { 0 };
        block[at..at + 2].copy_from_slice(&scale);
        if matches!(dtype, DType::Q4_1 | DType::Q4_K) {
            block[2..4].copy_from_slice(&scale);
        }
    }
    let view = WeightView { dtype, bytes: &bytes, outer, inner };
    PackedWeight::pack_in(pool, arena, view).expect("a weight type")
}

/// Buffers of a step.
#[derive(Default)]
struct Work {
    x: Vec<f32>,
    normed: Vec<f32>,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    mixed: Vec<f32>,
    gate: Vec<f32>,
    up: Vec<f32>,
    logits: Vec<f32>,
    acts: Acts,
    spent: [f64; 6],
}

impl Work {
    fn time(&mut self, part: usize, since: Clock) -> Clock {
        self.spent[part] += since.seconds();
        Clock::new(if since.own.is_some() { 1 } else { 2 })
    }
}

fn step(
    run: Runner<'_>,
    s: &Shape,
    layers: &mut [Layer],
    head: &PackedWeight,
    w: &mut Work,
    (first, n): (usize, usize),
) {
    let (e, qw, kw) = (s.width, s.heads * s.head_dim, s.kv_heads * s.head_dim);
    w.x.resize(n * e, 0.5);
    for (buffer, width) in [
        (&mut w.normed, e),
        (&mut w.q, qw),
        (&mut w.k, kw),
        (&mut w.v, kw),
        (&mut w.mixed, qw.max(e)),
        (&mut w.gate, s.hidden),
        (&mut w.up, s.hidden),
    ] {
        buffer.resize(n * width, 0.0);
    }
    w.logits.resize(s.vocabulary, 0.0);
    let weight = vec![1f32; e];
    let angles = vec![0.7f32; n * s.head_dim / 2];
    let pages: Vec<u32> = (0..16).collect();
    let seqs = [AttentionSeq { rows: 0..n, pages: &pages }];
    let visible: Vec<Interval> =
        (0..n).map(|i| Interval { lo: 0, hi: (first + i + 1) as u32 }).collect();
    let shape = AttentionShape {
        heads: s.heads,
        kv_heads: s.kv_heads,
        key_dim: s.head_dim,
        value_dim: s.head_dim,
        scale: 0.1,
        softcap: None,
        sinks: None,
    };
    let project = |weight: &PackedWeight, acts: &Acts, out: &mut [f32]| {
        let stride = weight.outer();
        linear(
            run,
            weight,
            0..stride,
            acts,
            Output { data: &mut out[..acts.n_rows() * stride], stride },
        );
    };
    for layer in layers {
        let mut t = Clock::new(run.pool.n_threads());
        rms_norm(run, &w.x, Some(&weight), 1e-5, &mut w.normed);
        t = w.time(0, t);
        w.acts.fill(run, layer.q.acts_kind(), &w.normed, e, RowChoice::First(n));
        t = w.time(1, t);
        project(&layer.q, &w.acts, &mut w.q);
        project(&layer.k, &w.acts, &mut w.k);
        project(&layer.v, &w.acts, &mut w.v);
        t = w.time(2, t);
        let rotary = |heads| RopeShape {
            heads,
            head_dim: s.head_dim,
            start: 0,
            n_rot: s.head_dim,
            pairs: RopePairs::Halves,
        };
        rope(run, rotary(s.heads), &angles, &angles, &mut w.q);
        rope(run, rotary(s.kv_heads), &angles, &angles, &mut w.k);
        for i in 0..n * kw {
            layer.keys[first * kw + i] = half::f16::from_f32(w.k[i]);
            layer.values[first * kw + i] = half::f16::from_f32(w.v[i]);
        }
        t = w.time(0, t);
        let cache = KvCache {
            keys: KvData::F16(&layer.keys),
            values: Some(KvData::F16(&layer.values)),
            page_len: 64,
        };
        let rows = AttentionRows { seqs: &seqs, visible: &visible, q: &w.q };
        attention(run, &shape, &cache, &rows, &mut w.mixed[..n * qw]);
        t = w.time(3, t);
        w.acts.fill(run, layer.o.acts_kind(), &w.mixed, qw, RowChoice::First(n));
        t = w.time(1, t);
        project(&layer.o, &w.acts, &mut w.normed);
        t = w.time(2, t);
        add(run, &w.x, &w.normed, &mut w.mixed[..n * e]);
        rms_norm(run, &w.mixed[..n * e], Some(&weight), 1e-5, &mut w.normed);
        t = w.time(0, t);
        w.acts.fill(run, layer.up.acts_kind(), &w.normed, e, RowChoice::First(n));
        t = w.time(1, t);
        project(&layer.gate, &w.acts, &mut w.gate);
        project(&layer.up, &w.acts, &mut w.up);
        t = w.time(2, t);
        activate(run, Activation::Silu, &w.gate, Some(&w.up), &mut w.gate.clone());
        t = w.time(0, t);
        w.acts.fill(run, layer.down.acts_kind(), &w.up, s.hidden, RowChoice::First(n));
        t = w.time(1, t);
        project(&layer.down, &w.acts, &mut w.normed);
        w.time(2, t);
    }
    let t = Clock::new(run.pool.n_threads());
    w.acts.fill(run, head.acts_kind(), &w.normed, e, RowChoice::Picked(&[n as u32 - 1]));
    project(head, &w.acts, &mut w.logits);
    w.time(4, t);
}

fn main() {
    let n_threads = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(2);
    let pool = ThreadPool::new(n_threads);
    let run = Runner { pool: &pool, level: SimdLevel::detect() };
    for s in &SHAPES {
        let (qw, kw) = (s.heads * s.head_dim, s.kv_heads * s.head_dim);
        let t = Instant::now();
        let arena = WeightArena::new();
        let memory = (&pool, &arena);
        let mut layers: Vec<Layer> = (0..s.layers)
            .map(|_| Layer {
                q: random_weight(memory, s.types.q, qw, s.width),
                k: random_weight(memory, s.types.q, kw, s.width),
                v: random_weight(memory, s.types.v, kw, s.width),
                o: random_weight(memory, s.types.q, s.width, qw),
                gate: random_weight(memory, s.types.up, s.hidden, s.width),
                up: random_weight(memory, s.types.up, s.hidden, s.width),
                down: random_weight(memory, s.types.down, s.width, s.hidden),
                keys: vec![half::f16::ZERO; 1024 * kw],
                values: vec![half::f16::ZERO; 1024 * kw],
            })
            .collect();
        let head = random_weight(memory, s.types.head, s.vocabulary, s.width);
        println!("{}: made and packed in {:.2} s", s.name, t.elapsed().as_secs_f64());
        for (what, first, n, times) in [("pp512", 0, 512, 6), ("tg at 64", 64, 1, 100)] {
            let mut best = f64::INFINITY;
            let mut parts = [0f64; 6];
            for _ in 0..times {
                let mut work = Work::default();
                let t = Clock::new(n_threads);
                step(run, s, &mut layers, &head, &mut work, (first, n));
                let s = t.seconds();
                if s < best {
                    (best, parts) = (s, work.spent);
                }
            }
            println!(
                "  {what}: {:.1} tokens/s, {:.2} ms: rows {:.2}, quantise {:.2}, linear {:.2}, attention {:.2}, head {:.2}",
                n as f64 / best,
                best * 1e3,
                parts[0] * 1e3,
                parts[1] * 1e3,
                parts[2] * 1e3,
                parts[3] * 1e3,
                parts[4] * 1e3
            );
        }
    }
}
