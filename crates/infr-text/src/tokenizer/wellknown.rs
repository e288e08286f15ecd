//! Tokens that files leave unnamed and that are known by their text.
//!
//! Converters do not always write which tokens end a turn or mark a gap to fill in, so these lists
//! stand in for the missing keys. Each list is tried in order.

/// End of turn.
pub(super) const EOT: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "<｜end▁of▁sentence｜>",
    "<end_of_utterance>",
];

/// End of message: the model waits for a tool's result.
pub(super) const EOM: &[&str] = &["<|eom_id|>"];

/// Before the text that precedes the gap.
pub(super) const FIM_PREFIX: &[&str] = &[
    "<|fim_prefix|>",
    "<fim-prefix>",
    "<fim_prefix>",
    "<｜fim▁begin｜>",
    "<PRE>",
    "▁<PRE>",
    "<|code_prefix|>",
    "<|prefix|>",
];

/// Before the text that follows the gap.
pub(super) const FIM_SUFFIX: &[&str] = &[
    "<|fim_suffix|>",
    "<fim-suffix>",
    "<fim_suffix>",
    "<｜fim▁hole｜>",
    "<SUF>",
    "▁<SUF>",
    "<|code_suffix|>",
    "<|suffix|>",
];

/// Where the model is to write the gap's text.
pub(super) const FIM_MIDDLE: &[&str] = &[
    "<|fim_middle|>",
    "<fim-middle>",
    "<fim_middle>",
    "<｜fim▁end｜>",
    "<MID>",
    "▁<MID>",
    "<|code_middle|>",
    "<|middle|>",
];

/// Padding of gap examples.
pub(super) const FIM_PAD: &[&str] = &["<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"];

/// Before a repository's name.
pub(super) const FIM_REPO: &[&str] =
    &["<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"];

/// Between files.
pub(super) const FIM_FILE: &[&str] = &["<|file_sep|>"];

/// Ends a generation wherever it occurs, beside the texts of [`EOT`].
pub(super) const EOG: &[&str] = &[
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "</s>",
    "<|eom_id|>",
    "[EOS]",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "[e~[",
];

/// Marks of the harmony format, which have to be rendered for its parser to see them.
pub(super) const ALWAYS_RENDERED: &[&str] =
    &["<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"];
