//! Every chat template at hand against Jinja2 set up as transformers does.
//!
//! `golden/templates.json` (written by `golden/make_templates.py`) holds a hash of the text that
//! Python renders for each template and conversation. The templates themselves are not in the
//! tree: the environment variable `INFR_PEERS` names a folder that has them in
//! `vocabs/templates/*.jinja`; without it the test is skipped.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Instant;

use infr_text::message::Message;
use infr_text::template::{ChatTemplate, FixedClock, RenderRequest, SpecialTexts, TemplateError};
use jiff::{civil, tz::TimeZone};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

type Golden = BTreeMap<String, BTreeMap<String, String>>;

const CONVERSATIONS: &str = include_str!("golden/conversations.json");
const GOLDEN: &str = include_str!("golden/templates.json");

/// Where this crate knowingly differs from Jinja2, and why.
const DIFFERENT: &[(&str, &str)] = &[
    // `'..' | safe + text` makes Jinja2 escape the text for HTML, schemas included.
    ("meetkai-functionary-medium-v3.1", "tools"),
    ("meetkai-functionary-medium-v3.1", "tools_text"),
    // `schema.items` is Python's method there; here it is the schema's key, as its author meant.
    ("CohereForAI-c4ai-command-r-plus-tool_use", "tools"),
    ("CohereForAI-c4ai-command-r-plus-tool_use", "tools_text"),
];

#[allow(clippy::disallowed_methods)]
fn templates() -> Option<Vec<(String, String)>> {
    let Some(peers) = std::env::var_os("INFR_PEERS") else {
        println!("skipped: INFR_PEERS is not set");
        return None;
    };
    let folder = PathBuf::from(peers).join("vocabs/templates");
    let mut found: Vec<(String, String)> = std::fs::read_dir(&folder)
        .unwrap_or_else(|e| panic!("{}: {e}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "jinja"))
        .map(|path| {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            (name, std::fs::read_to_string(&path).unwrap())
        })
        .collect();
    found.sort();
    assert!(!found.is_empty(), "no templates in {}", folder.display());
    Some(found)
}

fn clock() -> FixedClock {
    let date = civil::date(2026, 3, 7).at(9, 5, 0, 0);
    FixedClock(date.to_zoned_datetime(TimeZone::UTC).unwrap())
}

fn compile(source: &str) -> Result<ChatTemplate, TemplateError> {
    ChatTemplate::new(source, SpecialTexts { bos: "<s>".into(), eos: "</s>".into() })
}

fn conversations() -> Map<String, Value> {
    serde_json::from_str(CONVERSATIONS).unwrap()
}

/// The conversation with its tool calls' arguments as JSON text.
fn arguments_as_text(conversation: &Value) -> Value {
    let mut conversation = conversation.clone();
    for message in conversation["messages"].as_array_mut().unwrap() {
        let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut);
        for call in calls.into_iter().flatten() {
            let text = call["function"]["arguments"].to_string();
            call["function"]["arguments"] = Value::String(text);
        }
    }
    conversation
}

fn result_text(result: &Result<String, TemplateError>) -> String {
    match result {
        Ok(text) => {
            Sha256::digest(text.as_bytes())[..8].iter().fold(String::new(), |mut hex, byte| {
                write!(hex, "{byte:02x}").unwrap();
                hex
            })
        }
        Err(TemplateError::Raised(message)) => format!("raise: {message}"),
        Err(error) => format!("error: {error}"),
    }
}

#[test]
fn rendered_text_is_what_python_renders() {
    let Some(templates) = templates() else { return };
    let golden: Golden = serde_json::from_str(GOLDEN).unwrap();
    let mut conversations = conversations();
    conversations.insert("tools_text".into(), arguments_as_text(&conversations["tools"]));
    let (mut compared, mut wrong) = (0, Vec::new());
    for (name, source) in &templates {
        let Some(expected) = golden.get(name) else {
            println!("not in the golden file: {name}");
            continue;
        };
        let template = compile(source).unwrap_or_else(|e| panic!("{name}: {e}"));
        for (conversation, context) in &conversations {
            let mut context = context.as_object().unwrap().clone();
            context.insert("add_generation_prompt".into(), true.into());
            context.insert("bos_token".into(), "<s>".into());
            context.insert("eos_token".into(), "</s>".into());
            let want = &expected[conversation];
            if want == "error" {
                // Where Python fails, there is nothing to agree with.
                continue;
            }
            compared += 1;
            let got = template.render_context(&context, &clock());
            let known = DIFFERENT.contains(&(name, conversation));
            if (result_text(&got) != *want) != known {
                dump(name, conversation, &got);
                wrong.push(format!("{name} {conversation}: {} for {want}", result_text(&got)));
            }
        }
    }
    println!("{compared} texts compared, {} differ", wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(compared > 3 * golden.len(), "only {compared} compared");
}

/// Leaves a differing text in the test's own folder, to be compared by hand.
fn dump(name: &str, conversation: &str, got: &Result<String, TemplateError>) {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("templates");
    std::fs::create_dir_all(&folder).unwrap();
    let text = match got {
        Ok(text) => text.clone(),
        Err(error) => error.to_string(),
    };
    std::fs::write(folder.join(format!("{name}.{conversation}.txt")), text).unwrap();
}

/// What became of one conversation; anything but a text or a raise fails the test.
fn outcome(
    template: &ChatTemplate,
    messages: &[Message],
    tools: Option<&Value>,
    expected: &[&str],
) -> Result<String, String> {
    let request =
        RenderRequest { messages, tools, add_generation_prompt: true, ..RenderRequest::default() };
    match template.render(&request, &clock()) {
        Ok(text) => match expected.iter().find(|part| !text.contains(**part)) {
            None => Ok("ok".into()),
            Some(part) => Err(format!("no {part:?} in the text")),
        },
        Err(TemplateError::Raised(message)) => {
            Ok(format!("raises: {}", message.chars().take(40).collect::<String>()))
        }
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn every_template_renders_three_conversations() {
    let Some(templates) = templates() else { return };
    let conversations = conversations();
    let mut failed = Vec::new();
    println!("{:52} {:10} {:10} {:10} features", "template", "plain", "multi", "tools");
    for (name, source) in &templates {
        let start = Instant::now();
        let template = compile(source).unwrap_or_else(|e| panic!("{name}: {e}"));
        let compile_ms = start.elapsed().as_secs_f64() * 1000.0;
        let features = template.features();
        let mut row = format!("{name:52}");
        for (conversation, parts) in &conversations {
            let mut messages: Vec<Message> =
                serde_json::from_value(parts["messages"].clone()).unwrap();
            let mut expected = match conversation.as_str() {
                "plain" => vec!["What is <b>1 & 2</b>?"],
                "multi" => vec!["Hello", "Hi there!", "Thanks"],
                _ => vec!["Weather in Paris?", "And tomorrow?"],
            };
            if conversation == "tools" {
                if features.tools {
                    expected.push("get_weather");
                }
                if features.tool_calls {
                    expected.extend(["Paris", "21.5"]);
                }
                // As clients send it: no content beside calls, arguments as text.
                messages[2].content = None;
                let call = &mut messages[2].tool_calls[0].function;
                call.arguments = json!(call.arguments_text());
            }
            let got = outcome(&template, &messages, parts.get("tools"), &expected);
            let shown = got.as_ref().map_or("FAILS", String::as_str);
            write!(row, " {shown:10}").unwrap();
            if let Err(error) = got {
                failed.push(format!("{name} {conversation}: {error}"));
            }
        }
        let mark = |on: bool, what: &'static str| if on { what } else { "-" };
        let flags = [
            mark(features.system_role, "system"),
            mark(features.tools, "tools"),
            mark(features.tool_calls, "calls"),
            mark(features.parallel_tool_calls, "parallel"),
            mark(features.thinking.switchable, "switch"),
        ];
        println!("{row} {} {:?} {compile_ms:.1} ms", flags.join(" "), features.thinking.style);
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn long_conversations_stay_within_the_limits() {
    let Some(templates) = templates() else { return };
    let parts = &conversations()["tools"];
    let given: Vec<Message> = serde_json::from_value(parts["messages"].clone()).unwrap();
    let (system, rest) = given.split_first().unwrap();
    // Turns with and without tools, and one result of a megabyte.
    let mut messages = vec![system.clone()];
    for _ in 0..120 {
        messages.extend_from_slice(&rest[..4]);
        messages.push(Message::text("user", "And tomorrow? ".repeat(50)));
        messages.push(Message::text("assistant", "The same. ".repeat(100)));
    }
    let large = "21.5 degrees, clear.\n".repeat(50_000);
    messages[3].content = Some(infr_text::message::Content::Text(large));
    messages.push(Message::text("user", "Thanks"));
    let mut failed = Vec::new();
    let mut slowest = (0.0, "");
    for (name, source) in &templates {
        let template = compile(source).unwrap();
        let request = RenderRequest {
            messages: &messages,
            tools: parts.get("tools"),
            add_generation_prompt: true,
            ..RenderRequest::default()
        };
        let start = Instant::now();
        match template.render(&request, &clock()) {
            Ok(_) | Err(TemplateError::Raised(_)) => {}
            Err(error) => failed.push(format!("{name}: {error}")),
        }
        let seconds = start.elapsed().as_secs_f64();
        if seconds > slowest.0 {
            slowest = (seconds, name);
        }
    }
    println!("{} messages; slowest {:.2} s: {}", messages.len(), slowest.0, slowest.1);
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
