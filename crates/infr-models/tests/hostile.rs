//! Whatever stands in a file's keys, loading ends with a program or an error, never with a panic.

// A helper that fails fails its test.
#![allow(clippy::unwrap_used)]

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use infr_gguf::{TensorType, Value};
use infr_models::{BuildOptions, Need, TableEntry, TensorTable, from_gguf, synth};
use infr_tensor::DType;

/// Has every tensor that is asked for, in the shape that is asked for; optional ones by chance.
struct Everything(u64);

impl TensorTable for Everything {
    fn find(&self, name: &str, dims: &[u64], need: Need) -> Option<TableEntry> {
        let chance =
            name.bytes().fold(self.0, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
        if need == Need::Optional && chance >> 40 & 1 == 0 {
            return None;
        }
        let dtype = TensorType::Known(DType::F32);
        Some(TableEntry { dims: dims.to_vec(), dtype, i2s_scale: None })
    }
}

fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

fn value(state: &mut u64) -> Value {
    const INTS: [u32; 14] =
        [0, 1, 2, 3, 5, 16, 63, 512, 1024, 4096, 1 << 20, 1 << 24, 1 << 31, u32::MAX];
    let int = INTS[next(state) as usize % INTS.len()];
    match next(state) % 10 {
        0..6 => int.into(),
        6 => [0.0f32, -1.0, 1e-38, 1e38, f32::NAN, f32::INFINITY][next(state) as usize % 6].into(),
        7 => vec![int; next(state) as usize % 9].into(),
        8 => next(state).is_multiple_of(2).into(),
        _ => "yarn".into(),
    }
}

#[test]
fn no_key_makes_loading_panic() {
    let mut state = 1;
    let (mut built, mut refused) = (0u32, 0u32);
    for recipe in synth::tiny_recipes("F32") {
        let planned = synth::plan(&recipe, "F32").unwrap();
        let bytes = planned_header(&planned);
        let metadata = infr_gguf::Gguf::from_bytes("tiny.gguf", bytes).unwrap();
        let keys: Vec<(String, Value)> = metadata
            .metadata()
            .iter()
            .filter(|(k, _)| !k.starts_with("tokenizer.ggml.merges"))
            .map(|(k, v)| (k.to_owned(), v.clone()))
            .collect();
        for _ in 0..300 {
            let mut edited = keys.clone();
            for _ in 0..=next(&mut state) % 3 {
                let at = next(&mut state) as usize % edited.len();
                let fixed =
                    edited[at].0.starts_with("general.a") || edited[at].0.ends_with("tokens");
                if !fixed {
                    edited[at].1 = value(&mut state);
                }
            }
            let table = Everything(next(&mut state));
            let run = catch_unwind(AssertUnwindSafe(|| {
                let loaded = from_gguf(Arc::new(common::header(&edited)))?;
                let options = BuildOptions { draft: true, ..BuildOptions::default() };
                loaded.model.build(&table, &options).map(|_| ())
            }));
            match run {
                Ok(Ok(())) => built += 1,
                Ok(Err(_)) => refused += 1,
                Err(_) => panic!("{}: {:?}", recipe.name, differing(&keys, &edited)),
            }
        }
    }
    assert!(built > 1000 && refused > 1000, "{built} built, {refused} refused");
}

fn planned_header(writer: &infr_gguf::write::Writer) -> Vec<u8> {
    let mut data = writer.clone().begin(Vec::new()).unwrap();
    while let Some(tensor) = data.next_tensor().cloned() {
        data.write_tensor(&tensor.name, &vec![0; tensor.bytes as usize]).unwrap();
    }
    data.finish().unwrap()
}

fn differing(a: &[(String, Value)], b: &[(String, Value)]) -> Vec<(String, Value)> {
    a.iter().zip(b).filter(|(x, y)| x != y).map(|(_, y)| y.clone()).collect()
}
