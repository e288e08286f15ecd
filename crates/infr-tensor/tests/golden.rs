//! Decoders against the numpy dequantisers of the PyPI package `gguf` and against llama-quantize, and the
//! encoders that have one right answer, through the files that `tests/golden/make.py` writes.

mod common;

use std::path::PathBuf;

use common::{VALUES, gaussian, rmse};
use infr_tensor::{DType, quant};

fn golden(file: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(file);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn table(file: &str) -> Vec<(DType, String)> {
    let text = String::from_utf8(golden(file)).expect("a text file");
    text.lines()
        .map(|line| {
            let (name, value) = line.split_once(' ').expect("a type and a value");
            (DType::from_name(name).expect("a type of the table"), value.to_owned())
        })
        .collect()
}

fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |h, &b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

fn weight_types() -> impl Iterator<Item = DType> {
    DType::ALL.iter().copied().filter(|&t| quant::codec(t).is_some())
}

#[test]
fn decoders_match_to_the_bit() {
    assert_eq!(weight_types().count(), DType::ALL.len() - 4, "all but the integers");
    for dtype in weight_types() {
        let file = golden(&format!("{dtype}.bin"));
        let (count, rest) = file.split_first_chunk::<4>().unwrap();
        let n_blocks = u32::from_le_bytes(*count) as usize;
        let (blocks, rest) = rest.split_at(n_blocks * dtype.block_bytes());
        let (hash, first) = rest.split_first_chunk::<8>().unwrap();
        assert_eq!(first.len(), 4 * 256);

        let mut values = vec![f32::NAN; n_blocks * dtype.block_len()];
        assert!(quant::decode_row(dtype, blocks, &mut values));
        for (i, (want, got)) in first.as_chunks::<4>().0.iter().zip(&values).enumerate() {
            let want = f32::from_le_bytes(*want);
            assert_eq!(want.to_bits(), got.to_bits(), "{dtype} value {i}: want {want}, got {got}");
        }
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        assert_eq!(
            fnv1a(&bytes),
            u64::from_le_bytes(*hash),
            "{dtype}: a value after the first 256"
        );
    }
}

#[test]
fn simple_encoders_match_to_the_bit() {
    for (dtype, hash) in table("encoded.txt") {
        let blocks = quant::encode_rows(dtype, &gaussian(), 256).unwrap();
        assert_eq!(format!("{:016x}", fnv1a(&blocks)), hash, "{dtype}");
    }
}

#[test]
fn encoders_are_as_good_as_llama_quantize() {
    let values = gaussian();
    for (dtype, theirs) in table("quality.txt") {
        let theirs: f64 = theirs.parse().unwrap();
        let blocks = quant::encode_rows(dtype, &values, 256).unwrap();
        let mut decoded = vec![0.0; VALUES];
        assert!(quant::decode_row(dtype, &blocks, &mut decoded));
        let ours = rmse(&values, &decoded);
        eprintln!("{dtype}: ours {ours:.6}, llama-quantize {theirs:.6} ({:.3})", ours / theirs);
        assert!(ours < 1.05 * theirs, "{dtype}: ours {ours}, llama-quantize {theirs}");
        assert!(ours > 0.4 * theirs, "{dtype}: {ours} is too good to be true");
    }
}
