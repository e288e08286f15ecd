//! `infr run`: answers a message, or chats.

mod answer;
mod chat;

use std::io::{self, IsTerminal, Read};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use infr_chat::{ChatModel, ChatRequest, Prompt, SamplingOverrides};
use infr_text::message::Message;

use crate::config::Settings;
use crate::flags::RunArgs;
use crate::models::{self, Opened};
use crate::output;

/// Answers and exits when there is a message, else chats.
pub(crate) fn run(args: &RunArgs, settings: &Settings) -> Result<ExitCode> {
    let message = message(args)?;
    let path = models::resolve(&args.model, settings)?;
    let opened = models::open(&path, settings)?;
    if args.verbose {
        describe(&opened);
    }
    let session = Session { model: &opened.model, args, settings };
    match message {
        Some(text) => answer::once(&session, &text),
        None => chat::chat(&session),
    }
}

/// What both ways of running share.
struct Session<'a> {
    model: &'a ChatModel,
    args: &'a RunArgs,
    settings: &'a Settings,
}

impl Session<'_> {
    fn request(&self, prompt: Prompt) -> ChatRequest {
        let sampling = &self.settings.sampling;
        ChatRequest {
            sampling: SamplingOverrides {
                temperature: sampling.temp,
                top_k: sampling.top_k,
                top_p: sampling.top_p,
                min_p: sampling.min_p,
                repeat_penalty: sampling.repeat_penalty,
                presence_penalty: sampling.presence_penalty,
                frequency_penalty: sampling.frequency_penalty,
                seed: Some(sampling.seed.unwrap_or_else(clock_seed)),
                logit_bias: Vec::new(),
            },
            max_tokens: sampling.max_tokens,
            think: sampling.think,
            ..ChatRequest::new(prompt)
        }
    }

    /// The messages that a conversation starts with.
    fn opening(&self, system: Option<&str>) -> Vec<Message> {
        system.map(|text| Message::text("system", text)).into_iter().collect()
    }
}

fn clock_seed() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64)
}

/// The message of the command line with what was piped in, if there is either.
fn message(args: &RunArgs) -> Result<Option<String>> {
    let typed = args.message.join(" ");
    let mut piped = String::new();
    if !io::stdin().is_terminal() {
        let mut bytes = Vec::new();
        io::stdin().lock().read_to_end(&mut bytes).context("cannot read standard input")?;
        piped = String::from_utf8_lossy(&bytes).trim_end_matches('\n').to_string();
    }
    Ok(match (typed.is_empty(), piped.is_empty()) {
        (true, true) if io::stdin().is_terminal() => None,
        (true, true) => {
            anyhow::bail!("there is no message: neither as an argument nor on standard input")
        }
        (false, true) => Some(typed),
        (true, false) => Some(piped),
        (false, false) => Some(format!("{typed}\n\n{piped}")),
    })
}

fn describe(opened: &Opened) {
    let (model, device) = (&opened.model, &opened.device);
    let info = model.info();
    let plan = model.engine().plan();
    eprintln!(
        "{}: {} ({}), {} parameters, {} layers, context {} of {}",
        model.path().display(),
        info.name.as_deref().unwrap_or("unnamed"),
        info.architecture,
        output::count(info.parameters),
        info.layers,
        model.engine().context(),
        info.context_length,
    );
    eprintln!("  everything on {}: {} ({})", device.id, device.name, device.driver);
    for row in &plan.rows {
        eprintln!("  {:<12} {:>12}  {}", row.what, output::bytes(row.bytes), row.detail);
    }
    eprintln!("loaded in {:.2} s", model.load_time().as_secs_f64());
}
