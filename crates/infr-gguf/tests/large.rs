//! Offsets beyond 4 GiB, on a sparse file.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::PathBuf;

use infr_gguf::{Gguf, Writer};
use infr_tensor::DType;

/// Zeros that are written in pieces of this length become holes.
const HOLE: usize = 1 << 20;

/// An output that leaves holes where zeros are written.
struct Sparse(File);

impl Write for Sparse {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if bytes.len() == HOLE {
            self.0.seek(SeekFrom::Current(bytes.len() as i64))?;
            return Ok(bytes.len());
        }
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

#[test]
fn tensors_beyond_four_gigabytes() {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("large.gguf");
    let mut writer = Writer::new();
    let f32 = DType::F32.into();
    writer.tensor("big", &[1 << 20, 1 << 10, 1], f32).unwrap();
    writer.tensor("more", &[1 << 18], f32).unwrap();
    writer.tensor("last", &[2], f32).unwrap();
    let mut data = writer.begin(Sparse(File::create(&path).unwrap())).unwrap();
    let zeros = vec![0; HOLE];
    while data.next_tensor().unwrap().name != "last" {
        data.write_chunk(&zeros).unwrap();
    }
    data.write_tensor("last", &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    data.finish().unwrap();
    let gguf = Gguf::open(&path).unwrap();
    let last = gguf.tensor("last").unwrap();
    assert!(last.offset > 1 << 32 && gguf.file_size() > 1 << 32);
    gguf.prefetch(last);
    assert_eq!(gguf.data(last), [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(gguf.data(gguf.tensor("big").unwrap()).len() as u64, 1 << 32);
    drop(gguf);
    std::fs::remove_file(&path).unwrap();
}
