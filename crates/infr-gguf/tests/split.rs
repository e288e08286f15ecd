//! Models in several parts: found by name, checked against each other.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::Raw;
use infr_gguf::{Access, Gguf, GgufError};

/// Part `no` (from 0) of `count` with one tensor named after it.
fn part(no: u16, count: u16, tensors: u32) -> Raw {
    Raw::start(1, 3 + u64::from(no == 0))
        .key_u16("split.no", no)
        .key_u16("split.count", count)
        .key_u32("split.tensors.count", tensors)
        .bytes(&if no == 0 { Raw::default().key_u32("only.first", 9).0 } else { Vec::new() })
        .entry(&format!("t{no}"), &[2], 0, 0)
        .pad(32)
        .bytes(&[no as u8 + 1; 8])
}

fn name(number: u32, count: u32) -> String {
    format!("dir/m-{number:05}-of-{count:05}.gguf")
}

fn three() -> Vec<(String, Vec<u8>)> {
    (0..3).map(|no| (name(u32::from(no) + 1, 3), part(no, 3, 3).0)).collect()
}

#[track_caller]
fn error(parts: Vec<(String, Vec<u8>)>, has: &[&str]) -> GgufError {
    let error = Gguf::from_parts(parts).unwrap_err();
    let text = error.to_string();
    for part in has {
        assert!(text.contains(part), "no {part:?} in: {text}");
    }
    error
}

#[test]
fn parts_are_joined() {
    let gguf = Gguf::from_parts(three()).unwrap();
    assert_eq!(gguf.part_count(), 3);
    assert_eq!(gguf.metadata().require_u32("only.first").unwrap(), 9);
    for no in 0..3u16 {
        let t = gguf.tensor(&format!("t{no}")).unwrap();
        assert_eq!((t.part, gguf.data(t)), (no, &[no as u8 + 1; 8][..]));
        assert_eq!(gguf.part_path(no).unwrap().to_str().unwrap(), name(u32::from(no) + 1, 3));
    }
    let sizes: usize = three().iter().map(|(_, b)| b.len()).sum();
    assert_eq!(gguf.file_size(), sizes as u64);
}

#[test]
fn a_later_part_opens_the_model_through_the_first() {
    let mut parts = three();
    parts.rotate_left(1);
    let gguf = Gguf::from_parts(parts).unwrap();
    assert_eq!(gguf.path().to_str().unwrap(), name(1, 3));
    assert_eq!(gguf.tensors()[0].name, "t0");
    assert_eq!(gguf.metadata().require_u32("only.first").unwrap(), 9);
}

#[test]
fn missing_parts_are_named() {
    for missing in 0..3 {
        let mut parts = three();
        parts.remove(missing);
        let path = name(missing as u32 + 1, 3);
        error(parts, &[&format!("part {} of 3 is missing: {path}", missing + 1)]);
    }
}

#[test]
fn names_must_agree_with_the_keys() {
    let renamed = |to: &str| {
        let mut parts = three();
        parts[0].0 = to.to_owned();
        parts
    };
    error(
        renamed("dir/model.gguf"),
        &["file name", "<name>-00001-of-00003.gguf", "\"model.gguf\""],
    );
    error(renamed(&name(2, 3)), &["file name"]);
    error(renamed(&name(1, 4)), &["file name"]);
}

#[test]
fn parts_must_agree_with_each_other() {
    let with = |at: usize, raw: Raw| {
        let mut parts = three();
        parts[at].1 = raw.0;
        parts
    };
    let found = error(with(1, part(2, 3, 3)), &["split.no", "should be 1 but is 2"]);
    assert!(matches!(found, GgufError::Split { file, .. } if file == Path::new(&name(2, 3))));
    error(with(1, part(1, 4, 3)), &["split.count", "should be 3 but is 4"]);
    error(with(2, Raw::start(0, 0)), &["split.count", "should be 3 but is 0"]);
    error(with(0, part(0, 3, 4)), &["split.tensors.count", "should be 4 but is 3"]);
    let again = part(1, 3, 3).0.iter().map(|&b| if b == b'1' { b'0' } else { b }).collect();
    error(with(1, Raw(again)), &["tensor \"t0\" stands twice", &name(1, 3), &name(2, 3)]);
    let mut cut = part(2, 3, 3);
    cut.0.pop();
    error(with(2, cut), &[&name(3, 3), "tensor \"t2\" needs bytes"]);
}

#[test]
fn hostile_split_keys() {
    let one = |raw: Raw| vec![(name(1, 3), raw.0)];
    let keys = |no: u32, count: u32| {
        Raw::start(0, 2).key_u32("split.no", no).key_u32("split.count", count)
    };
    error(one(keys(0, 70_000)), &["split.count", "at most 65535"]);
    error(one(keys(3, 3)), &["split.no", "below split.count"]);
    error(one(Raw::start(0, 1).key_u32("split.count", 3)), &["split.no", "missing"]);
    // One part is a whole model, whatever its name.
    Gguf::from_bytes("whole.gguf", keys(0, 1).0).unwrap();
}

#[test]
fn files_on_disk() {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("split");
    fs::create_dir_all(dir.join("dir")).unwrap();
    for (name, bytes) in three() {
        fs::write(dir.join(name), bytes).unwrap();
    }
    for access in [Access::Map, Access::Read] {
        let gguf = Gguf::open_with(&dir.join(name(3, 3)), access).unwrap();
        assert_eq!(gguf.path(), dir.join(name(1, 3)));
        for t in gguf.tensors() {
            gguf.prefetch(t);
            let before = gguf.data(t).to_vec();
            gguf.release(t);
            assert_eq!(gguf.data(t), before);
        }
    }
    let text = Gguf::open(&dir.join("nowhere.gguf")).unwrap_err().to_string();
    assert!(text.contains("nowhere.gguf: cannot open the file"), "{text}");
    let text = Gguf::open(&dir).unwrap_err().to_string();
    assert!(text.contains("it is a directory"), "{text}");
    let empty = dir.join("empty.gguf");
    fs::write(&empty, b"").unwrap();
    assert!(Gguf::open(&empty).unwrap_err().to_string().contains("empty"));
}
