//! Files with something wrong in them.

use infr_gguf::write::Writer;
use infr_gguf::{Gguf, TensorInfo, Value};
use infr_models::synth::{self, Recipe};

/// A tiny recipe by name.
#[allow(dead_code)]
pub(crate) fn recipe(name: &str) -> Recipe {
    synth::tiny_recipes("F32").into_iter().find(|r| r.name == name).unwrap()
}

/// A file with only keys: those of `recipe`, edited.
#[allow(dead_code)]
pub(crate) fn header(keys: &[(String, Value)]) -> Gguf {
    let mut writer = Writer::new();
    for (key, value) in keys {
        writer.set(key, value.clone());
    }
    let bytes = writer.begin(Vec::new()).unwrap().finish().unwrap();
    Gguf::from_bytes("header.gguf", bytes).unwrap()
}

/// A tiny file whose tensors go through `edit`: gone, or with other extents (and zeros inside).
#[allow(dead_code)]
pub(crate) fn edited(name: &str, edit: impl Fn(&TensorInfo) -> Option<Vec<u64>>) -> Gguf {
    let gguf = Gguf::from_bytes("tiny.gguf", synth::tiny(name, 1, "F32").unwrap()).unwrap();
    let mut writer = Writer::new();
    for (key, value) in gguf.metadata().iter() {
        writer.set(key, value.clone());
    }
    for tensor in gguf.tensors() {
        if let Some(dims) = edit(tensor) {
            writer.tensor(&tensor.name, &dims, tensor.dtype).unwrap();
        }
    }
    let mut data = writer.begin(Vec::new()).unwrap();
    while let Some(tensor) = data.next_tensor().cloned() {
        data.write_tensor(&tensor.name, &vec![0; tensor.bytes as usize]).unwrap();
    }
    Gguf::from_bytes("edited.gguf", data.finish().unwrap()).unwrap()
}
