//! Random metadata reads back as written; random damage is survived.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod common;

use common::sample;
use infr_gguf::{Array, Gguf, StringArray, Text, Value, Writer};
use infr_tensor::DType;
use proptest::collection::vec;
use proptest::prelude::*;

fn text() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => ".{0,12}".prop_map(String::into_bytes),
        1 => vec(any::<u8>(), 0..12),
    ]
}

fn array() -> impl Strategy<Value = Array> {
    prop_oneof![
        vec(any::<u8>(), 0..9).prop_map(Array::U8),
        vec(any::<i8>(), 0..9).prop_map(Array::I8),
        vec(any::<u16>(), 0..9).prop_map(Array::U16),
        vec(any::<i16>(), 0..9).prop_map(Array::I16),
        vec(any::<u32>(), 0..9).prop_map(Array::U32),
        vec(any::<i32>(), 0..9).prop_map(Array::I32),
        vec(any::<f32>(), 0..9).prop_map(Array::F32),
        vec(any::<bool>(), 0..9).prop_map(Array::Bool),
        vec(text(), 0..9).prop_map(|v| Array::Strings(v.iter().collect::<StringArray>())),
        vec(any::<u64>(), 0..9).prop_map(Array::U64),
        vec(any::<i64>(), 0..9).prop_map(Array::I64),
        vec(any::<f64>(), 0..9).prop_map(Array::F64),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<u8>().prop_map(Value::U8),
        any::<i8>().prop_map(Value::I8),
        any::<u16>().prop_map(Value::U16),
        any::<i16>().prop_map(Value::I16),
        any::<u32>().prop_map(Value::U32),
        any::<i32>().prop_map(Value::I32),
        any::<f32>().prop_map(Value::F32),
        any::<bool>().prop_map(Value::Bool),
        text().prop_map(|t| Value::String(Text::from(t))),
        array().prop_map(Value::Array),
        any::<u64>().prop_map(Value::U64),
        any::<i64>().prop_map(Value::I64),
        any::<f64>().prop_map(Value::F64),
    ]
}

/// Reads everything that can be reached, as a user of an opened file would.
fn touch(gguf: &Gguf) -> u64 {
    let mut sum = 0u64;
    for t in gguf.tensors() {
        assert!((1..=4).contains(&t.dims.len()));
        assert_eq!(gguf.tensor(&t.name), Some(t));
        assert_eq!(gguf.data(t).len() as u64, t.bytes);
        sum = gguf.data(t).iter().fold(sum, |s, &b| s + u64::from(b));
        gguf.prefetch(t);
    }
    for (key, value) in gguf.metadata().iter() {
        assert_eq!(gguf.metadata().get(key).map(Value::type_name), Some(value.type_name()));
        sum += value.to_string().len() as u64;
        let m = gguf.metadata();
        let _ = (m.u32(key), m.f32(key), m.str(key), m.bool(key), m.u64(key));
        let _ = (m.strings(key), m.f32s(key), m.i32s(key), m.u32s(key), m.bools(key));
    }
    sum
}

proptest! {
    #[test]
    fn metadata_reads_back(
        entries in proptest::collection::btree_map("[a-z.\u{e9}]{1,10}", value(), 0..12),
        power in 0u32..9,
        tensors in vec((vec(1u64..5, 1..4), any::<bool>()), 0..5),
    ) {
        let mut writer = Writer::new();
        writer.set("general.alignment", 1u32 << power);
        entries.iter().for_each(|(k, v)| { writer.set(k, v.clone()); });
        for (n, (dims, quantised)) in tensors.iter().enumerate() {
            let mut dims = dims.clone();
            let dtype = if *quantised { DType::Q8_0 } else { DType::F16 };
            dims[0] *= dtype.block_len() as u64;
            writer.tensor(&format!("t{n}"), &dims, dtype.into()).unwrap();
        }
        let declared = writer.tensors().to_vec();
        let mut data = writer.begin(Vec::new()).unwrap();
        for (n, t) in declared.iter().enumerate() {
            let bytes = vec![n as u8 + 1; t.bytes as usize];
            let (head, tail) = bytes.split_at(bytes.len() / 2);
            data.write_chunk(head).unwrap();
            data.write_chunk(tail).unwrap();
        }
        let gguf = Gguf::from_bytes("p", data.finish().unwrap()).unwrap();
        prop_assert_eq!(gguf.metadata().len(), entries.len() + 1);
        for (key, value) in &entries {
            // NaN is not equal to itself; its text is enough there.
            let found = gguf.metadata().get(key).unwrap();
            let same = found == value || format!("{found:?}") == format!("{value:?}");
            prop_assert!(same, "{key}");
        }
        for (n, t) in declared.iter().enumerate() {
            let found = gguf.tensor(&t.name).unwrap();
            prop_assert_eq!((&found.dims, found.dtype), (&t.dims, t.dtype));
            prop_assert!(found.offset.is_multiple_of(1 << power));
            prop_assert!(gguf.data(found).iter().all(|&b| b == n as u8 + 1));
        }
    }

    #[test]
    fn damage_is_survived(
        cut in any::<prop::sample::Index>(),
        edits in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        whole in any::<bool>(),
    ) {
        let mut bytes = sample();
        if !whole {
            bytes.truncate(cut.index(bytes.len()) + 1);
        }
        for (at, byte) in edits {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        match Gguf::from_bytes("m", bytes) {
            Ok(gguf) => { touch(&gguf); }
            Err(error) => prop_assert!(error.to_string().len() < 1000),
        }
    }

    #[test]
    fn hostile_numbers_are_survived(
        at in 8usize..400,
        number in prop_oneof![
            Just(u64::MAX), Just(1 << 63), Just(u64::MAX - 31), Just(1 << 32), Just(1 << 28),
            any::<u64>(), 0u64..64,
        ],
    ) {
        let mut bytes = sample();
        bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
        if let Ok(gguf) = Gguf::from_bytes("m", bytes) {
            touch(&gguf);
        }
    }

    #[test]
    fn noise_is_survived(noise in vec(any::<u8>(), 0..300)) {
        let mut bytes = sample()[..24].to_vec();
        bytes[8..24].copy_from_slice(&[2, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend_from_slice(&noise);
        if let Ok(gguf) = Gguf::from_bytes("m", bytes) {
            touch(&gguf);
        }
    }
}
