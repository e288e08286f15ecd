//! One test per rule of what is refused, on files built byte by byte; the checks look for what a
//! user needs in the message.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod common;

use common::{Raw, sample};
use infr_gguf::{Gguf, GgufError, TensorType};

const F32: u32 = 0;

#[track_caller]
fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no {part:?} in: {text}");
    }
}

/// A file with one key of one value, given after its type id.
fn one_key(key: &str, rest: impl FnOnce(Raw) -> Raw) -> Raw {
    rest(Raw::start(0, 1).str(key))
}

/// A file with one tensor entry and `n` data bytes.
fn one_tensor(dims: &[i64], dtype: u32, offset: u64, n: usize) -> Raw {
    Raw::start(1, 0).entry("t", dims, dtype, offset).pad(32).data(n)
}

#[test]
fn the_builder_makes_valid_files() {
    let gguf = one_tensor(&[4, 2], F32, 0, 32).open().unwrap();
    let t = gguf.tensor("t").unwrap();
    assert_eq!((t.dims.as_slice(), t.bytes, t.elements()), (&[4, 2][..], 32, 8));
    assert_eq!(gguf.data(t), (0..32).collect::<Vec<u8>>());
    assert_eq!(gguf.file_size(), t.offset + 32);
    assert!(gguf.tensor("u").is_none());
    let gguf = one_key("k", |r| r.u32(4).u32(7)).open().unwrap();
    assert_eq!(gguf.metadata().require_u32("k").unwrap(), 7);
    Gguf::from_bytes("s", sample()).unwrap();
}

#[test]
fn other_formats_are_named() {
    let says = |bytes: &[u8]| Raw(bytes.to_vec()).error();
    has(&says(b""), &["empty"]);
    has(&says(b"GG"), &["not a GGUF file", "\"GG\""]);
    has(&says(b"\r\n<!DOCTYPE html><html>"), &["HTML", "log in"]);
    let lfs = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4683073184\n";
    has(&says(lfs), &["git-lfs pointer", "4683073184", "git lfs pull"]);
    let json = b"{\"__metadata__\":{}}";
    let mut safetensors = (json.len() as u64).to_le_bytes().to_vec();
    safetensors.extend_from_slice(json);
    has(&says(&safetensors), &["safetensors", "convert_hf_to_gguf.py"]);
    has(&says(b"{\"error\":\"Access denied\"}"), &["JSON", "Access denied"]);
    has(&says(b"PK\x03\x04...."), &["zip", "PyTorch"]);
    has(&says(b"tjgg\x01\0\0\0"), &["before GGUF"]);
    has(&says(&[0; 100]), &["zero bytes"]);
    has(&says(b"\x1f\x8b\x08"), &["gzip"]);
    has(&says(b"\x1b[2Jboo\x07"), &["not a GGUF file", "\\u{1b}[2Jboo"]);
}

#[test]
fn raw_pieces_are_named() {
    let cut = &sample()[..100];
    for (name, bytes) in [("m.gguf.part1of2", cut), ("m.gguf.part2of2", b"\x01\x02\x03\x04")] {
        let text = Gguf::from_bytes(name, bytes.to_vec()).unwrap_err().to_string();
        has(&text, &[name, "raw pieces", "cat m.gguf.part1of2 m.gguf.part2of2 > m.gguf"]);
    }
    // A whole file may be named as it likes.
    Gguf::from_bytes("m.gguf.part1of2", sample()).unwrap();
}

#[test]
fn versions() {
    let version = |v: u32| Raw::default().bytes(b"GGUF").u32(v).u64(0).u64(0);
    assert_eq!(version(2).open().unwrap().version(), 2);
    assert_eq!(version(3).open().unwrap().version(), 3);
    for v in [0, 1, 4, 0x0301_0003] {
        has(&version(v).error(), &[&format!("version {v} is not supported")]);
    }
    for v in [0x0300_0000, 0x0200_0000] {
        has(&version(v).error(), &["big-endian", "convert"]);
    }
}

#[test]
fn version_2_reads_like_3() {
    let mut bytes = sample();
    bytes[4] = 2;
    let (v2, v3) =
        (Gguf::from_bytes("2", bytes).unwrap(), Gguf::from_bytes("3", sample()).unwrap());
    assert_eq!(v2.tensors(), v3.tensors());
    assert!(v2.metadata().iter().eq(v3.metadata().iter()));
}

#[test]
fn every_truncation_is_refused_until_only_padding_is_missing() {
    let whole = sample();
    // The last tensor has 4 bytes and 28 of padding, which may be missing.
    let data_end = whole.len() - 28;
    for len in 0..whole.len() {
        let result = Gguf::from_bytes("t", whole[..len].to_vec());
        assert_eq!(result.is_ok(), len >= data_end, "cut to {len} of {}", whole.len());
        if let Err(error) = result
            && len >= 24
        {
            has(&error.to_string(), &["the file is incomplete", "download it again"]);
        }
    }
    let name = "model.gguf.incomplete";
    let text = Gguf::from_bytes(name, whole[..90].to_vec()).unwrap_err().to_string();
    has(&text, &[name, "has not finished"]);
}

#[test]
fn counts_beyond_the_file_or_the_limits() {
    has(&Raw::start(1, 0).error(), &["keys and tensor entries", "24 bytes wanted, 0 left"]);
    has(&Raw::start(0, 3).error(), &["keys and tensor entries", "42 bytes wanted"]);
    has(&Raw::start(u64::MAX, 0).error(), &["number of tensors", "at most 1048576"]);
    has(&Raw::start(0, 65_537).error(), &["number of keys", "65537", "at most 65536"]);
}

#[test]
fn keys() {
    let padding = |r: Raw| r.u32(0).u64(0).u64(0);
    has(&padding(Raw::start(0, 1).str("")).error(), &["key \"\"", "offset 24", "empty"]);
    let long = Raw::start(0, 1).u64(65_536).bytes(&[b'k'; 70_000]);
    has(&long.error(), &["length of key number 0", "65536", "at most 65535"]);
    has(&Raw::start(0, 1).u64(1 << 40).data(20).error(), &["key number 0", "at most 65535"]);
    let invalid = padding(Raw::start(0, 1).u64(2).bytes(b"\xff\n"));
    has(&invalid.error(), &["\\n", "not UTF-8"]);
    let twice = Raw::start(0, 3).key_u32("b", 1).key_u32("a", 2).key_u32("b", 3);
    has(&twice.error(), &["key \"b\" at offset 58", "stands twice"]);
}

#[test]
fn value_types() {
    has(&one_key("k", |r| r.u32(13).u64(0)).error(), &["key \"k\"", "type 13", "offset 33"]);
    let nested = one_key("k", |r| r.u32(9).u32(9).u64(1).u32(4).u64(0));
    has(&nested.error(), &["key \"k\"", "arrays of arrays"]);
    has(&one_key("k", |r| r.u32(9).u32(77).u64(0)).error(), &["key \"k\"", "type 77"]);
}

#[test]
fn strings_and_arrays_longer_than_the_file() {
    let text = one_key("k\n", |r| r.u32(8).u64(u64::MAX).bytes(b"abc")).error();
    has(&text, &["value of key \"k\\n\"", "18446744073709551615 bytes wanted, 3 left"]);
    let array = |element: u32, count: u64| {
        one_key("k", |r| r.u32(9).u32(element).u64(count).data(40)).error()
    };
    has(&array(4, 11), &["value of key \"k\"", "44 bytes wanted, 40 left"]);
    has(&array(12, 1 << 28), &["2147483648 bytes wanted"]);
    has(&array(0, (1 << 28) + 1), &["length of array \"k\"", "at most 268435456"]);
    has(&array(0, u64::MAX), &["length of array \"k\""]);
    has(&array(8, 1 << 20), &["value of key \"k\""]);
}

#[test]
fn alignment() {
    let with = |r: fn(Raw) -> Raw| one_key("general.alignment", r).open();
    for r in [
        (|r| r.u32(4).u32(0)) as fn(Raw) -> Raw,
        |r| r.u32(4).u32(48),
        |r| r.u32(4).u32(1 << 21),
        |r| r.u32(10).u64(32),
        |r| r.u32(8).str("32"),
    ] {
        has(&with(r).unwrap_err().to_string(), &["general.alignment", "power of two"]);
    }
    let aligned = |alignment: usize, offset| {
        Raw::start(2, 1)
            .key_u32("general.alignment", alignment as u32)
            .entry("a", &[1], F32, 0)
            .entry("b", &[1], F32, offset)
            .pad(alignment)
            .data(4 + offset as usize)
    };
    for (alignment, offset) in [(1, 4), (4, 4), (64, 64), (4096, 4096)] {
        let gguf = aligned(alignment, offset).open().unwrap();
        assert_eq!(gguf.data(gguf.tensor("a").unwrap()), [0, 1, 2, 3]);
        let b = gguf.tensor("b").unwrap();
        assert!(b.offset.is_multiple_of(alignment as u64));
        assert_eq!(gguf.data(b)[0], offset as u8);
    }
    has(&aligned(64, 32).error(), &["tensor \"b\"", "offset 32", "alignment 64"]);
}

#[test]
fn tensor_names() {
    let named = |r: Raw| r.u32(1).u64(1).u32(F32).u64(0).pad(32).data(4);
    has(&named(Raw::start(1, 0).str("")).error(), &["name is empty"]);
    has(&named(Raw::start(1, 0).u64(2).bytes(b"\xc3\x28")).error(), &["not UTF-8"]);
    let long = "n".repeat(65_536);
    has(&named(Raw::start(1, 0).str(&long)).error(), &["length of tensor name number 0"]);
    // Other programs refuse 64 bytes; here they only earn a warning.
    named(Raw::start(1, 0).str(&long[..64])).open().unwrap();
    let twice = Raw::start(2, 0).entry("x", &[1], F32, 0).entry("x", &[1], F32, 32);
    has(&twice.pad(32).data(36).error(), &["tensor \"x\"", "twice"]);
}

#[test]
fn shapes() {
    has(&one_tensor(&[1; 5], F32, 0, 4).error(), &["tensor \"t\"", "rank 5"]);
    has(&one_tensor(&[4, -1], F32, 0, 4).error(), &["tensor \"t\"", "negative extent -1"]);
    has(&one_tensor(&[4, 0], F32, 0, 4).error(), &["no elements"]);
    has(&one_tensor(&[1 << 32, 1 << 31], F32, 0, 4).error(), &["more elements or bytes"]);
    has(&one_tensor(&[i64::MAX, 1], F32, 0, 4).error(), &["more elements or bytes"]);
    has(&one_tensor(&[i64::MAX, i64::MAX, 4, 4], F32, 0, 4).error(), &["more elements"]);
    has(&one_tensor(&[48], 2, 0, 40).error(), &["48", "multiple of Q4_0's block of 32"]);
    // The row has to consist of blocks, not the tensor.
    has(&one_tensor(&[16, 2], 2, 0, 40).error(), &["16", "block of 32"]);
    let scalar = one_tensor(&[], F32, 0, 4).open().unwrap();
    assert_eq!(scalar.tensors()[0].dims, [1]);
    assert_eq!(one_tensor(&[1, 1, 1, 2], F32, 0, 8).open().unwrap().tensors()[0].elements(), 2);
}

#[test]
fn type_ids() {
    for (id, says) in [
        (4, "removed"),
        (9, "activations"),
        (15, "activations"),
        (31, "interleaved"),
        (33, "interleaved"),
        (38, "interleaved"),
        (43, "unknown"),
        (u32::MAX, "unknown"),
    ] {
        has(&one_tensor(&[256], id, 0, 4096).error(), &[&format!("type id {id}"), says]);
    }
}

#[test]
fn microsofts_ternary_type() {
    let gguf = one_tensor(&[128, 3], 36, 0, 100).open().unwrap();
    assert_eq!((gguf.tensors()[0].dtype, gguf.tensors()[0].bytes), (TensorType::I2S, 100));
    has(&one_tensor(&[128, 3], 36, 0, 99).error(), &["tensor \"t\" needs bytes"]);
    has(&one_tensor(&[64, 2], 36, 0, 100).error(), &["I2_S's block of 128"]);
    // Codes and scale are padded to the alignment like any other tensor.
    let two = Raw::start(2, 0).entry("a", &[128], 36, 0).entry("b", &[128], 36, 64);
    two.pad(32).data(64 + 36).open().unwrap();
}

#[test]
fn data_past_the_end() {
    has(&one_tensor(&[8], F32, 0, 31).error(), &["tensor \"t\" needs bytes 64..96", "has 95"]);
    has(&one_tensor(&[8], F32, 32, 32).error(), &["needs bytes 96..128"]);
    has(&one_tensor(&[8], F32, u64::MAX - 31, 32).error(), &["needs bytes 18446744073709551615"]);
    has(&one_tensor(&[8], F32, u64::MAX - 95, 32).error(), &["needs bytes 18446744073709551584"]);
    has(&one_tensor(&[8], F32, 16, 96).error(), &["offset 16", "alignment 32"]);
}

#[test]
fn shared_bytes() {
    let two = |a: u64, b: u64| {
        let raw = Raw::start(2, 0).entry("first", &[16], F32, a).entry("second", &[16], F32, b);
        raw.pad(32).data(256)
    };
    two(0, 64).open().unwrap();
    has(&two(0, 32).error(), &["tensor \"second\"", "overlaps tensor \"first\""]);
    has(&two(0, 0).error(), &["overlaps"]);
    has(&two(96, 64).error(), &["tensor \"first\"", "overlaps tensor \"second\""]);
    // Gaps and another order waste or shuffle bytes and harm nobody.
    two(0, 128).open().unwrap();
    let swapped = two(64, 0).open().unwrap();
    assert_eq!(swapped.data(&swapped.tensors()[0])[0], 64);
}

#[test]
fn hostile_text_is_escaped_and_short() {
    let evil = format!("\x1b]0;pwned\x07\u{202e}{}", "A".repeat(50_000));
    let text = one_key(&evil, |r| r.u32(99).u64(0)).error();
    has(&text, &["\\u{1b}]0;pwned\\u{7}\\u{202e}AAA"]);
    assert!(text.len() < 400, "{} characters", text.len());
    let text = Raw::start(1, 0).entry(&evil, &[1], 77, 0).error();
    assert!(text.len() < 400 && !text.contains('\u{202e}'), "{text}");
}

#[test]
fn variants_carry_the_values() {
    let error = one_tensor(&[8], F32, 0, 31).open().unwrap_err();
    assert!(matches!(error, GgufError::PastEnd { offset: 64, end: 96, size: 95, .. }), "{error:?}");
    let error = Raw::start(0, 1).open().unwrap_err();
    assert!(
        matches!(error, GgufError::Truncated { offset: 24, wanted: 14, available: 0, .. }),
        "{error:?}"
    );
}
