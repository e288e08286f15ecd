//! One answer: streams it, tells its speed, and stops on Ctrl-C.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once, OnceLock};

use anyhow::{Result, bail};
use infr_chat::{ChatEvent, ChatStream, Prompt};
use infr_engine::{Finish, Usage};
use infr_text::message::Message;

use super::Session;
use crate::output::Style;

/// How an answer ended.
pub(super) struct Outcome {
    /// The answer without thinking.
    pub(super) content: String,
    /// The thinking.
    pub(super) reasoning: String,
    /// Why it ended.
    pub(super) reason: Finish,
    /// What it cost.
    pub(super) usage: Usage,
}

/// Answers one message; the exit code is 130 after Ctrl-C.
pub(super) fn once(session: &Session<'_>, text: &str) -> Result<ExitCode> {
    let prompt = if session.args.raw {
        Prompt::Raw(text.to_string())
    } else {
        let mut messages = session.opening(session.args.system.as_deref());
        messages.push(Message::text("user", text));
        Prompt::Messages(messages)
    };
    let outcome = stream(session.model.chat(&session.request(prompt))?)?;
    notice(&outcome, session);
    if session.args.verbose {
        eprintln!("{}", speed(&outcome.usage));
    }
    Ok(if outcome.reason == Finish::Cancelled { ExitCode::from(130) } else { ExitCode::SUCCESS })
}

/// Says why an answer ended early.
pub(super) fn notice(outcome: &Outcome, session: &Session<'_>) {
    match outcome.reason {
        Finish::ContextFull => eprintln!(
            "the context of {} tokens is full; start again with a larger one, such as --ctx {}",
            session.model.engine().context(),
            u64::from(session.model.engine().context()) * 2,
        ),
        Finish::Deadline => eprintln!("the time for this answer is over"),
        Finish::Stop | Finish::Length | Finish::Cancelled => {}
    }
}

/// Prints an answer as it comes.
pub(super) fn stream(mut events: ChatStream) -> Result<Outcome> {
    let interrupted = interrupt();
    interrupted.store(false, Ordering::Relaxed);
    let mut printer = Printer { style: Style::stdout(), thinking: false, ends_line: true };
    let (mut content, mut reasoning) = (String::new(), String::new());
    while let Some(event) = events.next() {
        if interrupted.load(Ordering::Relaxed) {
            events.cancel();
        }
        match event {
            ChatEvent::Reasoning(text) => {
                reasoning += &text;
                printer.reasoning(&text)?;
            }
            ChatEvent::Content(text) => {
                content += &text;
                printer.content(&text)?;
            }
            ChatEvent::Finished { reason, usage } => {
                printer.end()?;
                return Ok(Outcome { content, reasoning, reason, usage });
            }
            ChatEvent::Failed(error) => {
                printer.end()?;
                return Err(error.into());
            }
            ChatEvent::Queued { .. }
            | ChatEvent::Started { .. }
            | ChatEvent::Prefill { .. }
            | ChatEvent::Draft(_) => {}
        }
    }
    bail!("the engine ended without an answer")
}

/// Prompt and generation speed.
pub(super) fn speed(usage: &Usage) -> String {
    let rate = |tokens: u32, seconds: f64| {
        if seconds > 0.0 {
            format!("{:.1} tokens/s", f64::from(tokens) / seconds)
        } else {
            "-".into()
        }
    };
    let computed = usage.prompt - usage.cached;
    format!(
        "prompt: {} tokens, {} cached, {}; generation: {} tokens, {}",
        usage.prompt,
        usage.cached,
        rate(computed, usage.timings.prefill.as_secs_f64()),
        usage.generated,
        rate(usage.generated.saturating_sub(1), usage.timings.decode.as_secs_f64()),
    )
}

struct Printer {
    style: Style,
    thinking: bool,
    ends_line: bool,
}

impl Printer {
    fn reasoning(&mut self, text: &str) -> Result<()> {
        if !self.thinking {
            self.thinking = true;
            self.write(self.style.dim)?;
        }
        self.write(text)
    }

    fn content(&mut self, text: &str) -> Result<()> {
        if self.thinking {
            self.thinking = false;
            self.write(self.style.reset)?;
            self.write(if self.ends_line { "\n" } else { "\n\n" })?;
        }
        self.write(text)
    }

    fn end(&mut self) -> Result<()> {
        if self.thinking {
            self.write(self.style.reset)?;
        }
        if self.ends_line { Ok(()) } else { self.write("\n") }
    }

    fn write(&mut self, text: &str) -> Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        self.ends_line = text.ends_with('\n');
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        Ok(out.flush()?)
    }
}

/// The flag that Ctrl-C sets. A second Ctrl-C before the answer ends leaves the program.
fn interrupt() -> Arc<AtomicBool> {
    static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    static INSTALL: Once = Once::new();
    let flag = Arc::clone(FLAG.get_or_init(Arc::default));
    INSTALL.call_once(|| {
        let flag = Arc::clone(&flag);
        let installed = ctrlc::set_handler(move || {
            if flag.swap(true, Ordering::Relaxed) {
                std::process::exit(130);
            }
        });
        if let Err(error) = installed {
            tracing::warn!("Ctrl-C ends the program: {error}");
        }
    });
    flag
}
