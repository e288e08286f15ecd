//! From a request to a stream: render, tokenise, submit.

use std::sync::Arc;

use infr_engine::Request;
use infr_text::message::{Content, Message};
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
        let folded = (!template.features().system_role).then(|| fold_system(messages));
        let text = self.render_with(template, folded.as_deref().unwrap_or(messages), request)?;
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

/// The conversation with its opening system messages put before the first user message, for
/// templates that know no system role.
fn fold_system(messages: &[Message]) -> Vec<Message> {
    let is_system = |m: &Message| m.role == "system" || m.role == "developer";
    let text = |m: &Message| m.content.as_ref().map(Content::to_text).unwrap_or_default();
    let split = messages.iter().position(|m| !is_system(m)).unwrap_or(messages.len());
    let (system, rest) = messages.split_at(split);
    let mut folded = rest.to_vec();
    let mut opening: Vec<String> = system.iter().map(text).collect();
    match folded.first_mut() {
        Some(first) if first.role == "user" && !system.is_empty() => {
            opening.push(text(first));
            first.content = Some(Content::Text(opening.join("\n\n")));
        }
        _ if !system.is_empty() => folded.insert(0, Message::text("user", opening.join("\n\n"))),
        _ => {}
    }
    folded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_messages_fold_into_the_first_user_message() {
        let messages = [
            Message::text("system", "Be brief."),
            Message::text("user", "Hi"),
            Message::text("assistant", "Hello"),
        ];
        let folded = fold_system(&messages);
        assert_eq!(folded.len(), 2);
        assert_eq!(folded[0], Message::text("user", "Be brief.\n\nHi"));
        assert_eq!(fold_system(&messages[1..]), messages[1..]);
        assert_eq!(fold_system(&messages[..1]), [Message::text("user", "Be brief.")]);
    }
}
