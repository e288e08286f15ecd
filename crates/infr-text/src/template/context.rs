//! The variables that a template sees, in the form that it can take.

use jiff::ZonedDateTime;
use serde_json::{Map, Value, json};

use super::{RenderRequest, SpecialTexts};
use crate::message::{Content, Message, ToolCall};

/// Where templates differ in what they take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Forms {
    /// A tool call's arguments as JSON text instead of as an object.
    pub(super) arguments_as_text: bool,
    /// Absent content as null instead of as empty text.
    pub(super) absent_as_null: bool,
    /// Text as a list of one typed part.
    pub(super) text_as_parts: bool,
}

impl Forms {
    /// The forms of tool calls that differ from these, the likelier ones first.
    pub(super) fn others(self) -> impl Iterator<Item = Self> {
        let arguments = Self { arguments_as_text: !self.arguments_as_text, ..self };
        let absent = Self { absent_as_null: !self.absent_as_null, ..self };
        let both = Self { absent_as_null: !self.absent_as_null, ..arguments };
        [arguments, absent, both].into_iter()
    }
}

/// The variables for one render.
pub(super) fn build(
    request: &RenderRequest<'_>,
    specials: &SpecialTexts,
    forms: Forms,
) -> Map<String, Value> {
    let mut context = Map::new();
    if let Some(on) = request.enable_thinking {
        context.insert("enable_thinking".into(), on.into());
        // The same switch in the templates of Granite and DeepSeek V3.1.
        context.insert("thinking".into(), on.into());
    }
    context.extend(request.extra.clone());
    let messages = request.messages.iter().map(|message| to_value(message, forms)).collect();
    context.insert("messages".into(), Value::Array(messages));
    context.insert("add_generation_prompt".into(), request.add_generation_prompt.into());
    context.insert("bos_token".into(), specials.bos.clone().into());
    context.insert("eos_token".into(), specials.eos.clone().into());
    // Templates ask both `tools is defined` and `tools is not none`, so none means absent.
    match request.tools {
        Some(tools) => context.insert("tools".into(), tools.clone()),
        None => context.shift_remove("tools"),
    };
    context
}

fn to_value(message: &Message, forms: Forms) -> Value {
    let mut fields = Map::new();
    fields.insert("role".into(), message.role.clone().into());
    let content = match &message.content {
        None if forms.absent_as_null => Value::Null,
        None => text_value("", forms),
        Some(content) if content.is_text() => text_value(&content.to_text(), forms),
        Some(Content::Text(text)) => text_value(text, forms),
        Some(Content::Parts(parts)) => json!(parts),
    };
    fields.insert("content".into(), content);
    if let Some(reasoning) = &message.reasoning_content {
        fields.insert("reasoning_content".into(), reasoning.clone().into());
    }
    if !message.tool_calls.is_empty() {
        let calls = message.tool_calls.iter().map(|call| call_value(call, forms)).collect();
        fields.insert("tool_calls".into(), Value::Array(calls));
    }
    if let Some(id) = &message.tool_call_id {
        fields.insert("tool_call_id".into(), id.clone().into());
    }
    if let Some(name) = &message.name {
        fields.insert("name".into(), name.clone().into());
    }
    Value::Object(fields)
}

fn text_value(text: &str, forms: Forms) -> Value {
    if forms.text_as_parts {
        json!([{ "type": "text", "text": text }])
    } else {
        Value::String(text.into())
    }
}

fn call_value(call: &ToolCall, forms: Forms) -> Value {
    let arguments = if forms.arguments_as_text {
        Value::String(call.function.arguments_text())
    } else {
        call.function.arguments_value()
    };
    let mut fields = Map::new();
    if let Some(id) = &call.id {
        fields.insert("id".into(), id.clone().into());
    }
    fields.insert("type".into(), call.kind.clone().into());
    fields.insert("function".into(), json!({ "name": call.function.name, "arguments": arguments }));
    Value::Object(fields)
}

/// Variables of Firefunction v2's template: the tools as text, and the time.
pub(super) const LEGACY: &[&str] = &["functions", "datetime"];

/// The value of a variable in [`LEGACY`].
pub(super) fn legacy(name: &str, request: &RenderRequest<'_>, now: &ZonedDateTime) -> Value {
    match (name, request.tools) {
        ("datetime", _) => Value::String(now.strftime("%b %d %Y %H:%M:%S").to_string()),
        (_, Some(tools)) => Value::String(format!("{tools:#}")),
        (_, None) => Value::String(String::new()),
    }
}

/// The bytes of text in all variables, roughly.
pub(super) fn size(context: &Map<String, Value>) -> usize {
    context.iter().map(|(name, value)| name.len() + value_size(value)).sum()
}

fn value_size(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() + 8,
        Value::Array(items) => items.iter().map(value_size).sum::<usize>() + 8,
        Value::Object(fields) => size(fields) + 8,
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
    }
}
