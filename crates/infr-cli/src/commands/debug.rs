//! `infr debug`: logits, token ids and rendered templates, for engineers and checks from outside.

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};
use infr_engine::{Engine, EngineOptions, EngineSource, Event, Request, Wanted};
use infr_gguf::Gguf;
use infr_models::BuildOptions;
use infr_tensor::DType;
use infr_text::message::Message;
use infr_text::template::{RenderRequest, SystemClock};
use infr_text::tokenizer::EncodeOptions;

use crate::config::Settings;
use crate::flags::{DebugCommand, LogitsArgs, TemplateArgs, TokenizeArgs};
use crate::{backends, models, output};

/// Runs one of the tools.
pub(crate) fn debug(command: &DebugCommand, settings: &Settings) -> Result<()> {
    match command {
        DebugCommand::Logits(args) => logits(args, settings),
        DebugCommand::Tokenize(args) => tokenize(args, settings),
        DebugCommand::Template(args) => template(args, settings),
    }
}

fn logits(args: &LogitsArgs, settings: &Settings) -> Result<()> {
    let tokens = read_tokens(&args.tokens)?;
    let path = models::resolve(&args.model, settings)?;
    let engine = logits_engine(&path, tokens.len() as u32, settings)?;
    let request = Request { want: Wanted::Logits, ..Request::new(tokens, 0) };
    let file =
        File::create(&args.out).with_context(|| format!("cannot write {}", args.out.display()))?;
    let mut out = BufWriter::new(file);
    for event in engine.submit(request) {
        match event {
            Event::Logits { rows, .. } => {
                for value in &rows.data {
                    out.write_all(&value.to_le_bytes())?;
                }
            }
            Event::Failed(error) => return Err(error.into()),
            _ => {}
        }
    }
    Ok(out.flush()?)
}

/// An engine for exact logits: reference kernels on the CPU and caches in `f32`, unless settings
/// say otherwise.
fn logits_engine(path: &Path, tokens: u32, settings: &Settings) -> Result<Engine> {
    let loaded = infr_models::load(path)?;
    let cache = match settings.kv_type.as_deref() {
        Some("f16") => DType::F16,
        _ => DType::F32,
    };
    let backend = match settings.dev.as_deref() {
        None | Some("cpu") => backends::cpu(settings, settings.cpu_simd.unwrap_or(false)),
        Some(_) => backends::choose(settings)?.backend,
    };
    let options = EngineOptions {
        context: Some(settings.ctx.unwrap_or(tokens.max(1))),
        ubatch: settings.ubatch.unwrap_or(512),
        ..EngineOptions::default()
    };
    let build = BuildOptions { cache_k: cache, cache_v: cache, ..BuildOptions::default() };
    let source = EngineSource::from_model(backend, &loaded, &options, build)?;
    Ok(Engine::start(source, options)?)
}

fn read_tokens(path: &Path) -> Result<Vec<u32>> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let words = text.split(|c: char| c.is_whitespace() || "[],".contains(c));
    let ids: Result<Vec<u32>> = words
        .filter(|w| !w.is_empty())
        .map(|w| w.parse().with_context(|| format!("{}: '{w}' is no token id", path.display())))
        .collect();
    let ids = ids?;
    if ids.is_empty() {
        bail!("{} has no token ids", path.display());
    }
    Ok(ids)
}

fn tokenize(args: &TokenizeArgs, settings: &Settings) -> Result<()> {
    let gguf = Gguf::open(&models::resolve(&args.model, settings)?)?;
    let tokenizer = infr_chat::load::tokenizer(&gguf)?;
    let text = match (&args.text, &args.file) {
        (Some(text), _) => text.clone().into_bytes(),
        (None, Some(path)) => {
            std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?
        }
        (None, None) => {
            let mut bytes = Vec::new();
            std::io::stdin().lock().read_to_end(&mut bytes)?;
            bytes
        }
    };
    let options = EncodeOptions { add_special: args.bos, parse_special: true };
    let ids = tokenizer.encode_bytes(&text, options);
    output::print(&format!("{}\n", serde_json::to_string(&ids)?))
}

fn template(args: &TemplateArgs, settings: &Settings) -> Result<()> {
    let gguf = Gguf::open(&models::resolve(&args.model, settings)?)?;
    let text = std::fs::read_to_string(&args.messages)
        .with_context(|| format!("cannot read {}", args.messages.display()))?;
    let name = args.messages.display();
    let value: serde_json::Value =
        serde_json::from_str(&text).with_context(|| format!("{name} is not JSON"))?;
    let (messages, tools) = match &value {
        serde_json::Value::Object(object) => {
            (object.get("messages").cloned().unwrap_or_default(), object.get("tools").cloned())
        }
        list => (list.clone(), None),
    };
    let messages: Vec<Message> = serde_json::from_value(messages)
        .with_context(|| format!("{name} wants a list of messages, or an object with one"))?;
    let template = infr_chat::load::template(&gguf, tools.is_some())?;
    let think = (args.think || args.no_think).then_some(args.think);
    let request = RenderRequest {
        messages: &messages,
        tools: tools.as_ref(),
        add_generation_prompt: true,
        enable_thinking: think,
        ..RenderRequest::default()
    };
    output::print(&template.render(&request, &SystemClock)?)
}
