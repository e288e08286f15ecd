//! Chat templates: a conversation rendered to the text that a model was trained on.
//!
//! Templates are Jinja2 programs out of untrusted files. They run with the settings and names of
//! transformers ([`env`]), with bounded work, and see the conversation in the form that they can
//! take ([`probe`] finds out which, once per template).
//!
//! Reading order: this file, `probe.rs`, `env.rs`, `source.rs`, `json.rs`, `python.rs`,
//! `mutable.rs`.

mod builtin;
mod clock;
mod context;
mod env;
mod json;
mod mutable;
mod probe;
mod python;
mod source;

use std::io;

use minijinja::value::Serde;
use minijinja::{Environment, Value};
use serde_json::Map;

pub use clock::{Clock, FixedClock, SystemClock};
pub use probe::{TemplateFeatures, ThinkingSupport};

use crate::message::Message;
use context::Forms;

/// Why a template could not be compiled or rendered.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// The file's template is not readable text.
    #[error(transparent)]
    Metadata(#[from] infr_gguf::GgufError),
    /// The template is not valid Jinja, or uses something that the engine lacks.
    #[error("the chat template is not valid (line {line}): {message}")]
    Syntax {
        /// The line, from 1; 0 if unknown.
        line: usize,
        /// What is wrong.
        message: String,
    },
    /// The template itself rejected the conversation through `raise_exception`.
    #[error("the model's chat template rejects this conversation: {0}")]
    Raised(String),
    /// The template failed while it ran.
    #[error("the chat template failed (line {line}): {message}")]
    Render {
        /// The line, from 1; 0 if unknown.
        line: usize,
        /// What went wrong.
        message: String,
    },
    /// The template ran longer, or built more text, than any real one needs.
    #[error("the chat template does too much work for this conversation")]
    TooMuchWork,
    /// The rendered text is longer than the limit.
    #[error("the chat template wrote more than {limit} bytes")]
    TooLong {
        /// The most bytes allowed.
        limit: usize,
    },
}

/// The texts of the special tokens that templates print; empty if the model has none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpecialTexts {
    /// `bos_token`.
    pub bos: String,
    /// `eos_token`.
    pub eos: String,
}

/// Bounds on what a template may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TemplateLimits {
    /// Units of work allowed at least; one is an instruction, or about 64 bytes of text.
    pub base_work: u64,
    /// Units of work added per byte of the conversation.
    pub work_per_byte: u64,
    /// Units of work added per pair of messages: templates look back over the conversation.
    pub work_per_pair: u64,
    /// Copies of the whole conversation allowed per message: some templates collect their text in
    /// one variable, which every `~` copies.
    pub copies_per_message: u64,
    /// The most bytes of rendered text, beyond the size of the conversation.
    pub extra_output: usize,
}

/// Work allowed to one of the small conversations that find out what a template supports.
const PROBE_WORK: u64 = 100_000;

impl Default for TemplateLimits {
    fn default() -> Self {
        Self {
            base_work: 2_000_000,
            work_per_byte: 8,
            work_per_pair: 100,
            copies_per_message: 12,
            extra_output: 16 << 20,
        }
    }
}

impl TemplateLimits {
    /// The units of work for a conversation of so many bytes and messages.
    fn work_for(&self, bytes: u64, messages: u64) -> u64 {
        const BYTES_PER_UNIT: u64 = 64;
        let copies = messages.saturating_mul(self.copies_per_message);
        (self.base_work)
            .saturating_add(bytes.saturating_mul(self.work_per_byte))
            .saturating_add(messages.saturating_mul(messages).saturating_mul(self.work_per_pair))
            .saturating_add(copies.saturating_mul(bytes / BYTES_PER_UNIT))
    }
}

/// One conversation to render.
#[derive(Debug, Clone, Default)]
pub struct RenderRequest<'r> {
    /// The conversation.
    pub messages: &'r [Message],
    /// Tool definitions in OpenAI's form, an array.
    pub tools: Option<&'r serde_json::Value>,
    /// Whether the text ends where the assistant's answer starts.
    pub add_generation_prompt: bool,
    /// Thinking on or off, for templates that have a switch; `None` is the template's default.
    pub enable_thinking: Option<bool>,
    /// More variables (`reasoning_effort`, `documents`, …); they cannot replace the ones above.
    pub extra: Map<String, serde_json::Value>,
}

/// A compiled chat template.
#[derive(Debug)]
pub struct ChatTemplate {
    env: Environment<'static>,
    source: String,
    specials: SpecialTexts,
    limits: TemplateLimits,
    forms: Forms,
    features: TemplateFeatures,
    /// Variables of older templates that this one reads.
    legacy: Vec<&'static str>,
}

impl ChatTemplate {
    /// Compiles a template and finds out what it supports.
    pub fn new(source: &str, specials: SpecialTexts) -> Result<Self, TemplateError> {
        let env = env::compile(source)?;
        let reads = env.get_template(env::NAME).map_err(env::to_error)?.undeclared_variables(false);
        let mut template = Self {
            legacy: context::LEGACY.iter().copied().filter(|name| reads.contains(*name)).collect(),
            env,
            source: source.to_owned(),
            specials,
            limits: TemplateLimits { base_work: PROBE_WORK, ..TemplateLimits::default() },
            forms: Forms::default(),
            features: TemplateFeatures::default(),
        };
        template.forms = probe::forms(&template);
        template.features = probe::features(&template);
        template.limits = TemplateLimits::default();
        Ok(template)
    }

    /// The template for models that bring none: ChatML.
    pub fn chatml(specials: SpecialTexts) -> Result<Self, TemplateError> {
        Self::new(builtin::CHATML, specials)
    }

    /// The template that a GGUF file brings, or a built-in one.
    ///
    /// With tools, a variant named `tool_use` is preferred. A file without any template gets
    /// Mistral's format if its vocabulary and depth say so, else ChatML.
    pub fn from_metadata(
        metadata: &infr_gguf::Metadata,
        has_tools: bool,
        specials: SpecialTexts,
    ) -> Result<Self, TemplateError> {
        let named =
            if has_tools { metadata.str("tokenizer.chat_template.tool_use")? } else { None };
        let source = match named {
            Some(source) => Some(source),
            None => metadata.str("tokenizer.chat_template")?,
        };
        if let Some(source) = source {
            return Self::new(source, specials);
        }
        let layers = match metadata.str("general.architecture")? {
            Some(arch) => metadata.u64(&format!("{arch}.block_count"))?,
            None => None,
        };
        if metadata.str("tokenizer.ggml.pre")? == Some("tekken") && layers == Some(40) {
            return Self::new(builtin::MISTRAL_V7_TEKKEN, specials);
        }
        Self::chatml(specials)
    }

    /// The same template under other limits.
    pub fn with_limits(mut self, limits: TemplateLimits) -> Self {
        self.limits = limits;
        self
    }

    /// The template's source.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// What the template supports.
    pub fn features(&self) -> &TemplateFeatures {
        &self.features
    }

    /// Renders a conversation, each message in the form that the template takes.
    pub fn render(
        &self,
        request: &RenderRequest<'_>,
        clock: &dyn Clock,
    ) -> Result<String, TemplateError> {
        let first = self.render_as(request, clock, self.forms);
        let Err(error @ TemplateError::Render { .. }) = first else { return first };
        // What a probe accepted can still fail on other values; another form may not.
        for forms in self.forms.others() {
            if let Ok(text) = self.render_as(request, clock, forms) {
                return Ok(text);
            }
        }
        Err(error)
    }

    fn render_as(
        &self,
        request: &RenderRequest<'_>,
        clock: &dyn Clock,
        forms: Forms,
    ) -> Result<String, TemplateError> {
        let mut context = context::build(request, &self.specials, forms);
        for name in &self.legacy {
            if !context.contains_key(*name) {
                context.insert((*name).into(), context::legacy(name, request, &clock.now()));
            }
        }
        self.render_context(&context, clock)
    }

    /// Renders with exactly these variables, to compare with other implementations.
    pub fn render_context(
        &self,
        context: &Map<String, serde_json::Value>,
        clock: &dyn Clock,
    ) -> Result<String, TemplateError> {
        let size = context::size(context);
        let n_messages = context.get("messages").and_then(|m| m.as_array()).map_or(0, Vec::len);
        let work = self.limits.work_for(size as u64, n_messages as u64);
        let mut env = self.env.clone();
        env.set_fuel(Some(work));
        let template = env.get_template(env::NAME).map_err(env::to_error)?;
        let mut values: Vec<(String, Value)> =
            context.iter().map(|(name, value)| (name.clone(), Value::from(Serde(value)))).collect();
        values.push(("strftime_now".into(), clock::strftime_now(clock.now())));
        let limit = self.limits.extra_output.saturating_add(size.saturating_mul(4));
        let mut out = Bounded { bytes: Vec::new(), limit, exceeded: false };
        let result = template.render_captured_to(Value::from_pairs(values), &mut out);
        let failure = result.err();
        if out.exceeded {
            return Err(TemplateError::TooLong { limit });
        }
        if let Some(error) = failure {
            return Err(env::to_error(error));
        }
        Ok(String::from_utf8_lossy(&out.bytes).into_owned())
    }
}

/// Collects rendered text up to a limit.
struct Bounded {
    bytes: Vec<u8>,
    limit: usize,
    exceeded: bool,
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.limit {
            self.exceeded = true;
            return Err(io::Error::other("the rendered text is too long"));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Removes the BOS text that a template printed, where the tokenizer adds the token itself.
pub fn strip_leading_bos<'t>(rendered: &'t str, bos: &str, tokenizer_adds_bos: bool) -> &'t str {
    if tokenizer_adds_bos && !bos.is_empty() {
        rendered.strip_prefix(bos).unwrap_or(rendered)
    } else {
        rendered
    }
}

#[cfg(test)]
mod tests;
