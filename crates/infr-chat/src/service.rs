//! From a request to a stream: render, tokenise, submit.

use std::sync::Arc;

use infr_engine::Request;
use infr_text::message::Message;
use infr_text::reasoning::{ReasoningSplitter, ReasoningStyle};
use infr_text::template::{ChatTemplate, RenderRequest, SystemClock, strip_leading_bos};
use infr_text::tokenizer::EncodeOptions;

use crate::error::ChatError;
use crate::load::ChatModel;
use crate::request::{ChatRequest, Prompt};
use crate::stream::{ChatStream, Parts};

impl ChatModel {
    /// Starts to answer.
    ///
    /// # Errors
    /// When the template rejects the conversation. Failures of the engine come in the stream.
    pub fn chat(&self, request: &ChatRequest) -> Result<ChatStream, ChatError> {
        let (text, style) = self.render(request)?;
        let options = EncodeOptions { add_special: true, parse_special: true };
        let prompt = self.tokenizer.encode(&text, options);
        tracing::debug!(tokens = prompt.len(), "prompt: {text:?}");
        let mut sample = request.sampling.over(&self.info.sampling);
        let suppressed = self.tokenizer.suppressed_ids().iter();
        sample.logit_bias.extend(suppressed.map(|&id| (id, f32::NEG_INFINITY)));
        let mut work = Request::new(prompt, request.max_tokens.unwrap_or(u32::MAX));
        work.sample = sample;
        work.stop_tokens = self.tokenizer.eog_ids().to_vec();
        let parts = Parts {
            tokenizer: Arc::clone(&self.tokenizer),
            splitter: style.map(|s| ReasoningSplitter::after(s, &text)),
            stop: request.stop.clone(),
        };
        Ok(ChatStream::new(self.engine.submit(work), parts))
    }

    /// The prompt's text, and the markup of thinking that the answer may contain.
    ///
    /// # Errors
    /// When the template rejects the conversation.
    pub fn render(
        &self,
        request: &ChatRequest,
    ) -> Result<(String, Option<ReasoningStyle>), ChatError> {
        let messages = match &request.prompt {
            Prompt::Raw(text) => return Ok((text.clone(), None)),
            Prompt::Messages(messages) => messages,
        };
        let template = self.template_for(request)?;
        let text = self.render_with(template, messages, request)?;
        Ok((text, template.features().thinking.style))
    }

    fn template_for(&self, request: &ChatRequest) -> Result<&ChatTemplate, ChatError> {
        if let (Some(template), Some(_)) = (&self.tool_template, &request.tools) {
            return Ok(template);
        }
        self.template.as_ref().map_err(|e| ChatError::BrokenTemplate(Arc::clone(e)))
    }

    fn render_with(
        &self,
        template: &ChatTemplate,
        messages: &[Message],
        request: &ChatRequest,
    ) -> Result<String, ChatError> {
        let render = RenderRequest {
            messages,
            tools: request.tools.as_ref(),
            add_generation_prompt: true,
            enable_thinking: request.think,
            ..RenderRequest::default()
        };
        let text = template.render(&render, &SystemClock)?;
        let bos = self.tokenizer.bos().and_then(|id| self.tokenizer.piece(id));
        let bos = bos.unwrap_or_default();
        Ok(strip_leading_bos(&text, &bos, self.tokenizer.adds_bos()).to_string())
    }
}
