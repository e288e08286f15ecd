//! `infr bench`: prompt and generation speed, in llama-bench's terms.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use comfy_table::{CellAlignment, Table, presets};
use infr_backend::DeviceInfo;
use infr_backend::sample::hash;
use infr_chat::ChatModel;
use infr_engine::{Event, Request, Usage};
use serde_json::json;

use crate::config::Settings;
use crate::flags::{BenchArgs, OutputFormat};
use crate::{models, output};

/// One measured shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Test {
    prompt: u32,
    generate: u32,
    depth: u32,
}

/// Its repetitions.
struct Measured {
    test: Test,
    nanoseconds: Vec<u64>,
}

/// Measures and prints.
pub(crate) fn bench(args: &BenchArgs, settings: &Settings) -> Result<()> {
    let Some(reference) = args.model_flag.as_ref().or(args.model.as_ref()) else {
        bail!("which model? infr bench -m FILE");
    };
    let path = models::resolve(reference, settings)?;
    let tests = tests(args);
    let Some(longest) = tests.iter().map(|t| t.depth + t.prompt.max(1) + t.generate + 1).max()
    else {
        bail!("nothing to measure: -p and -n are both 0");
    };
    let mut sized = settings.clone();
    sized.ctx = Some(settings.ctx.unwrap_or(0).max(longest.next_multiple_of(64)));
    let opened = models::open(&path, &sized)?;
    let model = &opened.model;
    let mut results = Vec::new();
    for test in tests {
        results.push(measure(model, test, args.repetitions.max(1))?);
    }
    let report = Report { model, device: &opened.device, path: &path, settings: &sized };
    match args.output {
        OutputFormat::Md => output::print(&format!("{}\n", report.markdown(&results))),
        OutputFormat::Jsonl => {
            results.iter().try_for_each(|r| output::print(&format!("{}\n", report.json(r))))
        }
    }
}

fn tests(args: &BenchArgs) -> Vec<Test> {
    let depth = args.n_depth;
    let prompt = Test { prompt: args.n_prompt, generate: 0, depth };
    let generate = Test { prompt: 0, generate: args.n_gen, depth };
    [prompt, generate].into_iter().filter(|t| t.prompt + t.generate > 0).collect()
}

/// Runs the shape once to warm up, then `repetitions` times.
fn measure(model: &ChatModel, test: Test, repetitions: u32) -> Result<Measured> {
    run(model, test, 0)?;
    let nanoseconds: Result<Vec<u64>> =
        (1..=repetitions).map(|r| Ok(run(model, test, r)?.as_nanos() as u64)).collect();
    Ok(Measured { test, nanoseconds: nanoseconds? })
}

/// One run on tokens of its own, so that nothing but the context of `depth` comes from the cache.
fn run(model: &ChatModel, test: Test, round: u32) -> Result<Duration> {
    let prompt = tokens(model, test.depth + test.prompt.max(1), test, round);
    if test.prompt == 0 {
        // The first token ends the prefill; the time is that of the `generate` after it.
        let usage = request(model, prompt, test.generate + 1)?;
        return Ok(usage.timings.decode);
    }
    if test.depth > 0 {
        request(model, prompt[..test.depth as usize].to_vec(), 1)?;
    }
    let usage = request(model, prompt, 1)?;
    if usage.cached != test.depth {
        bail!("the context of {} tokens was not kept: {} were", test.depth, usage.cached);
    }
    Ok(usage.timings.prefill)
}

fn tokens(model: &ChatModel, count: u32, test: Test, round: u32) -> Vec<u32> {
    let seed = u64::from(round) << 32 | u64::from(test.prompt) << 1 | u64::from(test.generate > 0);
    let vocab = u64::from(model.info().vocab.max(1));
    (0..count).map(|i| (hash(seed, i) % vocab) as u32).collect()
}

fn request(model: &ChatModel, prompt: Vec<u32>, max_tokens: u32) -> Result<Usage> {
    for event in model.engine().submit(Request::new(prompt, max_tokens)) {
        match event {
            Event::Finished { usage, .. } => return Ok(usage),
            Event::Failed(error) => return Err(error.into()),
            _ => {}
        }
    }
    bail!("the engine ended without an answer")
}

impl Test {
    fn tokens(self) -> u32 {
        if self.prompt > 0 { self.prompt } else { self.generate }
    }

    fn name(self) -> String {
        let name = match self.prompt {
            0 => format!("tg{}", self.generate),
            n => format!("pp{n}"),
        };
        if self.depth > 0 { format!("{name} @ d{}", self.depth) } else { name }
    }
}

impl Measured {
    fn rates(&self) -> Vec<f64> {
        let tokens = f64::from(self.test.tokens());
        self.nanoseconds.iter().map(|&ns| tokens * 1e9 / (ns as f64).max(1.0)).collect()
    }
}

struct Report<'a> {
    model: &'a ChatModel,
    device: &'a DeviceInfo,
    path: &'a Path,
    settings: &'a Settings,
}

impl Report<'_> {
    fn size(&self) -> u64 {
        std::fs::metadata(self.path).map_or(0, |m| m.len())
    }

    fn markdown(&self, results: &[Measured]) -> Table {
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN);
        table.set_header(["model", "size", "params", "device", "threads", "test", "t/s"]);
        let info = self.model.info();
        for result in results {
            let rates = result.rates();
            table.add_row([
                info.name.clone().unwrap_or_else(|| info.architecture.clone()),
                output::bytes(self.size()),
                output::count(info.parameters),
                self.device.id.clone(),
                self.threads().to_string(),
                result.test.name(),
                format!("{:.2} ± {:.2}", mean(&rates), deviation(&rates)),
            ]);
        }
        for column in [1, 2, 4, 5, 6] {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table
    }

    fn threads(&self) -> usize {
        let all = std::thread::available_parallelism().map_or(1, usize::from);
        self.settings.threads.unwrap_or(all)
    }

    fn json(&self, result: &Measured) -> serde_json::Value {
        let info = self.model.info();
        let rates = result.rates();
        let times: Vec<f64> = result.nanoseconds.iter().map(|&n| n as f64).collect();
        json!({
            "build_commit": env!("CARGO_PKG_VERSION"),
            "backends": self.device.id.clone(),
            "model_filename": self.path.display().to_string(),
            "model_type": info.architecture,
            "model_size": self.size(),
            "model_n_params": info.parameters,
            "n_batch": self.settings.ubatch.unwrap_or(512),
            "n_ubatch": self.settings.ubatch.unwrap_or(512),
            "n_threads": self.threads(),
            "type_k": self.settings.kv_type.as_deref().unwrap_or("f16"),
            "type_v": self.settings.kv_type.as_deref().unwrap_or("f16"),
            "devices": self.device.name,
            "driver": self.device.driver,
            "n_prompt": result.test.prompt,
            "n_gen": result.test.generate,
            "n_depth": result.test.depth,
            "test_time": jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            "avg_ns": mean(&times),
            "stddev_ns": deviation(&times),
            "avg_ts": mean(&rates),
            "stddev_ts": deviation(&rates),
            "samples_ns": result.nanoseconds,
            "samples_ts": rates,
        })
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Standard deviation of a sample.
fn deviation(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let mean = mean(values);
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    (squares / (values.len() - 1) as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_and_names() {
        assert_eq!(mean(&[1.0, 3.0]), 2.0);
        assert_eq!(deviation(&[1.0, 3.0]), 2f64.sqrt());
        assert_eq!(Test { prompt: 512, generate: 0, depth: 0 }.name(), "pp512");
        assert_eq!(Test { prompt: 0, generate: 64, depth: 4096 }.name(), "tg64 @ d4096");
    }
}
