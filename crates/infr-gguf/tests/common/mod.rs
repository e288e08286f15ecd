//! Builds files byte by byte, so that tests can make any mistake.
#![allow(dead_code, reason = "each test binary uses a part")]

use infr_gguf::{Gguf, GgufError};

/// A file under construction; every method appends.
#[derive(Clone, Default)]
pub(crate) struct Raw(pub(crate) Vec<u8>);

impl Raw {
    /// Magic, version 3 and the two counts.
    pub(crate) fn start(n_tensors: u64, n_keys: u64) -> Raw {
        Raw::default().bytes(b"GGUF").u32(3).u64(n_tensors).u64(n_keys)
    }

    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Raw {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(crate) fn u32(self, v: u32) -> Raw {
        self.bytes(&v.to_le_bytes())
    }

    pub(crate) fn u64(self, v: u64) -> Raw {
        self.bytes(&v.to_le_bytes())
    }

    pub(crate) fn str(self, s: &str) -> Raw {
        self.u64(s.len() as u64).bytes(s.as_bytes())
    }

    /// A key with a u32.
    pub(crate) fn key_u32(self, key: &str, v: u32) -> Raw {
        self.str(key).u32(4).u32(v)
    }

    /// A key with a u16.
    pub(crate) fn key_u16(self, key: &str, v: u16) -> Raw {
        self.str(key).u32(2).bytes(&v.to_le_bytes())
    }

    /// An entry of the directory.
    pub(crate) fn entry(self, name: &str, dims: &[i64], dtype: u32, offset: u64) -> Raw {
        let raw = self.str(name).u32(dims.len() as u32);
        dims.iter().fold(raw, |raw, &d| raw.u64(d as u64)).u32(dtype).u64(offset)
    }

    /// Zeros up to a multiple of `alignment`.
    pub(crate) fn pad(mut self, alignment: usize) -> Raw {
        self.0.resize(self.0.len().next_multiple_of(alignment), 0);
        self
    }

    /// `n` data bytes.
    pub(crate) fn data(mut self, n: usize) -> Raw {
        self.0.extend((0..n).map(|i| i as u8));
        self
    }

    pub(crate) fn open(self) -> Result<Gguf, GgufError> {
        Gguf::from_bytes("test.gguf", self.0)
    }

    /// The message of the error that opening gives.
    #[track_caller]
    pub(crate) fn error(self) -> String {
        let error = self.open().expect_err("the file should be refused");
        let text = error.to_string();
        assert!(text.starts_with("test.gguf: "), "no file in: {text}");
        assert!(!text.contains(['\n', '\x1b']), "unescaped: {text}");
        text
    }
}

/// A small file with keys of every kind and three tensors.
pub(crate) fn sample() -> Vec<u8> {
    let mut w = infr_gguf::Writer::new();
    w.set("general.architecture", "llama")
        .set("llama.block_count", 2u32)
        .set("llama.rope.freq_base", 10_000f32)
        .set("flag", true)
        .set("wide", 1u64 << 40)
        .set("tokenizer.ggml.tokens", vec!["<s>", "a", "bc", ""])
        .set("tokenizer.ggml.scores", vec![0f32, -1.0, -2.0, -3.0])
        .set("tokenizer.ggml.token_type", vec![3i32, 1, 1, 1])
        .set("layers", vec![true, false]);
    let f32 = infr_tensor::DType::F32.into();
    w.tensor("a.weight", &[3, 5], f32).unwrap();
    w.tensor("b.weight", &[32, 2], infr_tensor::DType::Q4_0.into()).unwrap();
    w.tensor("c.weight", &[1], f32).unwrap();
    let mut data = w.begin(Vec::new()).unwrap();
    data.write_tensor("a.weight", &[1; 60]).unwrap();
    data.write_tensor("b.weight", &[2; 36]).unwrap();
    data.write_tensor("c.weight", &[3; 4]).unwrap();
    data.finish().unwrap()
}
