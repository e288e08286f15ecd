//! A file that the PyPI package `gguf` wrote (tests/data/make.py): reads with every value right,
//! and the writer here produces the same bytes.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use infr_gguf::{Array, Gguf, TensorType, Value, Writer};
use infr_tensor::DType;

const FILE: &[u8] = include_bytes!("data/gguf-py.gguf");

fn expected() -> Vec<(&'static str, Value)> {
    vec![
        ("general.architecture", "llama".into()),
        ("t.u8", 200u8.into()),
        ("t.i8", (-100i8).into()),
        ("t.u16", 60_000u16.into()),
        ("t.i16", (-30_000i16).into()),
        ("t.u32", 4_000_000_000u32.into()),
        ("t.i32", (-2_000_000_000i32).into()),
        ("t.f32", 0.1f32.into()),
        ("t.bool", true.into()),
        ("t.string", "héllo\n\0x".into()),
        ("t.u64", ((1u64 << 63) + 1).into()),
        ("t.i64", (-(1i64 << 62)).into()),
        ("t.f64", 1e300f64.into()),
        ("a.strings", vec!["<s>", "", "▁the"].into()),
        ("a.bytes", vec![0u8, 1, 255].into()),
        ("a.f32", vec![0f32, -1.5, 3.25].into()),
        ("a.i32", vec![1i32, -2, 3].into()),
        ("a.bool", vec![true, false, true].into()),
    ]
}

#[test]
fn reads_every_value_and_tensor() {
    let gguf = Gguf::from_bytes("gguf-py.gguf", FILE.to_vec()).unwrap();
    assert_eq!(gguf.version(), 3);
    let found: Vec<_> = gguf.metadata().iter().map(|(k, v)| (k, v.clone())).collect();
    assert_eq!(found, expected());
    let shapes: Vec<_> =
        gguf.tensors().iter().map(|t| (t.name.as_str(), t.dims.as_slice(), t.dtype)).collect();
    let known = TensorType::Known;
    assert_eq!(
        shapes,
        [
            ("token_embd.weight", &[3, 2][..], known(DType::F32)),
            ("blk.0.attn_q.weight", &[32, 2], known(DType::Q8_0)),
            ("blk.0.ids", &[5], known(DType::I32)),
            ("output.weight", &[4, 3, 2], known(DType::F16)),
        ]
    );
    let embd = gguf.data(gguf.tensor("token_embd.weight").unwrap());
    let floats: Vec<f32> = embd.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
    assert_eq!(floats, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    let blocks = gguf.data(gguf.tensor("blk.0.attn_q.weight").unwrap());
    assert_eq!(blocks, (0..68).collect::<Vec<u8>>());
    assert!(matches!(gguf.metadata().get("a.strings"), Some(Value::Array(Array::Strings(_)))));
}

#[test]
fn writes_the_same_bytes() {
    let gguf = Gguf::from_bytes("gguf-py.gguf", FILE.to_vec()).unwrap();
    let mut writer = Writer::new();
    for (key, value) in expected() {
        writer.set(key, value);
    }
    for t in gguf.tensors() {
        writer.tensor(&t.name, &t.dims, t.dtype).unwrap();
    }
    let mut data = writer.begin(Vec::new()).unwrap();
    for t in gguf.tensors() {
        assert_eq!(data.next_tensor(), Some(t), "offsets are known before the data");
        data.write_tensor(&t.name, gguf.data(t)).unwrap();
    }
    assert!(data.finish().unwrap() == FILE, "the bytes differ from those of the gguf package");
}
