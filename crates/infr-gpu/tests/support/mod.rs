//! Tiny models through the real loader.

#![allow(clippy::unwrap_used, unreachable_pub)]

use std::sync::Arc;

use infr_gguf::Gguf;
use infr_models::{BuildOptions, registry, synth};
use infr_tensor::DType;
use infr_testkit::Subject;

/// A random tiny model of the recipe `name` in the file type `mix`, with a cache of this type.
pub fn tiny(name: &str, mix: &str, cache: DType) -> Subject {
    let bytes = synth::tiny(name, 7, mix).unwrap();
    let gguf = Arc::new(Gguf::from_bytes(name, bytes).unwrap());
    let loaded = registry::from_gguf(gguf).unwrap();
    let options = BuildOptions { cache_k: cache, cache_v: cache, ..BuildOptions::default() };
    let program = loaded.model.program(&loaded.gguf, &options).unwrap();
    let vocab = loaded.model.info().vocab;
    Subject { name: format!("{name} {mix}"), program, weights: Arc::new(loaded.weights()), vocab }
}
