//! The merge loop that byte-pair encoding and SentencePiece share.
//!
//! A text starts as a list of symbols. The adjacent pair of lowest rank is merged, the leftmost of
//! equal ones first, until no pair has a rank (Sennrich et al., "Neural Machine Translation of Rare
//! Words with Subword Units", 2016). A heap of candidates keeps this at O(n log n): entries are
//! never removed when a neighbour changes, but recognised as stale when they come up.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

/// A symbol that no vocabulary entry and no merge knows; it merges with nothing.
pub(crate) const UNKNOWN: u32 = u32::MAX;

const NONE: u32 = u32::MAX;

/// What a pair of symbols becomes, and how early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pair {
    /// Lower ranks are merged first.
    pub(crate) rank: u32,
    /// The symbol that the two become.
    pub(crate) id: u32,
}

/// A stretch of the text that is one symbol.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Symbol {
    pub(crate) id: u32,
    start: u32,
    end: u32,
    prev: u32,
    next: u32,
    /// What this symbol and the next one become; nothing for symbols that were merged away.
    pair: Option<Pair>,
}

impl Symbol {
    /// The bytes of the text that the symbol covers.
    pub(crate) fn range(&self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    /// The bytes that this symbol and its right neighbour cover.
    pub(crate) fn range_with(&self, right: &Symbol) -> Range<usize> {
        self.start as usize..right.end as usize
    }
}

/// The working memory of the loop, kept from word to word.
#[derive(Debug, Default)]
pub(crate) struct Merger {
    symbols: Vec<Symbol>,
    queue: BinaryHeap<Reverse<(u32, u32)>>,
}

impl Merger {
    /// Forgets the previous text.
    pub(crate) fn clear(&mut self) {
        self.symbols.clear();
        self.queue.clear();
    }

    /// Appends a symbol that covers the next `len` bytes. A text stays below 4 GiB.
    pub(crate) fn push(&mut self, id: u32, len: usize) {
        let start = self.symbols.last().map_or(0, |s| s.end);
        let idx = self.symbols.len() as u32;
        if let Some(last) = self.symbols.last_mut() {
            last.next = idx;
        }
        let prev = idx.wrapping_sub(1);
        let end = start + len as u32;
        self.symbols.push(Symbol { id, start, end, prev, next: NONE, pair: None });
    }

    /// Merges until `pair` knows no two neighbours.
    pub(crate) fn run(&mut self, mut pair: impl FnMut(&Symbol, &Symbol) -> Option<Pair>) {
        for idx in 0..self.symbols.len() as u32 {
            self.consider(idx, &mut pair);
        }
        while let Some(Reverse((rank, idx))) = self.queue.pop() {
            let left = self.symbols[idx as usize];
            let Some(found) = left.pair.filter(|p| p.rank == rank) else { continue };
            let right = &mut self.symbols[left.next as usize];
            right.pair = None;
            let (end, next) = (right.end, right.next);
            if next != NONE {
                self.symbols[next as usize].prev = idx;
            }
            let left = &mut self.symbols[idx as usize];
            (left.id, left.end, left.next) = (found.id, end, next);
            let prev = left.prev;
            self.consider(idx, &mut pair);
            if prev != NONE {
                self.consider(prev, &mut pair);
            }
        }
    }

    /// The symbols that are left, in the order of the text.
    pub(crate) fn symbols(&self) -> impl Iterator<Item = &Symbol> + '_ {
        let mut at = 0;
        std::iter::from_fn(move || {
            let symbol = self.symbols.get(at)?;
            at = symbol.next as usize;
            Some(symbol)
        })
    }

    /// Looks up what the symbol becomes with its right neighbour, and queues it.
    fn consider(&mut self, idx: u32, pair: &mut impl FnMut(&Symbol, &Symbol) -> Option<Pair>) {
        let left = &self.symbols[idx as usize];
        let found = self.symbols.get(left.next as usize).and_then(|right| pair(left, right));
        self.symbols[idx as usize].pair = found;
        if let Some(found) = found {
            self.queue.push(Reverse((found.rank, idx)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Merges single bytes of `text`; ranks are by (left, right) texts in `rules`.
    fn merged(text: &str, rules: &[(&str, &str)]) -> Vec<String> {
        let mut merger = Merger::default();
        text.bytes().for_each(|b| merger.push(b.into(), 1));
        merger.run(|l, r| {
            let found = (&text[l.range()], &text[r.range()]);
            let rank = rules.iter().position(|&rule| rule == found)? as u32;
            Some(Pair { rank, id: 1000 + rank })
        });
        merger.symbols().map(|s| text[s.range()].to_owned()).collect()
    }

    /// The definition: scan for the best pair, merge it, start again.
    fn merged_by_scanning(text: &str, rules: &[(&str, &str)]) -> Vec<String> {
        let mut parts: Vec<String> = text.chars().map(String::from).collect();
        loop {
            let rank_at = |i: usize| {
                let rank = rules.iter().position(|&(l, r)| l == parts[i] && r == parts[i + 1])?;
                Some((rank, i))
            };
            let best = (0..parts.len().saturating_sub(1)).filter_map(rank_at).min();
            let Some((_, i)) = best else { return parts };
            let right = parts.remove(i + 1);
            parts[i] += &right;
        }
    }

    #[test]
    fn lowest_rank_first_then_leftmost() {
        assert_eq!(merged("aaa", &[("a", "a")]), ["aa", "a"]);
        assert_eq!(merged("abc", &[("b", "c"), ("a", "b")]), ["a", "bc"]);
        assert_eq!(merged("abc", &[("b", "c"), ("a", "bc")]), ["abc"]);
        assert_eq!(merged("", &[("a", "a")]), [""; 0]);
    }

    #[test]
    fn equals_the_definition() {
        let rules = [
            ("b", "a"),
            ("a", "a"),
            ("aa", "b"),
            ("ba", "ba"),
            ("a", "c"),
            ("aa", "aa"),
            ("c", "aab"),
            ("baba", "ac"),
            ("ac", "ac"),
        ];
        let mut state = 7u64;
        for _ in 0..2000 {
            let mut text = String::new();
            for _ in 0..state % 23 {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                text.push(['a', 'b', 'c'][(state >> 33) as usize % 3]);
            }
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            state ^= state >> 29;
            assert_eq!(merged(&text, &rules), merged_by_scanning(&text, &rules), "{text}");
        }
    }
}
