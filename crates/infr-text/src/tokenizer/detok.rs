//! Tokens to text as they arrive.
//!
//! A token may end inside a character. The bytes of an unfinished character wait for the tokens
//! after it; bytes that can never become one turn into U+FFFD, one for each maximal part as
//! the Unicode standard recommends (section 3.9), which is also what decoding the whole gives.

use std::sync::Arc;

use super::Tokenizer;

/// How tokens become text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DecodeOptions {
    /// Show control tokens by name; otherwise they leave nothing.
    pub render_special: bool,
    /// Drop the space that encoding put before the text, in vocabularies that do so.
    pub trim_space_prefix: bool,
}

/// Turns a stream of tokens into a stream of whole characters.
#[derive(Debug, Clone)]
pub struct Detokenizer {
    tokenizer: Arc<Tokenizer>,
    options: DecodeOptions,
    state: State,
}

impl Detokenizer {
    /// A stream that begins here.
    pub fn new(tokenizer: Arc<Tokenizer>, options: DecodeOptions) -> Detokenizer {
        Detokenizer { tokenizer, options, state: State::default() }
    }

    /// The characters that a token completes, often none.
    pub fn push(&mut self, id: u32) -> String {
        let mut text = String::new();
        self.state.push(&self.tokenizer, self.options, id, &mut text);
        text
    }

    /// Ends the stream: U+FFFD when a character was left unfinished.
    pub fn finish(&mut self) -> String {
        let mut text = String::new();
        self.state.finish(&mut text);
        text
    }
}

#[cfg(test)]
impl Detokenizer {
    /// The bytes that wait for more.
    pub(super) fn held(&self) -> &[u8] {
        &self.state.held
    }
}

/// Where a stream stands.
#[derive(Debug, Clone, Default)]
pub(super) struct State {
    /// The bytes of an unfinished character, three at most.
    held: Vec<u8>,
    /// A piece that was not empty has come.
    begun: bool,
}

impl State {
    pub(super) fn push(
        &mut self,
        tokenizer: &Tokenizer,
        options: DecodeOptions,
        id: u32,
        text: &mut String,
    ) {
        let piece = tokenizer.rendered(id, options);
        if piece.is_empty() {
            return;
        }
        let trim = !self.begun && options.trim_space_prefix && tokenizer.adds_space_prefix();
        self.begun = true;
        let piece = if trim { piece.strip_prefix(b" ").unwrap_or(&piece) } else { &piece };
        self.held.extend_from_slice(piece);
        let keep = self.held.len() - unfinished(&self.held);
        text.push_str(&String::from_utf8_lossy(&self.held[..keep]));
        self.held.drain(..keep);
    }

    pub(super) fn finish(&mut self, text: &mut String) {
        text.push_str(&String::from_utf8_lossy(&self.held));
        self.held.clear();
    }
}

/// How many bytes at the end may be the beginning of a character.
fn unfinished(bytes: &[u8]) -> usize {
    let last = bytes.utf8_chunks().last();
    let invalid = last.map_or(&[][..], |chunk| chunk.invalid());
    // An invalid part at the end is unfinished when it is the end that makes it invalid.
    match std::str::from_utf8(invalid) {
        Err(error) if error.error_len().is_none() => invalid.len(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfinished_is_a_proper_prefix_of_a_character() {
        for (bytes, held) in [
            (&b""[..], 0),
            (b"abc", 0),
            ("é".as_bytes(), 0),
            (b"a\xC3", 1),
            (b"\xE4\xB8", 2),
            (b"\xF0\x9F\x98", 3),
            (b"\xF0\x9F\x98\x80", 0),
            (b"\xF0\x9F\x98\xF0", 1),
            (b"\xFF", 0),
            (b"\x80", 0),
            (b"\xE0\x80", 0),
            (b"\xED\xA0", 0),
        ] {
            assert_eq!(unfinished(bytes), held, "{bytes:x?}");
        }
    }
}
