//! Finds out what a template supports by rendering small conversations through it.
//!
//! Searching the source for words says what a template mentions; rendering says what it does.

use jiff::{Timestamp, tz::TimeZone};
use serde_json::{Value, json};

use super::context::Forms;
use super::{ChatTemplate, FixedClock, RenderRequest};
use crate::message::{Content, FunctionCall, Message, ToolCall};
use crate::reasoning::ReasoningStyle;

/// What a template supports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TemplateFeatures {
    /// Tool definitions reach the prompt.
    pub tools: bool,
    /// An assistant's tool calls and their results reach the prompt.
    pub tool_calls: bool,
    /// Several calls in one message do.
    pub parallel_tool_calls: bool,
    /// A system message reaches the prompt.
    pub system_role: bool,
    /// How the template has the model think.
    pub thinking: ThinkingSupport,
}

/// What a template has to do with thinking.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ThinkingSupport {
    /// The markup around the model's thinking; `None` if the template knows none.
    pub style: Option<ReasoningStyle>,
    /// `enable_thinking` changes the prompt.
    pub switchable: bool,
}

const SYSTEM: &str = "infrsystem";
const USER: &str = "infruser";
const TOOL: &str = "infrtool";
const OTHER_TOOL: &str = "infrother";
const KEY: &str = "infrkey";
const VALUE: &str = "infrvalue";
const RESULT: &str = "infrresult";

/// The form in which the template takes messages.
pub(super) fn forms(template: &ChatTemplate) -> Forms {
    let plain = [Message::text("user", USER)];
    let as_text = render(template, &plain, None, Forms::default());
    let parts = Forms { text_as_parts: true, ..Forms::default() };
    let text_as_parts = !shows(as_text.as_deref(), USER)
        && shows(render(template, &plain, None, parts).as_deref(), USER);
    let base = Forms { text_as_parts, ..Forms::default() };
    let conversation = tool_conversation(1);
    let tools = tools();
    let mut best = (0, base);
    for forms in std::iter::once(base).chain(base.others()) {
        let score = call_score(render(template, &conversation, Some(&tools), forms).as_deref());
        if score > best.0 {
            best = (score, forms);
        }
    }
    best.1
}

/// How well a rendered tool call came through; an object printed as Python's `repr` is no JSON.
fn call_score(rendered: Option<&str>) -> u32 {
    let Some(text) = rendered else { return 0 };
    let call = text.contains(TOOL) && text.contains(VALUE);
    let garbled = text.contains(&format!("{{'{KEY}'")) || text.contains("None");
    let quoted_twice = text.contains(&format!("\\\"{KEY}"));
    1 + 4 * u32::from(call) + 2 * u32::from(!garbled) + u32::from(!quoted_twice)
}

/// What the template supports, in the forms found.
pub(super) fn features(template: &ChatTemplate) -> TemplateFeatures {
    let forms = template.forms;
    let tools = tools();
    let user = Message::text("user", USER);
    let system = [Message::text("system", SYSTEM), user.clone()];
    let with_tools = render(template, std::slice::from_ref(&user), Some(&tools), forms);
    let call = render(template, &tool_conversation(1), Some(&tools), forms);
    let calls = render(template, &tool_conversation(2), Some(&tools), forms);
    let tool_calls = shows(call.as_deref(), VALUE) && shows(call.as_deref(), RESULT);
    let thinks = |on: bool| {
        let messages = [Message::text("user", USER)];
        let request = RenderRequest {
            messages: &messages,
            add_generation_prompt: true,
            enable_thinking: Some(on),
            ..RenderRequest::default()
        };
        template.render(&request, &epoch()).ok()
    };
    TemplateFeatures {
        tools: shows(with_tools.as_deref(), TOOL),
        tool_calls,
        parallel_tool_calls: tool_calls && shows(calls.as_deref(), &second(VALUE)),
        system_role: shows(render(template, &system, None, forms).as_deref(), SYSTEM),
        thinking: ThinkingSupport {
            style: ReasoningStyle::detect(&template.source),
            switchable: thinks(true) != thinks(false),
        },
    }
}

fn shows(rendered: Option<&str>, what: &str) -> bool {
    rendered.is_some_and(|text| text.contains(what))
}

fn epoch() -> FixedClock {
    FixedClock(Timestamp::UNIX_EPOCH.to_zoned_datetime(TimeZone::UTC))
}

fn render(
    template: &ChatTemplate,
    messages: &[Message],
    tools: Option<&Value>,
    forms: Forms,
) -> Option<String> {
    let request =
        RenderRequest { messages, tools, add_generation_prompt: true, ..RenderRequest::default() };
    template.render_as(&request, &epoch(), forms).ok()
}

fn second(word: &str) -> String {
    format!("{word}second")
}

fn tools() -> Value {
    let parameters = json!({
        "type": "object",
        "properties": { KEY: { "type": "string", "description": "d" } },
        "required": [KEY],
    });
    let tool = |name: &str| {
        json!({ "type": "function", "function":
            { "name": name, "description": "d", "parameters": parameters } })
    };
    json!([tool(TOOL), tool(OTHER_TOOL)])
}

/// A user's turn, an assistant's message with `n_calls` calls, and their results.
fn tool_conversation(n_calls: usize) -> Vec<Message> {
    let call = |at: usize| {
        let value = if at == 0 { VALUE.to_owned() } else { second(VALUE) };
        ToolCall {
            // Mistral's templates ask for nine letters and digits.
            id: Some(format!("infrcall{at}")),
            kind: "function".into(),
            function: FunctionCall { name: TOOL.into(), arguments: json!({ KEY: value }) },
        }
    };
    let mut messages = vec![
        Message::text("user", USER),
        Message {
            role: "assistant".into(),
            tool_calls: (0..n_calls).map(call).collect(),
            ..Message::default()
        },
    ];
    messages.extend((0..n_calls).map(|at| Message {
        role: "tool".into(),
        content: Some(Content::from(RESULT)),
        tool_call_id: Some(format!("infrcall{at}")),
        name: Some(TOOL.into()),
        ..Message::default()
    }));
    messages
}
