//! Costs grow in proportion to the text, and files load fast: on real vocabularies, where INFR_PEERS
//! names them (see `peers/mod.rs`). Limits are loose in debug builds.

#![allow(clippy::unwrap_used)] // Helpers of tests are tests too.

mod peers;

use std::time::{Duration, Instant};

use infr_gguf::Gguf;
use infr_text::tokenizer::{EncodeOptions, Tokenizer};

const OPTIONS: EncodeOptions = EncodeOptions { add_special: true, parse_special: true };

/// Debug builds are slower by about this much.
const SLACK: u32 = if cfg!(debug_assertions) { 10 } else { 1 };

/// The processor time of this thread where the system tells it, so that a busy machine does not
/// fail the test; the time of day elsewhere.
fn clock(start: Instant) -> Duration {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let on_cpu = told.and_then(|s| s.split(' ').next()?.parse().ok()).map(Duration::from_nanos);
    on_cpu.unwrap_or_else(|| start.elapsed())
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let before = clock(start);
    let value = work();
    (value, clock(start) - before)
}

/// Texts that make careless algorithms quadratic, of about `len` bytes each.
fn hard_texts(len: usize) -> Vec<(&'static str, String)> {
    let repeat = |unit: &str| unit.repeat(len / unit.len());
    vec![
        ("spaces", repeat(" ")),
        ("spaces and a letter", repeat(" ") + "x"),
        ("newlines", repeat("\n")),
        ("one letter", repeat("a")),
        ("one character of three bytes", repeat("中")),
        ("digits", repeat("7")),
        ("punctuation", repeat("=")),
        ("marks", repeat("\u{301}")),
        ("half a special token", repeat("<|im_start")),
        ("special tokens", repeat("<|im_end|><s><bos><|endoftext|>")),
        (
            "prose",
            repeat("It's 2026, and the quick brown fox jumps over the lazy dog.\n\tÜber 13 Füße! "),
        ),
    ]
}

#[test]
fn long_texts_and_large_vocabularies() {
    let Some(peers) = peers::peers("long_texts_and_large_vocabularies") else { return };
    for (name, path) in peers::vocabularies(&peers) {
        if peers::tokenizer(&name, &path).is_none() {
            continue;
        }
        let gguf = Gguf::open(&path).unwrap();
        let loads = (0..4).map(|_| timed(|| Tokenizer::from_metadata(gguf.metadata()).unwrap()));
        let (tokenizer, load) = loads.min_by_key(|(_, load)| *load).unwrap();
        println!("{name}: {} tokens, loaded in {load:.1?}", tokenizer.vocab_size());
        assert!(load < SLACK * Duration::from_millis(300), "{name}: loading took {load:?}");
        for (what, text) in hard_texts(1 << 20) {
            let (ids, took) = timed(|| tokenizer.encode(&text, OPTIONS));
            println!("  {what}: {} tokens in {took:.1?}", ids.len());
            assert!(took < SLACK * Duration::from_secs(4), "{name}: {what} took {took:?}");
        }
    }
}
