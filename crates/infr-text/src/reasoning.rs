//! Splits a model's thinking from its answer while the text streams in.
//!
//! The result depends on the text alone, never on how it was cut into pieces: what could be the
//! start of a marker, or blanks that a marker may follow, is held until the next piece decides.

/// The markup that a model puts around its thinking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReasoningStyle {
    /// An opening and a closing mark.
    Tags(&'static ReasoningTags),
    /// gpt-oss: messages with a header that names a channel (the harmony format).
    Harmony,
}

/// Marks around thinking.
#[derive(Debug, PartialEq, Eq)]
pub struct ReasoningTags {
    /// Starts the thinking.
    pub open: &'static str,
    /// Ends it.
    pub close: &'static str,
    /// The marks are special tokens: thinking may start again later in the answer.
    pub repeats: bool,
}

/// The tags known, by the model family that they come from; the first that a template names wins.
pub static TAGS: &[ReasoningTags] = &[
    // Gemma 4.
    ReasoningTags { open: "<|channel>thought", close: "<channel|>", repeats: true },
    // Mistral.
    ReasoningTags { open: "[THINK]", close: "[/THINK]", repeats: true },
    // Cohere.
    ReasoningTags { open: "<|START_THINKING|>", close: "<|END_THINKING|>", repeats: true },
    // Apertus.
    ReasoningTags { open: "<|inner_prefix|>", close: "<|inner_suffix|>", repeats: true },
    // Seed-OSS.
    ReasoningTags { open: "<seed:think>", close: "</seed:think>", repeats: false },
    // MiniMax M3.
    ReasoningTags { open: "<mm:think>", close: "</mm:think>", repeats: false },
    // DeepSeek, Qwen and most others.
    ReasoningTags { open: "<think>", close: "</think>", repeats: false },
];

impl ReasoningStyle {
    /// The style that a template's source speaks of.
    pub fn detect(template: &str) -> Option<Self> {
        if template.contains("<|channel|>") && template.contains("<|message|>") {
            return Some(Self::Harmony);
        }
        let named = |tags: &&ReasoningTags| {
            let open = tags.open.strip_suffix("thought").unwrap_or(tags.open);
            template.contains(open) || template.contains(tags.close)
        };
        TAGS.iter().find(named).map(Self::Tags)
    }

    /// Whether a prompt ends inside thinking, so that the answer starts there.
    pub fn opened_by(self, prompt: &str) -> bool {
        match self {
            Self::Tags(tags) => prompt.trim_end().ends_with(tags.open),
            Self::Harmony => prompt.ends_with("<|channel|>analysis<|message|>"),
        }
    }
}

/// What a piece of text added.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReasoningDelta {
    /// Thinking.
    pub reasoning: String,
    /// The answer.
    pub content: String,
    /// Tool calls of the harmony format, with their markup, for the tool parser.
    pub calls: String,
}

/// Where the text at hand belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Before the first mark or word.
    Start,
    Reasoning,
    Content,
    /// A harmony message to a tool.
    Call,
    /// A harmony header, up to `<|message|>`.
    Header,
}

/// The splitter; one per answer.
#[derive(Debug)]
pub struct ReasoningSplitter {
    style: ReasoningStyle,
    part: Part,
    /// Text that the next piece decides about.
    held: String,
    /// Blanks are dropped where a part begins.
    at_start: bool,
    /// The opening mark is dropped once more: models repeat what the prompt ended with.
    may_reopen: bool,
}

const MESSAGE: &str = "<|message|>";
const START: &str = "<|start|>";
const CHANNEL: &str = "<|channel|>";
/// Marks that end a harmony message.
const ENDS: &[&str] = &["<|end|>", "<|return|>", "<|call|>", START, CHANNEL];

impl ReasoningSplitter {
    /// A splitter for an answer whose prompt ends before any thinking.
    pub fn new(style: ReasoningStyle) -> Self {
        Self { style, part: Part::Start, held: String::new(), at_start: true, may_reopen: false }
    }

    /// A splitter for the answer to `prompt`, which may have opened the thinking already.
    pub fn after(style: ReasoningStyle, prompt: &str) -> Self {
        let mut splitter = Self::new(style);
        if style.opened_by(prompt) {
            splitter.part = Part::Reasoning;
            splitter.may_reopen = true;
        }
        splitter
    }

    /// Takes the next piece of the answer.
    pub fn push(&mut self, text: &str) -> ReasoningDelta {
        self.held.push_str(text);
        let mut delta = ReasoningDelta::default();
        while self.step(&mut delta, false) {}
        delta
    }

    /// Ends the answer: what is held is given out as what it is.
    pub fn finish(&mut self) -> ReasoningDelta {
        let mut delta = ReasoningDelta::default();
        while self.step(&mut delta, true) {}
        delta
    }

    /// Decides about the next stretch of held text; false when it needs more.
    fn step(&mut self, delta: &mut ReasoningDelta, last: bool) -> bool {
        match self.style {
            ReasoningStyle::Tags(tags) => self.step_tags(tags, delta, last),
            ReasoningStyle::Harmony => self.step_harmony(delta, last),
        }
    }

    fn step_tags(
        &mut self,
        tags: &'static ReasoningTags,
        delta: &mut ReasoningDelta,
        last: bool,
    ) -> bool {
        match self.part {
            Part::Start => {
                let text = self.held.trim_start();
                if let Some(rest) = text.strip_prefix(tags.open) {
                    self.held = rest.to_owned();
                    self.enter(Part::Reasoning);
                    return true;
                }
                if !last && tags.open.starts_with(text) {
                    return false;
                }
                // Leading blanks belong to an answer that has no thinking.
                self.part = Part::Content;
                self.at_start = false;
                !self.held.is_empty()
            }
            Part::Reasoning => {
                if std::mem::take(&mut self.may_reopen) {
                    let text = self.held.trim_start();
                    if let Some(rest) = text.strip_prefix(tags.open) {
                        self.held = rest.to_owned();
                        return true;
                    }
                    self.may_reopen = !last && tags.open.starts_with(text);
                    if self.may_reopen {
                        return false;
                    }
                }
                self.until(&[tags.close], delta, last).is_some_and(|_| {
                    self.enter(Part::Content);
                    true
                })
            }
            Part::Content if tags.repeats => {
                self.until(&[tags.open], delta, last).is_some_and(|_| {
                    self.enter(Part::Reasoning);
                    true
                })
            }
            _ => {
                self.until(&[], delta, last);
                false
            }
        }
    }

    fn step_harmony(&mut self, delta: &mut ReasoningDelta, last: bool) -> bool {
        match self.part {
            Part::Start => {
                let text = self.held.trim_start();
                let marks = [CHANNEL, START, MESSAGE];
                if marks.iter().any(|mark| text.starts_with(mark)) {
                    self.part = Part::Header;
                    return true;
                }
                // The prompt ends after `<|start|>assistant`; a recipient may follow at once.
                let recipient = " to=";
                let undecided = marks.iter().any(|mark| mark.starts_with(text))
                    || recipient.starts_with(self.held.as_str());
                if self.held.starts_with(recipient) {
                    self.part = Part::Header;
                    return true;
                }
                if undecided && !last {
                    return false;
                }
                self.part = Part::Content;
                self.at_start = false;
                !self.held.is_empty()
            }
            Part::Header => {
                let Some(at) = self.held.find(MESSAGE) else {
                    if last {
                        // A header that never became a message says nothing.
                        self.held.clear();
                    }
                    return false;
                };
                let header = self.held[..at].to_owned();
                self.held.drain(..at + MESSAGE.len());
                let part = channel_of(&header);
                if part == Part::Call {
                    delta.calls.push_str(&header);
                    delta.calls.push_str(MESSAGE);
                }
                self.enter(part);
                true
            }
            Part::Reasoning | Part::Content | Part::Call => {
                let was = self.part;
                let Some(mark) = self.until(ENDS, delta, last) else { return false };
                if was == Part::Call {
                    delta.calls.push_str("<|call|>");
                }
                if mark == START || mark == CHANNEL {
                    self.held.insert_str(0, mark);
                    self.part = Part::Header;
                } else {
                    self.part = Part::Start;
                }
                true
            }
        }
    }

    fn enter(&mut self, part: Part) {
        self.part = part;
        self.at_start = true;
    }

    /// Gives out text up to the first of `marks`, which is consumed and returned.
    fn until(
        &mut self,
        marks: &[&'static str],
        delta: &mut ReasoningDelta,
        last: bool,
    ) -> Option<&'static str> {
        if self.at_start && self.part != Part::Call {
            let blank = self.held.len() - self.held.trim_start().len();
            self.held.drain(..blank);
            if self.held.is_empty() {
                return None;
            }
        }
        let first = marks
            .iter()
            .filter_map(|&mark| self.held.find(mark).map(|at| (at, mark)))
            .min_by_key(|&(at, mark)| (at, std::cmp::Reverse(mark.len())));
        let (end, mark) = match first {
            Some((at, mark)) => (at, Some(mark)),
            None if last => (self.held.len(), None),
            None => (self.settled(marks), None),
        };
        let text: String = self.held.drain(..end).collect();
        let text = if mark.is_some() || last { self.closed(&text) } else { &text };
        if !text.is_empty() {
            self.at_start = false;
        }
        match self.part {
            Part::Reasoning => delta.reasoning.push_str(text),
            Part::Call => delta.calls.push_str(text),
            Part::Start | Part::Content | Part::Header => delta.content.push_str(text),
        }
        if let Some(mark) = mark {
            self.held.drain(..mark.len());
        }
        mark
    }

    /// A part's last text: thinking loses its trailing blanks.
    fn closed<'t>(&self, text: &'t str) -> &'t str {
        if self.part == Part::Reasoning { text.trim_end() } else { text }
    }

    /// How much of the held text is certain to be neither mark nor trailing blanks of thinking.
    fn settled(&self, marks: &[&str]) -> usize {
        let held = self.held.as_str();
        let longest = marks.iter().map(|mark| mark.len()).max().unwrap_or(0);
        let mut end = held.len();
        for (at, _) in held.char_indices().rev() {
            if held.len() - at >= longest {
                break;
            }
            if marks.iter().any(|mark| mark.starts_with(&held[at..])) {
                end = at;
            }
        }
        if self.part == Part::Reasoning { held[..end].trim_end().len() } else { end }
    }
}

/// Where a harmony message belongs, by its header.
fn channel_of(header: &str) -> Part {
    if header.contains(" to=") {
        return Part::Call;
    }
    let channel = header.rsplit(CHANNEL).next().unwrap_or("").trim_start();
    if header.contains(CHANNEL) && channel.starts_with("analysis") {
        Part::Reasoning
    } else {
        Part::Content
    }
}

#[cfg(test)]
mod tests;
