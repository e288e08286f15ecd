//! Chat messages as templates see them: the OpenAI shape, with reasoning.
//!
//! A [`Message`] keeps what the client sent; which form of it a template is given (arguments as
//! an object or as text, content as text or as parts) is decided in [`crate::template`].

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One message of a conversation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// `system`, `developer`, `user`, `assistant` or `tool`; templates may know more.
    pub role: String,
    /// What was said; assistants that only call tools have none.
    #[serde(default)]
    pub content: Option<Content>,
    /// The assistant's thinking that led to this message.
    #[serde(default, alias = "reasoning", skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// Tools that the assistant called in this message.
    #[serde(default, deserialize_with = "null_as_empty", skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// On a `tool` message: the call that it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// The speaker's name, or on a `tool` message the tool's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// A message's content: plain text, or typed parts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Content {
    /// Plain text.
    Text(String),
    /// Typed parts, in order.
    Parts(Vec<Part>),
}

/// One part of a message's content.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// `text`, `image`, `image_url`, …
    #[serde(rename = "type")]
    pub kind: String,
    /// The text of a `text` part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Every other field, as it came.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// A call of one tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Names the call for the `tool` message that answers it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// `function`, the only kind there is.
    #[serde(rename = "type", default = "function_kind")]
    pub kind: String,
    /// The function and its arguments.
    pub function: FunctionCall,
}

/// The function that a [`ToolCall`] names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FunctionCall {
    /// The tool's name.
    pub name: String,
    /// JSON text (as OpenAI's clients send it) or the object itself.
    #[serde(default)]
    pub arguments: Value,
}

fn function_kind() -> String {
    "function".into()
}

fn null_as_empty<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<ToolCall>, D::Error> {
    Ok(Option::<Vec<ToolCall>>::deserialize(from)?.unwrap_or_default())
}

impl Message {
    /// A message of plain text.
    pub fn text(role: impl Into<String>, text: impl Into<String>) -> Self {
        Self { role: role.into(), content: Some(Content::Text(text.into())), ..Self::default() }
    }
}

impl Content {
    /// Whether every part is text.
    pub fn is_text(&self) -> bool {
        match self {
            Self::Text(_) => true,
            Self::Parts(parts) => parts.iter().all(|part| part.kind == "text"),
        }
    }

    /// The text parts, one per line; other parts are left out.
    pub fn to_text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Parts(parts) => {
                let texts: Vec<&str> = parts.iter().filter_map(|p| p.text.as_deref()).collect();
                texts.join("\n")
            }
        }
    }
}

impl From<&str> for Content {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl FunctionCall {
    /// The arguments as a JSON value; text that is not JSON stays a string.
    pub fn arguments_value(&self) -> Value {
        match &self.arguments {
            Value::String(text) if text.trim().is_empty() => Value::Object(Map::new()),
            Value::String(text) => {
                serde_json::from_str(text).unwrap_or_else(|_| self.arguments.clone())
            }
            Value::Null => Value::Object(Map::new()),
            other => other.clone(),
        }
    }

    /// The arguments as JSON text.
    pub fn arguments_text(&self) -> String {
        match &self.arguments {
            Value::String(text) => text.clone(),
            Value::Null => "{}".into(),
            other => other.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_clients_send() {
        let text = r#"{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function",
            "function":{"name":"f","arguments":"{\"b\": 1, \"a\": [2]}"}}]}"#;
        let message: Message = serde_json::from_str(text).unwrap();
        assert_eq!(message.content, None);
        let arguments = message.tool_calls[0].function.arguments_value();
        assert_eq!(arguments.to_string(), r#"{"b":1,"a":[2]}"#);
        let text = r#"{"role":"user","content":[{"type":"text","text":"a"},
            {"type":"image_url","image_url":{"url":"x"}},{"type":"text","text":"b"}],
            "tool_calls":null}"#;
        let message: Message = serde_json::from_str(text).unwrap();
        let content = message.content.unwrap();
        assert!(!content.is_text());
        assert_eq!(content.to_text(), "a\nb");
        let again = serde_json::to_string(&content).unwrap();
        assert!(again.contains(r#""image_url":{"url":"x"}"#), "{again}");
    }

    #[test]
    fn arguments_that_are_not_json_stay_text() {
        let call = FunctionCall { name: "f".into(), arguments: Value::String("{oops".into()) };
        assert_eq!(call.arguments_value(), Value::String("{oops".into()));
        assert_eq!(call.arguments_text(), "{oops");
    }
}
