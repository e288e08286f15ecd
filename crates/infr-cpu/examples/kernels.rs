//! Measures the processor kernels: `cargo run --release -p infr-cpu --example kernels [filter]`.
//!
//! Prints, per kernel, shape and number of threads, the least time of many runs, the bytes of weights read per
//! second and the multiply-adds per second.

use std::time::{Duration, Instant};

use infr_cpu::fast::{
    Acts, Output, PackedWeight, RowChoice, Runner, SimdLevel, WeightView, linear,
};
use infr_cpu::threads::ThreadPool;
use infr_tensor::DType;

/// Least time of one call within about `budget`.
fn least(budget: Duration, mut call: impl FnMut()) -> f64 {
    let start = Instant::now();
    let mut best = f64::INFINITY;
    while start.elapsed() < budget {
        let t = Instant::now();
        call();
        best = best.min(t.elapsed().as_secs_f64());
    }
    best
}

/// Blocks with small finite scales: bytes from a generator, with every `f16` scale set to one value.
fn blocks(dtype: DType, n_bytes: usize) -> Vec<u8> {
    let mut seed = 1u32;
    let mut bytes: Vec<u8> = (0..n_bytes)
        .map(|_| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 24) as u8
        })
        .collect();
    let scales: &[usize] = match dtype {
        DType::Q6_K => &[208],
        DType::Q3_K => &[108],
        DType::Q2_K => &[80, 82],
        DType::Q4_1 | DType::Q4_K | DType::Q5_K | DType::Q5_1 => &[0, 2],
        _ => &[0],
    };
    for block in bytes.chunks_exact_mut(dtype.block_bytes()) {
        for &at in scales {
            if dtype == DType::F32 {
                block.copy_from_slice(&0.01f32.to_le_bytes());
            } else if dtype != DType::MXFP4 && dtype != DType::NVFP4 {
                block[at..at + 2].copy_from_slice(&half::f16::from_f32(0.01).to_le_bytes());
            }
        }
    }
    bytes
}

fn main() {
    let filter = std::env::args().nth(1).unwrap_or_default();
    let level = SimdLevel::detect();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    println!("level {level:?}");
    bandwidth(threads);
    let shapes = [(576, 576), (1536, 576), (576, 1536), (49152, 576), (2048, 640), (4096, 4096)];
    let types = [
        DType::Q4_1,
        DType::Q8_0,
        DType::Q5_0,
        DType::Q4_K,
        DType::Q6_K,
        DType::Q4_0,
        DType::IQ4_NL,
        DType::F16,
        DType::F32,
    ];
    for dtype in types {
        for (outer, inner) in shapes {
            if inner % dtype.block_len() != 0
                || !format!("{dtype} {outer}x{inner}").contains(&filter)
            {
                continue;
            }
            let bytes = blocks(dtype, outer * inner / dtype.block_len() * dtype.block_bytes());
            for n_threads in [1, threads] {
                let pool = ThreadPool::new(n_threads);
                let t = Instant::now();
                let view = WeightView { dtype, bytes: &bytes, outer, inner };
                let weight = PackedWeight::pack(&pool, view).expect("a weight type");
                let packing = bytes.len() as f64 / t.elapsed().as_secs_f64() / 1e9;
                print!("{dtype:6} {outer:6}x{inner:<5} {n_threads} thr, pack {packing:4.1} GB/s:");
                for n_rows in [1, 2, 4, 8, 64, 512] {
                    if n_rows * outer > 10_000_000 {
                        continue;
                    }
                    let x: Vec<f32> = (0..n_rows * inner).map(|i| (i % 17) as f32 - 8.0).collect();
                    let mut acts = Acts::new();
                    let run = Runner { pool: &pool, level };
                    let rows = RowChoice::First(n_rows);
                    acts.fill(run, weight.acts_kind(), &x, inner, rows);
                    let mut out = vec![0f32; n_rows * outer];
                    let s = least(Duration::from_millis(150), || {
                        let out = Output { data: &mut out, stride: outer };
                        linear(run, &weight, 0..outer, &acts, out);
                    });
                    let macs = (n_rows * outer * inner) as f64 / s / 1e9;
                    if n_rows == 1 {
                        print!(" {:6.1} GB/s", weight.packed_bytes() as f64 / s / 1e9);
                    }
                    print!(" | {n_rows}: {macs:6.1}");
                }
                println!(" GMAC/s");
            }
        }
    }
}

/// Reads a large buffer on all threads: what decode can reach.
fn bandwidth(threads: usize) {
    let data = vec![1u64; 32 << 20];
    for n_threads in [1, threads] {
        let pool = ThreadPool::new(n_threads);
        let sums: Vec<std::sync::atomic::AtomicU64> = (0..64).map(|_| 0.into()).collect();
        let s = least(Duration::from_millis(500), || {
            pool.run(64, &|i| {
                let part = &data[i * data.len() / 64..(i + 1) * data.len() / 64];
                let sum: u64 = part.iter().fold(0, |a, b| a.wrapping_add(*b));
                sums[i].store(sum, std::sync::atomic::Ordering::Relaxed);
            });
        });
        println!("read {n_threads} threads: {:.1} GB/s", data.len() as f64 * 8.0 / s / 1e9);
    }
}
