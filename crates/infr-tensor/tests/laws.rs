//! Laws that hold for every codec, on random and on hostile input.

mod common;

use common::{gaussian, rmse, splitmix};
use infr_tensor::{DType, quant};
use proptest::prelude::*;

fn weight_types() -> impl Iterator<Item = DType> {
    DType::ALL.iter().copied().filter(|&t| quant::codec(t).is_some())
}

fn encoded_types() -> impl Iterator<Item = DType> {
    weight_types().filter(|&t| quant::can_encode(t))
}

fn round_trip(dtype: DType, values: &[f32]) -> Vec<f32> {
    let blocks = quant::encode_rows(dtype, values, values.len()).expect("an encoder");
    let mut out = vec![f32::NAN; values.len()];
    assert!(quant::decode_row(dtype, &blocks, &mut out));
    out
}

/// Largest error over the largest magnitude of the block, for values that half precision holds well.
fn error_bound(dtype: DType) -> f32 {
    // Rounding the scale to half precision adds 2^-11, the offset as much again.
    let half = 1.0 / 1024.0;
    match dtype {
        DType::F32 | DType::F64 => 0.0,
        DType::F16 => 1.0 / 2048.0,
        DType::BF16 => 1.0 / 256.0,
        // The end of the grid opposite to the largest value lies one step short.
        DType::Q4_0 => 1.0 / 8.0 + half,
        DType::Q5_0 => 1.0 / 16.0 + half,
        // Half a step of a range of at most twice the magnitude.
        DType::Q4_1 => 1.0 / 15.0 + 2.0 * half,
        DType::Q5_1 => 1.0 / 31.0 + 2.0 * half,
        DType::Q8_0 => 0.5 / 127.0 + half,
        // The last gap of the code book, and a largest value up to a third above it.
        DType::MXFP4 => 0.26,
        DType::TQ1_0 | DType::TQ2_0 => 0.5 + half,
        // Searches may clip single values for the sake of the rest.
        DType::Q2_K | DType::Q3_K | DType::Q2_0 | DType::Q1_0 => 1.0,
        DType::IQ4_NL | DType::IQ4_XS | DType::NVFP4 => 0.4,
        DType::Q4_K | DType::Q5_K | DType::Q6_K => 0.4,
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => unreachable!("no weights"),
        DType::IQ1_S | DType::IQ1_M | DType::IQ2_XXS | DType::IQ2_XS | DType::IQ2_S => {
            unreachable!("no encoder")
        }
        DType::IQ3_XXS | DType::IQ3_S => unreachable!("no encoder"),
    }
}

/// Root mean square error over the root mean square of the values that always holds, because the encoder
/// minimises it or because the format is fine enough.
fn rms_bound(dtype: DType) -> f64 {
    match dtype {
        // One magnitude for the whole block: worse than zeros when a few values stand out.
        DType::TQ1_0 | DType::TQ2_0 => 4.0,
        DType::MXFP4 | DType::Q4_0 | DType::Q4_1 => 1.2,
        _ => 1.001,
    }
}

/// Failing input is printed, not kept in the tree.
fn config() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::default() }
}

/// 256 values of one of many shapes: sizes, outliers, zeros, constants, one sign.
fn block() -> impl Strategy<Value = Vec<f32>> {
    let uniform = proptest::collection::vec(-1.0f32..1.0, 256);
    let sparse = proptest::collection::vec(prop_oneof![3 => Just(0.0f32), 1 => -1.0f32..1.0], 256);
    let outliers =
        proptest::collection::vec(prop_oneof![20 => -0.01f32..0.01, 1 => -1.0f32..1.0], 256);
    let positive = proptest::collection::vec(0.5f32..1.0, 256);
    let constant = (-1.0f32..1.0).prop_map(|v| vec![v; 256]);
    prop_oneof![uniform, sparse, outliers, positive, constant]
}

/// Any finite value, subnormals and the largest included.
fn finite() -> impl Strategy<Value = f32> {
    prop_oneof![
        any::<u32>().prop_map(f32::from_bits).prop_filter("finite", |v| v.is_finite()),
        prop_oneof![Just(0.0), Just(-0.0), Just(f32::MAX), Just(f32::MIN), Just(1e-45f32)],
    ]
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn errors_are_bounded(values in block(), exponent in -4i32..8) {
        let values: Vec<f32> = values.iter().map(|v| v * 2f32.powi(exponent)).collect();
        for dtype in encoded_types() {
            let decoded = round_trip(dtype, &values);
            let len = dtype.block_len();
            for (x, y) in values.chunks(len).zip(decoded.chunks(len)) {
                let peak = x.iter().fold(0.0f32, |m, v| m.max(v.abs()));
                // Scales in the subnormal range of half precision have an absolute error; so have those
                // of NVFP4 below its smallest.
                let least_step = if dtype == DType::NVFP4 { 2f32.powi(-9) } else { 2f32.powi(-18) };
                let bound = error_bound(dtype) * peak * 1.000_01 + least_step;
                for (x, y) in x.iter().zip(y) {
                    prop_assert!((x - y).abs() <= bound, "{dtype}: {x} became {y}, peak {peak}");
                }
            }
            let size = rmse(&values, &vec![0.0; values.len()]);
            prop_assert!(rmse(&values, &decoded) <= rms_bound(dtype) * size + 1e-6, "{dtype}");
        }
    }

    #[test]
    fn finite_input_gives_no_nan(values in proptest::collection::vec(finite(), 256)) {
        for dtype in encoded_types() {
            let decoded = round_trip(dtype, &values);
            prop_assert!(decoded.iter().all(|v| !v.is_nan()), "{dtype}: {decoded:?}");
        }
    }

    #[test]
    fn encoding_again_changes_nothing(values in block()) {
        for dtype in [
            DType::F32, DType::F64, DType::F16, DType::BF16, DType::Q8_0, DType::Q4_0, DType::Q5_0,
            DType::TQ1_0, DType::TQ2_0, DType::MXFP4, DType::Q1_0,
        ] {
            let once = round_trip(dtype, &values);
            prop_assert_eq!(&round_trip(dtype, &once), &once, "{}", dtype);
        }
    }

    #[test]
    fn scaling_by_a_power_of_two_scales_the_result(values in block()) {
        let doubled: Vec<f32> = values.iter().map(|v| v * 4.0).collect();
        for dtype in [DType::Q2_K, DType::Q3_K, DType::Q4_K, DType::Q5_K, DType::IQ4_NL, DType::Q2_0] {
            // Half-precision scales are normal numbers, or the values are all tiny.
            let values: Vec<f32> = values.iter().map(|v| v * 1024.0).collect();
            let doubled: Vec<f32> = doubled.iter().map(|v| v * 1024.0).collect();
            let expected: Vec<f32> = round_trip(dtype, &values).iter().map(|v| v * 4.0).collect();
            prop_assert_eq!(round_trip(dtype, &doubled), expected, "{}", dtype);
        }
    }

    #[test]
    fn any_bytes_decode(seed in any::<u64>()) {
        let mut rng = splitmix(seed);
        for dtype in weight_types() {
            let blocks: Vec<u8> = (0..dtype.block_bytes() * 2).map(|_| rng() as u8).collect();
            let mut both = vec![0.0; dtype.block_len() * 2];
            prop_assert!(quant::decode_row(dtype, &blocks, &mut both));
            // The second block does not depend on the first.
            let mut second = vec![0.0; dtype.block_len()];
            prop_assert!(quant::decode_row(dtype, &blocks[dtype.block_bytes()..], &mut second));
            let bits = |v: &[f32]| v.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            prop_assert_eq!(bits(&both[dtype.block_len()..]), bits(&second), "{}", dtype);
        }
    }
}

#[test]
fn zeros_stay_zeros() {
    for dtype in encoded_types().filter(|t| !matches!(t, DType::Q1_0)) {
        let values = vec![0.0; 512];
        assert_eq!(round_trip(dtype, &values), values, "{dtype}");
    }
}

#[test]
fn huge_values_saturate() {
    // The offset of Q4_1 and Q5_1 saturates long before the range does: no sign survives.
    for dtype in encoded_types().filter(|t| !matches!(t, DType::Q4_1 | DType::Q5_1)) {
        for size in [1e30f32, f32::MAX] {
            let values: Vec<f32> =
                (0..256).map(|i| if i % 3 == 0 { size } else { -size }).collect();
            let decoded = round_trip(dtype, &values);
            for (x, y) in values.iter().zip(&decoded) {
                assert!(
                    !y.is_nan() && (*y == 0.0 || y.signum() == x.signum()),
                    "{dtype}: {x} -> {y}"
                );
            }
            assert!(decoded.iter().any(|y| y.abs() > 400.0), "{dtype}");
        }
    }
}

#[test]
fn encoders_are_listed_truthfully() {
    for dtype in weight_types() {
        let codec = quant::codec(dtype).unwrap();
        let mut out = vec![0xa5; dtype.block_bytes()];
        let wrote = codec.encode(&vec![1.0; dtype.block_len()], &mut out);
        assert_eq!(wrote, codec.can_encode(), "{dtype}");
        assert_eq!(wrote, out.iter().any(|&b| b != 0xa5), "{dtype} writes only with an encoder");
        assert_eq!(quant::can_encode(dtype), wrote, "{dtype}");
    }
}

#[test]
fn types_without_a_codec_are_refused() {
    for dtype in [DType::I8, DType::I16, DType::I32, DType::I64] {
        assert!(quant::codec(dtype).is_none());
        assert!(!quant::decode_row(dtype, &[0; 8], &mut [0.0]));
        assert!(!quant::encode_row(dtype, &[0.0], &mut [0; 8]));
        assert!(!quant::random_blocks(dtype, &mut splitmix(1), 1.0, &mut [0; 8]));
        assert_eq!(quant::encode_rows(dtype, &[0.0; 8], 8), None);
    }
    assert_eq!(quant::encode_rows(DType::IQ1_S, &[0.0; 256], 256), None);
}

#[test]
fn odd_lengths_are_refused() {
    assert_eq!(quant::encode_rows(DType::Q4_0, &[0.0; 96], 48), None, "rows of half blocks");
    assert_eq!(quant::encode_rows(DType::Q4_0, &[0.0; 96], 64), None, "half a row");
    assert_eq!(quant::encode_rows(DType::Q4_0, &[0.0; 96], 0), None, "no width");
    assert_eq!(quant::encode_rows(DType::Q4_0, &[0.0; 96], 32).map(|b| b.len()), Some(54));
    for dtype in weight_types().filter(|t| t.is_quantised()) {
        let (len, bytes) = (dtype.block_len(), dtype.block_bytes());
        for (n_bytes, n_values) in [(bytes - 1, len), (bytes, len - 1), (2 * bytes, len)] {
            let decode = std::panic::catch_unwind(|| {
                quant::decode_row(dtype, &vec![0; n_bytes], &mut vec![0.0; n_values])
            });
            assert!(decode.is_err(), "{dtype}: {n_bytes} bytes as {n_values} values");
        }
    }
}

#[test]
fn random_blocks_have_the_wanted_spread() {
    for dtype in weight_types() {
        // NVFP4 scales are multiples of 2^-9, so spreads below 0.006 need its tensor-wide factor.
        for spread in [0.02f32, 0.8, 30.0] {
            let mut rng = splitmix(11);
            let n_blocks = 65536 / dtype.block_len();
            let mut blocks = vec![0; n_blocks * dtype.block_bytes()];
            assert!(quant::random_blocks(dtype, &mut rng, spread, &mut blocks));
            let mut values = vec![0.0; 65536];
            assert!(quant::decode_row(dtype, &blocks, &mut values));
            assert!(values.iter().all(|v| v.is_finite()), "{dtype}");
            let mean = values.iter().map(|&v| f64::from(v)).sum::<f64>() / 65536.0;
            let std = rmse(&values, &vec![mean as f32; 65536]);
            let ratio = std / f64::from(spread);
            assert!((0.93..1.07).contains(&ratio), "{dtype}: spread {spread} gave {std}");
            assert!(mean.abs() < 0.03 * f64::from(spread), "{dtype}: spread {spread}, mean {mean}");
        }
    }
}

#[test]
fn random_blocks_are_what_encoders_write() {
    for dtype in [DType::Q8_0, DType::Q4_0, DType::Q5_0, DType::TQ1_0, DType::TQ2_0] {
        let mut blocks = vec![0; 64 * dtype.block_bytes()];
        assert!(quant::random_blocks(dtype, &mut splitmix(5), 1.0, &mut blocks));
        let mut values = vec![0.0; 64 * dtype.block_len()];
        assert!(quant::decode_row(dtype, &blocks, &mut values));
        if matches!(dtype, DType::TQ1_0 | DType::TQ2_0) {
            // Every block of 256 trits has one that is not zero, so the bytes come back.
            assert_eq!(quant::encode_rows(dtype, &values, values.len()), Some(blocks), "{dtype}");
        } else {
            let again = round_trip(dtype, &values);
            let error = rmse(&values, &again) / rmse(&values, &vec![0.0; values.len()]);
            assert!(error < 0.1, "{dtype}: {error}");
        }
    }
}

#[test]
fn gaussian_data_is_what_it_says() {
    let values = gaussian();
    let size = rmse(&values, &vec![0.0; values.len()]);
    assert!((1.1..1.2).contains(&size), "{size}");
}
