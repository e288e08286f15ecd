//! Splits a text at special tokens, before any algorithm sees it.
//!
//! The rule: special tokens are tried in order of decreasing length; each one splits every stretch
//! of text that is left, at each of its occurrences from the left. Done literally this costs a pass
//! over the text per token, and vocabularies have thousands of them. Here each position offers its
//! longest token to a queue ordered as the rule says; a position whose token does not fit any more between
//! its neighbours offers the next shorter one. The result is the same, and the cost is that of one
//! pass plus the matches.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::Range;

use super::table::TokenTable;
use super::vocab::{TokenKind, Vocab};

/// A stretch of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fragment {
    /// Text for the algorithm.
    Text(Range<usize>),
    /// A token that stood in the text.
    Token(u32),
}

#[derive(Debug, Clone)]
struct Special {
    id: u32,
    text: Box<[u8]>,
    /// Matched also where special tokens are plain text.
    always: bool,
    strip_left: bool,
    strip_right: bool,
}

/// The special tokens of a vocabulary, ready to be searched for.
#[derive(Debug, Clone)]
pub(crate) struct SpecialSplitter {
    /// Sorted by text.
    specials: Vec<Special>,
    /// For each first byte, the range of `specials` that start with it.
    by_first: Vec<Range<u32>>,
}

/// A token that a position offers: longest first, then lowest id, then leftmost.
type Offer = (usize, Reverse<u32>, Reverse<usize>, u32);

/// What a token takes from the text: itself and the whitespace that it strips.
struct Claim {
    end: usize,
    id: u32,
}

impl SpecialSplitter {
    pub(crate) fn new(vocab: &Vocab) -> SpecialSplitter {
        let mut specials = Vec::new();
        for id in 0..vocab.tokens.len() as u32 {
            let always = match vocab.kind(id) {
                TokenKind::UserDefined => true,
                TokenKind::Control | TokenKind::Unknown => false,
                TokenKind::Normal | TokenKind::Unused | TokenKind::Byte => continue,
            };
            let text: Box<[u8]> = vocab.tokens.text(id).unwrap_or_default().into();
            // Of equal texts the one found by text counts.
            if vocab.tokens.id(&text) == Some(id) {
                specials.push(Special { id, text, always, strip_left: false, strip_right: false });
            }
        }
        specials.sort_unstable_by(|a, b| a.text.cmp(&b.text));
        let edge = |byte: u16| {
            let at = |s: &Special| s.text.first().map_or(0, |&b| u16::from(b)) < byte;
            specials.partition_point(at) as u32
        };
        let by_first = (0..256).map(|byte| edge(byte)..edge(byte + 1)).collect();
        SpecialSplitter { specials, by_first }
    }

    /// Makes all special tokens but those listed take the whitespace that follows them.
    pub(crate) fn strip_right_except(&mut self, table: &TokenTable, except: &[&str]) {
        let except: Vec<u32> = except.iter().filter_map(|t| table.id(t.as_bytes())).collect();
        for special in &mut self.specials {
            special.strip_right = !except.contains(&special.id);
        }
    }

    /// Makes one special token take the whitespace before it.
    pub(crate) fn strip_left(&mut self, text: &str) {
        for special in self.specials.iter_mut().filter(|s| &*s.text == text.as_bytes()) {
            special.strip_left = true;
        }
    }

    /// Splits `text`; control and unknown tokens count only where `parse_special` is set.
    pub(crate) fn split(&self, text: &str, parse_special: bool) -> Vec<Fragment> {
        let text = text.as_bytes();
        let mut offers: BinaryHeap<Offer> = (0..text.len())
            .filter_map(|start| self.offer(text, start, text.len(), parse_special))
            .collect();
        let mut claims: BTreeMap<usize, Claim> = BTreeMap::new();
        while let Some((len, _, Reverse(start), index)) = offers.pop() {
            let taken_until = claims.range(..=start).next_back().map_or(0, |(_, c)| c.end);
            if taken_until > start {
                continue;
            }
            let taken_from = claims.range(start..).next().map_or(text.len(), |(&from, _)| from);
            if start + len > taken_from {
                offers.extend(self.offer(text, start, taken_from, parse_special));
                continue;
            }
            let special = &self.specials[index as usize];
            let (mut from, mut end) = (start, start + len);
            while special.strip_left && from > taken_until && is_space(text[from - 1]) {
                from -= 1;
            }
            while special.strip_right && end < taken_from && is_space(text[end]) {
                end += 1;
            }
            claims.insert(from, Claim { end, id: special.id });
        }
        let mut fragments = Vec::with_capacity(2 * claims.len() + 1);
        let mut at = 0;
        for (from, claim) in claims {
            if at < from {
                fragments.push(Fragment::Text(at..from));
            }
            fragments.push(Fragment::Token(claim.id));
            at = claim.end;
        }
        if at < text.len() {
            fragments.push(Fragment::Text(at..text.len()));
        }
        fragments
    }

    /// The longest special token that starts at `start` and ends by `limit`.
    fn offer(&self, text: &[u8], start: usize, limit: usize, parse_special: bool) -> Option<Offer> {
        let mut range = self.by_first[usize::from(text[start])].clone();
        let mut best = None;
        let mut depth = 1;
        while !range.is_empty() {
            let within = &self.specials[range.start as usize..range.end as usize];
            // A text that ends here is the first of those that it is a prefix of.
            if within[0].text.len() == depth && (parse_special || within[0].always) {
                best = Some((depth, Reverse(within[0].id), Reverse(start), range.start));
            }
            if start + depth == limit {
                break;
            }
            let key = Some(text[start + depth]);
            let low = within.partition_point(|s| s.text.get(depth).copied() < key);
            let high = within.partition_point(|s| s.text.get(depth).copied() <= key);
            range = range.start + low as u32..range.start + high as u32;
            depth += 1;
        }
        best
    }
}

/// Whitespace as the C locale has it.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}
