//! The chat: line editing, history and commands.

use std::borrow::Cow;
use std::process::ExitCode;

use anyhow::Result;
use infr_chat::Prompt;
use infr_engine::Finish;
use infr_text::message::Message;
use reedline::{
    FileBackedHistory, Prompt as LinePrompt, PromptEditMode, PromptHistorySearch, Reedline, Signal,
};

use super::{Session, answer};
use crate::config::env;

const HELP: &str = "\
/help            this list
/reset           forget the conversation
/system TEXT     set the system message and forget the conversation; alone: show it
/stats           tokens and speed of the last answer, and the context used
/quit            leave (also: exit, Ctrl-D)
Ctrl-C           stop the answer; end a line with \\ to go on on the next one";

/// Lines kept in the history file.
const HISTORY: usize = 1000;

/// Chats until the user leaves.
pub(super) fn chat(session: &Session<'_>) -> Result<ExitCode> {
    let mut editor = editor();
    let mut conversation =
        Conversation { system: session.args.system.clone(), turns: Vec::new(), last: None };
    let name = session.model.info().name.as_deref().unwrap_or("the model");
    eprintln!("Chat with {name}. /help lists commands, Ctrl-D leaves.");
    let mut pending = String::new();
    loop {
        let line = match editor.read_line(&Arrow { more: !pending.is_empty() }) {
            Ok(Signal::Success(line)) => line,
            Ok(Signal::CtrlC) => {
                pending.clear();
                continue;
            }
            Ok(_) => return Ok(ExitCode::SUCCESS),
            Err(error) => return Err(error.into()),
        };
        if let Some(start) = line.strip_suffix('\\') {
            pending += start;
            pending.push('\n');
            continue;
        }
        let text = std::mem::take(&mut pending) + &line;
        match conversation.command(text.trim(), session) {
            Next::Leave => return Ok(ExitCode::SUCCESS),
            Next::Done => {}
            Next::Say => conversation.say(text.trim(), session)?,
        }
    }
}

enum Next {
    Leave,
    Done,
    Say,
}

struct Conversation {
    system: Option<String>,
    turns: Vec<Message>,
    last: Option<String>,
}

impl Conversation {
    fn command(&mut self, line: &str, session: &Session<'_>) -> Next {
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        match word {
            "" => Next::Done,
            "exit" | "quit" | ":q" | ":quit" | "/quit" | "/exit" | "/bye" if rest.is_empty() => {
                Next::Leave
            }
            "/help" | "/?" => {
                eprintln!("{HELP}");
                Next::Done
            }
            "/reset" | "/clear" => {
                self.turns.clear();
                eprintln!("The conversation is forgotten.");
                Next::Done
            }
            "/system" => {
                self.set_system(rest.trim());
                Next::Done
            }
            "/stats" => {
                self.stats(session);
                Next::Done
            }
            _ if word.starts_with('/') && !word[1..].contains('/') => {
                eprintln!("There is no command {word}; /help lists them.");
                Next::Done
            }
            _ => Next::Say,
        }
    }

    fn set_system(&mut self, text: &str) {
        if text.is_empty() {
            eprintln!("{}", self.system.as_deref().unwrap_or("There is no system message."));
            return;
        }
        self.system = Some(text.to_string());
        self.turns.clear();
        eprintln!("The system message is set; the conversation starts anew.");
    }

    fn stats(&self, session: &Session<'_>) {
        eprintln!("{}", self.last.as_deref().unwrap_or("There is no answer yet."));
        let stats = session.model.engine().stats();
        for (index, pages) in stats.pages.iter().enumerate() {
            eprintln!(
                "cache group {index}: {} pages, {} in use, {} kept for reuse, {} free",
                pages.total, pages.used, pages.cached, pages.free
            );
        }
    }

    fn say(&mut self, text: &str, session: &Session<'_>) -> Result<()> {
        let mut messages = session.opening(self.system.as_deref());
        messages.extend(self.turns.iter().cloned());
        let question = Message::text("user", text);
        messages.push(question.clone());
        let prompt = if session.args.raw {
            Prompt::Raw(text.to_string())
        } else {
            Prompt::Messages(messages)
        };
        let events = match session.model.chat(&session.request(prompt)) {
            Ok(events) => events,
            Err(error) => {
                eprintln!("error: {error}");
                return Ok(());
            }
        };
        match answer::stream(events) {
            Ok(outcome) => {
                self.last = Some(answer::speed(&outcome.usage));
                answer::notice(&outcome, session);
                if outcome.reason == Finish::Cancelled {
                    eprintln!("(stopped)");
                }
                if session.args.verbose {
                    eprintln!("{}", answer::speed(&outcome.usage));
                }
                let mut reply = Message::text("assistant", outcome.content);
                if !outcome.reasoning.is_empty() {
                    reply.reasoning_content = Some(outcome.reasoning);
                }
                self.turns.extend([question, reply]);
            }
            Err(error) => {
                eprintln!("error: {error:#}\nThe message was not added; /reset starts anew.")
            }
        }
        Ok(())
    }
}

fn editor() -> Reedline {
    let editor = Reedline::create();
    let Some(folder) = env::state_dir() else { return editor };
    if std::fs::create_dir_all(&folder).is_err() {
        return editor;
    }
    match FileBackedHistory::with_file(HISTORY, folder.join("history.txt")) {
        Ok(history) => editor.with_history(Box::new(history)),
        Err(error) => {
            tracing::warn!("no history: {error}");
            editor
        }
    }
}

/// The prompt of a line.
struct Arrow {
    more: bool,
}

impl LinePrompt for Arrow {
    fn render_prompt_left(&self) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn render_prompt_right(&self) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn render_prompt_indicator(&self, _: PromptEditMode) -> Cow<'_, str> {
        Cow::Borrowed(if self.more { ". " } else { "> " })
    }

    fn render_prompt_multiline_indicator(&self) -> Cow<'_, str> {
        Cow::Borrowed(". ")
    }

    fn render_prompt_history_search_indicator(&self, search: PromptHistorySearch) -> Cow<'_, str> {
        Cow::Owned(format!("search: {} ", search.term))
    }
}
