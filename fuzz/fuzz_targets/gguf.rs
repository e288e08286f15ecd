//! Any bytes as a model file: opening never panics, and what opens is consistent.
//!
//! Input that holds a second magic is also opened as a model of two parts, cut there.
#![no_main]

use infr_gguf::{Gguf, Writer};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    match Gguf::from_bytes("fuzz.gguf", bytes.to_vec()) {
        Ok(gguf) => check(&gguf),
        Err(error) => assert!(error.to_string().len() < 2000, "an error shows too much of a file"),
    }
    if let Some(at) = bytes.windows(4).skip(4).position(|w| w == b"GGUF") {
        let (first, second) = bytes.split_at(at + 4);
        let parts = [("m-00001-of-00002.gguf", first), ("m-00002-of-00002.gguf", second)];
        let parts = parts.map(|(name, bytes)| (name.to_owned(), bytes.to_vec()));
        if let Ok(gguf) = Gguf::from_parts(parts.into()) {
            check(&gguf);
        }
    }
});

fn check(gguf: &Gguf) {
    let mut ends: Vec<_> = gguf.tensors().iter().map(|t| (t.part, t.offset, t.bytes)).collect();
    for t in gguf.tensors() {
        assert_eq!(gguf.tensor(&t.name), Some(t));
        assert_eq!(gguf.data(t).len() as u64, t.bytes);
        assert!(t.elements() > 0 && (1..=4).contains(&t.dims.len()));
        assert_eq!(t.dtype.bytes_for(&t.dims), Ok(t.bytes));
    }
    ends.sort_unstable();
    assert!(ends.windows(2).all(|w| w[0].0 != w[1].0 || w[0].1 + w[0].2 <= w[1].1), "overlap");
    let m = gguf.metadata();
    let mut writer = Writer::new();
    for (key, value) in m.iter() {
        let _ = (m.u32(key), m.i32(key), m.u64(key), m.f32(key), m.bool(key), m.str(key));
        let _ = (m.strings(key), m.f32s(key), m.i32s(key), m.u32s(key), m.bools(key));
        assert!(value.to_string().len() < 2000);
        // The copy is one file, whatever the original was.
        if !key.starts_with("split.") {
            writer.set(key, value.clone());
        }
    }
    let written = write(writer);
    let again = Gguf::from_bytes("again.gguf", written.clone()).expect("written files open");
    let mut writer = Writer::new();
    again.metadata().iter().for_each(|(k, v)| {
        writer.set(k, v.clone());
    });
    assert!(write(writer) == written, "metadata changes when it is written and read");
}

fn write(writer: Writer) -> Vec<u8> {
    let data = writer.begin(Vec::new()).expect("metadata that was read can be written");
    data.finish().expect("there are no tensors")
}
