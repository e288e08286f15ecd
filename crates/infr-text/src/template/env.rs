//! The engine as chat templates expect it: Jinja2 with the settings and names of transformers.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::ValueKind;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior, Value};

use super::{TemplateError, json, mutable, python, source};

/// The one template's name, as errors show it.
pub(super) const NAME: &str = "chat_template";

/// What `raise_exception` was given; carried inside the engine's error.
#[derive(Debug)]
struct Raised(String);

impl std::fmt::Display for Raised {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

/// An engine that holds `template`, compiled.
pub(super) fn compile(template: &str) -> Result<Environment<'static>, TemplateError> {
    let mut env = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    env.set_syntax(syntax.map_err(to_error)?);
    env.set_auto_escape_callback(|_| AutoEscape::None);
    env.set_undefined_behavior(UndefinedBehavior::Lenient);
    env.set_unknown_method_callback(python::method);
    env.set_debug(false);
    env.add_filter("tojson", json::tojson);
    env.add_filter("from_json", json::from_json);
    env.add_filter("indent", python::indent);
    // Escaping is off, so a safe string is the string.
    env.add_filter("safe", |value: Value| value);
    // Jinja2 asks for a length and for items: text and dicts have both.
    env.add_test("sequence", |value: &Value| {
        value.is_undefined()
            || matches!(value.kind(), ValueKind::Seq | ValueKind::String | ValueKind::Map)
    });
    env.add_function("raise_exception", raise_exception);
    env.add_function(source::LIST, mutable::new_list);
    env.add_function(source::DICT, mutable::new_dict);
    env.add_function(source::KEPT, mutable::kept);
    env.add_template_owned(NAME, source::prepare(template)).map_err(to_error)?;
    Ok(env)
}

fn raise_exception(message: &Value) -> Result<Value, Error> {
    let message = message.to_string();
    Err(Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Raised(message)))
}

/// What a failure means to the caller.
pub(super) fn to_error(error: Error) -> TemplateError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(inner) = cause {
        if let Some(Raised(message)) = inner.downcast_ref() {
            return TemplateError::Raised(message.clone());
        }
        if let Some(inner) = inner.downcast_ref::<Error>()
            && inner.kind() == ErrorKind::OutOfFuel
        {
            return TemplateError::TooMuchWork;
        }
        cause = inner.source();
    }
    let mut message = error.kind().to_string();
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(inner) = cause {
        if let Some(detail) = inner.downcast_ref::<Error>().and_then(Error::detail) {
            message = format!("{message}: {detail}");
        }
        cause = inner.source();
    }
    let line = error.line().unwrap_or(0);
    match error.kind() {
        ErrorKind::SyntaxError => TemplateError::Syntax { line, message },
        _ => TemplateError::Render { line, message },
    }
}
