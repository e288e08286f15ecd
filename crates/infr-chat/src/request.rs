//! What a caller asks for.

use infr_backend::SampleParams;
use infr_models::SamplingDefaults;
use infr_text::message::Message;

/// What the model is to continue.
#[derive(Debug, Clone, PartialEq)]
pub enum Prompt {
    /// A conversation, rendered by the model's template.
    Messages(Vec<Message>),
    /// Text as it is.
    Raw(String),
}

/// One request.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatRequest {
    /// What to continue.
    pub prompt: Prompt,
    /// Tool definitions, an array in OpenAI's form.
    pub tools: Option<serde_json::Value>,
    /// How tokens are drawn, where the caller says so.
    pub sampling: SamplingOverrides,
    /// The most new tokens; `None` means until the context is full.
    pub max_tokens: Option<u32>,
    /// Texts that end the answer and are not part of it.
    pub stop: Vec<String>,
    /// Thinking on or off, for templates that have a switch.
    pub think: Option<bool>,
}

impl ChatRequest {
    /// A request with the model's own sampling and no limit.
    pub fn new(prompt: Prompt) -> ChatRequest {
        ChatRequest {
            prompt,
            tools: None,
            sampling: SamplingOverrides::default(),
            max_tokens: None,
            stop: Vec::new(),
            think: None,
        }
    }
}

/// Sampling settings that somebody named; the rest comes from the model.
#[derive(Debug, Clone, Default, PartialEq)]
#[allow(missing_docs)]
pub struct SamplingOverrides {
    pub temperature: Option<f32>,
    pub top_k: Option<u32>,
    pub top_p: Option<f32>,
    pub min_p: Option<f32>,
    pub repeat_penalty: Option<f32>,
    pub presence_penalty: Option<f32>,
    pub frequency_penalty: Option<f32>,
    pub seed: Option<u64>,
    pub logit_bias: Vec<(u32, f32)>,
}

impl SamplingOverrides {
    /// The parameters of a request: what was named, else the model's, else neutral.
    pub fn over(&self, model: &SamplingDefaults) -> SampleParams {
        let neutral = SampleParams::default();
        SampleParams {
            temperature: self.temperature.or(model.temperature).unwrap_or(neutral.temperature),
            top_k: self.top_k.or(model.top_k).unwrap_or(neutral.top_k),
            top_p: self.top_p.or(model.top_p).unwrap_or(neutral.top_p),
            min_p: self.min_p.or(model.min_p).unwrap_or(neutral.min_p),
            repeat_penalty: self
                .repeat_penalty
                .or(model.repeat_penalty)
                .unwrap_or(neutral.repeat_penalty),
            presence_penalty: self.presence_penalty.unwrap_or(neutral.presence_penalty),
            frequency_penalty: self.frequency_penalty.unwrap_or(neutral.frequency_penalty),
            seed: self.seed.unwrap_or(neutral.seed),
            logit_bias: self.logit_bias.clone(),
            ..neutral
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_settings_win_over_the_models() {
        let model = SamplingDefaults {
            temperature: Some(0.6),
            top_k: Some(20),
            ..SamplingDefaults::default()
        };
        let named = SamplingOverrides { temperature: Some(0.0), ..SamplingOverrides::default() };
        let params = named.over(&model);
        assert_eq!((params.temperature, params.top_k, params.top_p), (0.0, 20, 1.0));
    }
}
