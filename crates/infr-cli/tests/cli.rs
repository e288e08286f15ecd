//! The program as users run it, on a tiny random model.

#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Place {
        let folder = tempfile::tempdir().unwrap();
        let bytes = infr_models::synth::tiny("llama", 7, "F32").unwrap();
        std::fs::write(folder.path().join("tiny.gguf"), bytes).unwrap();
        Place { folder }
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Runs `infr` in the folder, away from the user's own settings and caches.
    fn infr(&self, args: &[&str], input: &str) -> Output {
        let mut child = Command::new(env!("CARGO_BIN_EXE_infr"))
            .args(args)
            .current_dir(self.folder.path())
            .env_clear()
            .env("HOME", self.folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }

    fn ok(&self, args: &[&str], input: &str) -> String {
        let output = self.infr(args, input);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn fails(&self, args: &[&str]) -> String {
        let output = self.infr(args, "");
        assert!(!output.status.success(), "{args:?} succeeded");
        String::from_utf8(output.stderr).unwrap()
    }
}

#[test]
fn alone_it_says_what_to_type_first() {
    let text = Place::new().ok(&[], "");
    assert!(text.contains("infr run demo"), "{text}");
}

#[test]
fn answers_a_message_and_piped_input() {
    let place = Place::new();
    let args = ["run", "tiny.gguf", "hello", "--temp", "0", "--max-tokens", "5"];
    let once = place.ok(&args, "");
    assert_eq!(once, place.ok(&args, ""), "greedy answers are equal");
    let piped = place.ok(&["run", "tiny.gguf", "--temp", "0", "--max-tokens", "5"], "hello\n");
    assert_eq!(once, piped, "a message may be piped");
    let seeded = ["run", "tiny.gguf", "hello", "--temp", "1", "--seed", "3", "--max-tokens", "9"];
    assert_eq!(place.ok(&seeded, ""), place.ok(&seeded, ""), "a seed decides");
}

#[test]
fn a_diffusion_model_answers_block_by_block() {
    let place = Place::new();
    let bytes = infr_models::synth::tiny("diffusion_gemma", 7, "F32").unwrap();
    std::fs::write(place.folder.path().join("blocks.gguf"), bytes).unwrap();
    let args = |seed| ["run", "blocks.gguf", "hello", "--raw", "--seed", seed, "-n", "30", "-v"];
    let run = |seed| {
        let output = place.infr(&args(seed), "");
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{errors}");
        let generated = errors.split("generation: ").nth(1).unwrap();
        let tokens: u32 = generated.split(' ').next().unwrap().parse().unwrap();
        assert!(0 < tokens && tokens <= 30, "{errors}");
        output.stdout
    };
    assert_eq!(run("3"), run("3"), "a seed decides");
    assert_ne!(run("3"), run("4"), "another seed, another answer");
    let text = place.fails(&["run", "blocks.gguf", "hello", "--raw", "--ctx", "10"]);
    assert!(text.contains("blocks of 12") && text.starts_with("error"), "{text}");
}

#[test]
fn verbose_tells_speed_and_memory() {
    let output = Place::new().infr(&["run", "tiny.gguf", "-v", "hi", "-n", "3"], "");
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("tokens/s") && text.contains("weights"), "{text}");
}

#[test]
fn bad_input_is_a_clear_error() {
    let place = Place::new();
    place.file("text.gguf", "this is not a model, but a text that somebody renamed");
    let cases: &[(&[&str], &str)] = &[
        (&["run", "missing.gguf", "hi"], "missing.gguf"),
        (&["run", "text.gguf", "hi"], "text.gguf"),
        (&["run", "tiny.gguf", "hi", "--temp", "hot"], "sampling.temp"),
        (&["run", "tiny.gguf", "hi", "--dev", "vulkan77"], "vulkan77"),
        (&["run", "tiny.gguf", "hi", "--set", "sampling.tmp=1"], "sampling.temp"),
        (&["run", "tiny.gguf"], "message"),
        (&["bench", "-m", "tiny.gguf", "-p", "0", "-n", "0"], "nothing to measure"),
        (&["debug", "logits", "tiny.gguf", "--tokens", "no.txt", "--out", "x"], "no.txt"),
        (&["run", "org/model:Q4_K_M", "hi"], "org/model"),
    ];
    for (args, wanted) in cases {
        let text = place.fails(args);
        assert!(text.contains(wanted) && text.starts_with("error"), "{args:?}: {text}");
        assert!(!text.contains("panicked"), "{args:?}: {text}");
    }
}

#[test]
fn a_full_context_is_said() {
    let place = Place::new();
    let output = place.infr(&["run", "tiny.gguf", "hello", "--raw", "--ctx", "64"], "");
    let text = String::from_utf8(output.stderr).unwrap();
    // A random model may also draw an end token before the context is full.
    assert!(output.status.success());
    assert!(text.is_empty() || text.contains("the context of 64 tokens is full"), "{text}");
}

#[test]
fn debug_logits_writes_every_position() {
    let place = Place::new();
    place.file("ids.txt", "1, 70 71\n72,5");
    place.ok(&["debug", "logits", "tiny.gguf", "--tokens", "ids.txt", "--out", "all.f32"], "");
    let all = std::fs::read(place.folder.path().join("all.f32")).unwrap();
    let vocab = all.len() / 4 / 5;
    assert_eq!(all.len(), vocab * 4 * 5);
    place.file("start.txt", "1 70 71");
    place.ok(&["debug", "logits", "tiny.gguf", "--tokens", "start.txt", "--out", "start.f32"], "");
    let start = std::fs::read(place.folder.path().join("start.f32")).unwrap();
    assert_eq!(start, all[..start.len()], "a prefix gives the same logits");
    place.file("bad.txt", "1 99999999");
    let text =
        place.fails(&["debug", "logits", "tiny.gguf", "--tokens", "bad.txt", "--out", "x.f32"]);
    assert!(text.contains("99999999"), "{text}");
}

#[test]
fn debug_tokenize_and_template() {
    let place = Place::new();
    let ids = place.ok(&["debug", "tokenize", "tiny.gguf", "--text", "hi"], "");
    assert!(ids.starts_with('[') && ids.trim_end().ends_with(']'), "{ids}");
    assert_eq!(ids, place.ok(&["debug", "tokenize", "tiny.gguf"], "hi"));
    let messages = r#"[{"role": "user", "content": "unmistakable"}]"#;
    place.file("messages.json", messages);
    let text = place.ok(&["debug", "template", "tiny.gguf", "--messages", "messages.json"], "");
    assert!(text.contains("unmistakable"), "{text}");
}

#[test]
fn inspect_bench_devices_and_config() {
    let place = Place::new();
    let text = place.ok(&["inspect", "tiny.gguf"], "");
    assert!(text.contains("general.architecture") && text.contains("token_embd.weight"), "{text}");
    let args = ["bench", "-m", "tiny.gguf", "-p", "8", "-n", "4", "-r", "2", "-o", "jsonl"];
    let lines = place.ok(&args, "");
    let rows: Vec<serde_json::Value> =
        lines.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(rows.len(), 2, "{lines}");
    assert_eq!((&rows[0]["n_prompt"], &rows[1]["n_gen"]), (&8.into(), &4.into()));
    assert_eq!(rows[0]["samples_ns"].as_array().unwrap().len(), 2);
    assert!(place.ok(&["devices"], "").contains("cpu"));
    place.file("infr.toml", "[sampling]\ntemp = 0.25\ntmp = 1\n");
    let output = place.infr(&["config"], "");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("0.25") && text.contains("infr.toml:2"), "{text}");
    let warning = String::from_utf8(output.stderr).unwrap();
    assert!(warning.contains("infr.toml:3") && warning.contains("sampling.temp"), "{warning}");
}
