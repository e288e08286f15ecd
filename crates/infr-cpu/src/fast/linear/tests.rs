//! Every format and level against decode-and-multiply with the same rounded activations.

use infr_tensor::DType;
use infr_tensor::quant::codec;

use super::{Output, linear, linear_unpacked};
use crate::fast::acts::BlockMeta;
use crate::fast::testing::Rng;
use crate::fast::{Acts, ActsKind, PackedWeight, RowChoice, Runner, SimdLevel, WeightView};
use crate::threads::ThreadPool;

/// Random blocks whose values are finite and moderate.
fn random_weight(rng: &mut Rng, dtype: DType, elements: usize) -> Vec<u8> {
    let codec = codec(dtype).expect("a weight type");
    let mut bytes = Vec::new();
    let mut values = vec![0f32; dtype.block_len()];
    while bytes.len() < elements / dtype.block_len() * dtype.block_bytes() {
        let block: Vec<u8> = (0..dtype.block_bytes()).map(|_| rng.next_u32() as u8).collect();
        codec.decode(&block, &mut values);
        let largest = values.iter().fold(0f32, |m, v| m.max(v.abs()));
        if values.iter().all(|v| v.is_finite()) && largest < 100.0 && largest > 1e-4 {
            bytes.extend(block);
        }
    }
    bytes
}

fn decode(view: WeightView<'_>) -> Vec<f32> {
    let mut out = vec![0f32; view.outer * view.inner];
    codec(view.dtype).expect("a weight type").decode(view.bytes, &mut out);
    out
}

/// The activations that the kernel multiplies, as `f32`.
fn rounded(acts: &Acts, row_idx: usize, x: &[f32]) -> Vec<f32> {
    match acts.kind() {
        Some(ActsKind::Q8) => {
            acts.row_blocks(row_idx).into_iter().flat_map(|(q, meta)| values(&q, meta)).collect()
        }
        _ => x[row_idx * acts.width()..][..acts.width()].to_vec(),
    }
}

/// What the bytes of a block stand for.
fn values(q: &[i8], meta: BlockMeta) -> Vec<f32> {
    let scale = |i: usize| if i < 16 { meta.d_low } else { meta.d_high };
    q.iter().enumerate().map(|(i, q)| f32::from(*q) * scale(i)).collect()
}

/// Largest error over the rows and outputs, relative to the sum of absolute products.
fn worst(view: WeightView<'_>, acts: &Acts, x: &[f32], out: &[f32]) -> f64 {
    let weights = decode(view);
    let mut worst = 0f64;
    for i in 0..acts.n_rows() {
        let a = rounded(acts, i, x);
        for o in 0..view.outer {
            let w = &weights[o * view.inner..][..view.inner];
            let products = w.iter().zip(&a).map(|(w, a)| f64::from(*w) * f64::from(*a));
            let (sum, size) = products.fold((0.0, 0.0), |(s, n), p| (s + p, n + p.abs()));
            let error = (f64::from(out[i * view.outer + o]) - sum).abs();
            worst = worst.max(if size > 0.0 { error / size } else { error });
        }
    }
    worst
}

fn weight_types() -> impl Iterator<Item = DType> {
    DType::ALL.iter().copied().filter(|&t| codec(t).is_some() && t != DType::F64)
}

fn levels() -> impl Iterator<Item = SimdLevel> {
    SimdLevel::ALL.into_iter().filter(|l| l.is_available())
}

#[test]
fn every_type_level_and_row_count_matches_decoded_product() {
    let pool = ThreadPool::new(2);
    let mut rng = Rng::new(7);
    for dtype in weight_types() {
        for (outer, blocks) in [(1, 1), (16, 2), (37, 3)] {
            let inner =
                if dtype.block_len() == 1 { 33 * blocks } else { dtype.block_len() * blocks };
            let bytes = random_weight(&mut rng, dtype, outer * inner);
            let view = WeightView { dtype, bytes: &bytes, outer, inner };
            let weight = PackedWeight::pack(&pool, view).expect("sizes agree");
            for level in levels() {
                let run = Runner { pool: &pool, level };
                for n_rows in (1..=17).chain([64]) {
                    if outer != 37 && n_rows > 2 {
                        continue;
                    }
                    let x: Vec<f32> = (0..n_rows * inner).map(|_| rng.normal()).collect();
                    let mut acts = Acts::new();
                    acts.fill(run, weight.acts_kind(), &x, inner, RowChoice::First(n_rows));
                    let mut out = vec![f32::NAN; n_rows * outer];
                    let target = Output { data: &mut out, stride: outer };
                    linear(run, &weight, 0..outer, &acts, target);
                    let error = worst(view, &acts, &x, &out);
                    assert!(error < 1e-5, "{dtype} {level:?} {n_rows} rows of {inner}: {error:e}");
                }
            }
        }
    }
}

#[test]
fn a_row_has_the_same_bits_in_every_batch_and_form() {
    let pool = ThreadPool::new(3);
    let mut rng = Rng::new(8);
    for dtype in weight_types() {
        let (outer, inner, n_rows) = (40, 512, 37);
        let bytes = random_weight(&mut rng, dtype, outer * inner);
        let view = WeightView { dtype, bytes: &bytes, outer, inner };
        let weight = PackedWeight::pack(&pool, view).expect("sizes agree");
        let x: Vec<f32> = (0..n_rows * inner).map(|_| rng.normal()).collect();
        for level in levels() {
            let run = Runner { pool: &pool, level };
            let mut acts = Acts::new();
            acts.fill(run, weight.acts_kind(), &x, inner, RowChoice::First(n_rows));
            let mut all = vec![0f32; n_rows * outer];
            linear(run, &weight, 0..outer, &acts, Output { data: &mut all, stride: outer });
            let mut again = vec![0f32; n_rows * outer];
            let target = Output { data: &mut again, stride: outer };
            linear_unpacked(run, view, 0..outer, &acts, target).expect("sizes agree");
            assert_eq!(all, again, "{dtype} {level:?}: packed when used");
            for row_idx in [0u32, 15, 16, 36] {
                acts.fill(run, weight.acts_kind(), &x, inner, RowChoice::Picked(&[row_idx]));
                // Part of the rows, into a wider output.
                let mut one = vec![0f32; 64];
                linear(run, &weight, 16..outer, &acts, Output { data: &mut one, stride: 64 });
                let expected = &all[row_idx as usize * outer + 16..][..outer - 16];
                assert_eq!(&one[..outer - 16], expected, "{dtype} {level:?} row {row_idx}");
                assert!(one[outer - 16..].iter().all(|v| *v == 0.0), "wrote past the outputs");
            }
        }
    }
}

#[test]
fn levels_with_fused_multiply_add_agree_bit_for_bit() {
    let pool = ThreadPool::new(1);
    let mut rng = Rng::new(9);
    let fused: Vec<SimdLevel> = levels().filter(|l| *l != SimdLevel::Scalar).collect();
    for dtype in weight_types() {
        let (outer, inner) = (16, 512);
        let bytes = random_weight(&mut rng, dtype, outer * inner);
        let view = WeightView { dtype, bytes: &bytes, outer, inner };
        let weight = PackedWeight::pack(&pool, view).expect("sizes agree");
        let x: Vec<f32> = (0..inner).map(|_| rng.normal()).collect();
        let results: Vec<Vec<f32>> = fused
            .iter()
            .map(|&level| {
                let run = Runner { pool: &pool, level };
                let mut acts = Acts::new();
                acts.fill(run, weight.acts_kind(), &x, inner, RowChoice::First(1));
                let mut out = vec![0f32; outer];
                linear(run, &weight, 0..outer, &acts, Output { data: &mut out, stride: outer });
                out
            })
            .collect();
        assert!(results.windows(2).all(|w| w[0] == w[1]), "{dtype}: {results:?}");
    }
}

#[test]
fn large_product_is_cut_without_gaps() {
    let mut rng = Rng::new(10);
    let (outer, inner, n_rows) = (1000, 64, 300);
    let bytes = random_weight(&mut rng, DType::Q8_0, outer * inner);
    let view = WeightView { dtype: DType::Q8_0, bytes: &bytes, outer, inner };
    for n_threads in [1, 2, 5] {
        let pool = ThreadPool::new(n_threads);
        let run = Runner { pool: &pool, level: SimdLevel::detect() };
        let weight = PackedWeight::pack(&pool, view).expect("sizes agree");
        let x: Vec<f32> = (0..n_rows * inner).map(|_| rng.normal()).collect();
        let mut acts = Acts::new();
        acts.fill(run, ActsKind::Q8, &x, inner, RowChoice::First(n_rows));
        let mut out = vec![f32::NAN; n_rows * outer];
        linear(run, &weight, 0..outer, &acts, Output { data: &mut out, stride: outer });
        let error = worst(view, &acts, &x, &out);
        assert!(error < 1e-5, "{n_threads} threads: {error:e}");
    }
}

#[test]
fn wrong_sizes_are_refused() {
    let pool = ThreadPool::new(1);
    let bytes = [0u8; 34];
    let view = WeightView { dtype: DType::Q8_0, bytes: &bytes, outer: 1, inner: 33 };
    assert!(PackedWeight::pack(&pool, view).is_err());
    let view = WeightView { dtype: DType::Q8_0, bytes: &bytes, outer: 2, inner: 32 };
    assert!(PackedWeight::pack(&pool, view).is_err());
    let view = WeightView { dtype: DType::I32, bytes: &bytes[..32], outer: 1, inner: 8 };
    assert!(PackedWeight::pack(&pool, view).is_err());
}

#[test]
fn quantised_rows_round_to_nearest() {
    let pool = ThreadPool::new(2);
    let mut rng = Rng::new(11);
    let (width, n_rows) = (96, 35);
    let mut x: Vec<f32> = (0..n_rows * width).map(|_| rng.normal()).collect();
    x[..32].fill(0.0);
    x[32..64].iter_mut().for_each(|v| *v *= 1e-30);
    for level in levels() {
        let mut acts = Acts::new();
        let run = Runner { pool: &pool, level };
        acts.fill(run, ActsKind::Q8, &x, width, RowChoice::First(n_rows));
        for row_idx in 0..n_rows {
            for (b, (q, meta)) in acts.row_blocks(row_idx).into_iter().enumerate() {
                let source = &x[row_idx * width + b * 32..][..32];
                for (i, (value, x)) in values(&q, meta).into_iter().zip(source).enumerate() {
                    let d = if i < 16 { meta.d_low } else { meta.d_high };
                    assert!((value - x).abs() <= 0.501 * d);
                }
                let sum = |q: &[i8]| q.iter().map(|q| i16::from(*q)).sum::<i16>();
                let (low, high) = (sum(&q[..16]), sum(&q[16..]));
                assert_eq!((-meta.minus_low, -meta.minus_high), (low, high));
                let both = meta.d_low * f32::from(low) + meta.d_high * f32::from(high);
                assert_eq!(meta.d_sum, both);
            }
        }
    }
}
