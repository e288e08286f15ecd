//! Templates for files that bring none.

/// `<|im_start|>role`, the content, `<|im_end|>`.
pub(super) const CHATML: &str = "\
{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\\n' + (message.content or '') + '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
";

/// Mistral's v7 format for tekken vocabularies.
pub(super) const MISTRAL_V7_TEKKEN: &str = "\
{{- bos_token -}}
{%- for message in messages -%}
{%- if message.role in ['system', 'developer'] -%}
{{- '[SYSTEM_PROMPT]' + (message.content or '') + '[/SYSTEM_PROMPT]' -}}
{%- elif message.role == 'user' -%}
{{- '[INST]' + (message.content or '') + '[/INST]' -}}
{%- else -%}
{{- (message.content or '') + eos_token -}}
{%- endif -%}
{%- endfor -%}
";
