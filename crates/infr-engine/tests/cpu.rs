//! Tiny models of all families on the CPU reference: what a request gives in company, in small
//! chunks, on shared and copied pages and from snapshots is what it gives alone.

#![allow(clippy::unwrap_used)] // Helpers of tests are tests.

mod common;

use std::sync::Arc;

use common::{finish, text};
use infr_backend::SampleParams;
use infr_cpu::{CpuBackend, CpuOptions};
use infr_engine::{Engine, EngineOptions, EngineSource, Request, Shutdown, Wanted};
use infr_gguf::Gguf;
use infr_models::{BuildOptions, DecodeStyle, Loaded, synth};

fn load(name: &str) -> Loaded {
    let bytes = synth::tiny(name, 7, "F32").unwrap();
    infr_models::from_gguf(Arc::new(Gguf::from_bytes(name, bytes).unwrap())).unwrap()
}

fn start(model: &Loaded, options: EngineOptions) -> Engine {
    let backend = Arc::new(CpuBackend::new(CpuOptions { threads: 1, ..CpuOptions::reference() }));
    let options = EngineOptions { context: Some(128), ..options };
    let source =
        EngineSource::from_model(backend, model, &options, BuildOptions::default()).unwrap();
    Engine::start(source, options).unwrap()
}

fn requests(turn: u32, earlier: &[Vec<u32>]) -> Vec<Request> {
    (0..3)
        .map(|i| {
            let mut prompt = match earlier.get(i as usize) {
                Some(text) => text[..text.len() - i as usize * 3].to_vec(),
                None => [text(1, 9), text(i, 8)].concat(),
            };
            prompt.extend(text(turn * 9 + i, 6));
            let temperature = if i == 1 { 1.0 } else { 0.0 };
            let frequency_penalty = if i == 2 { 0.5 } else { 0.0 };
            let sample = SampleParams {
                temperature,
                frequency_penalty,
                seed: u64::from(turn),
                ..SampleParams::default()
            };
            Request { sample, ..Request::new(prompt, 12) }
        })
        .collect()
}

fn in_company_as_alone(name: &str) {
    let model = load(name);
    if !matches!(model.model.info().style, DecodeStyle::Autoregressive) {
        println!("skipped: {name} does not write one token after another");
        return;
    }
    let busy = EngineOptions { parallel: 3, ubatch: 7, page_len: 16, ..EngineOptions::default() };
    let alone =
        EngineOptions { prefix_cache: false, steps_in_flight: 1, ..EngineOptions::default() };
    let (busy, alone) = (start(&model, busy), start(&model, alone));
    let mut texts: Vec<Vec<u32>> = Vec::new();
    for turn in 0..2 {
        let streams: Vec<_> = requests(turn, &texts).into_iter().map(|r| busy.submit(r)).collect();
        let mut next = Vec::new();
        for (stream, request) in streams.into_iter().zip(requests(turn, &texts)) {
            let outcome = finish(stream);
            let prompt = request.prompt.clone();
            let wanted = finish(alone.submit(request));
            assert!(wanted.error.is_none(), "{name}: {:?}", wanted.error);
            assert_eq!(outcome.tokens, wanted.tokens, "{name}, {} cached", outcome.cached);
            next.push([prompt, outcome.tokens].concat());
        }
        texts = next;
    }
    let stats = busy.shutdown(Shutdown::Drain);
    assert!(stats.cached_tokens > 0, "{name} reuses nothing");
    assert!(stats.pages.iter().all(|p| p.used == 0));
}

#[test]
fn every_family_gives_in_company_what_it_gives_alone() {
    for recipe in synth::tiny_recipes("F32") {
        in_company_as_alone(&recipe.name);
    }
}

#[test]
fn logits_of_the_prompt_predict_the_greedy_answer() {
    let model = load(&synth::tiny_recipes("F32")[0].name);
    let engine = start(&model, EngineOptions::default());
    let answer = finish(engine.submit(Request::new(text(3, 20), 10)));
    let whole = [text(3, 20), answer.tokens.clone()].concat();
    let rows =
        finish(engine.submit(Request { want: Wanted::Logits, ..Request::new(whole, 0) })).rows;
    let best = |row: &(u32, Vec<f32>)| infr_backend::sample::argmax(&row.1);
    assert_eq!(rows[19..29].iter().map(best).collect::<Vec<_>>(), answer.tokens);
}
