//! SentencePiece's BPE: the pair whose union is the token of highest score is merged first.
//!
//! Source: Kudo and Richardson, "SentencePiece" (2018). The merge loop is that of BPE with scores
//! in the place of ranks; what is no token in the end is spelt in byte tokens.

use super::merge::{Merger, Pair, UNKNOWN};
use super::table::TokenTable;

/// Scores as ranks.
#[derive(Debug, Clone)]
pub(crate) struct Spm {
    ranks: Vec<u32>,
    fallback: [Option<u32>; 256],
    /// A space stands before each text that begins, or follows a special token.
    pub(crate) space_prefix: bool,
}

impl Spm {
    /// Takes the scores of all tokens; without any, pairs merge from the left.
    pub(crate) fn new(
        table: &TokenTable,
        scores: Option<&[f32]>,
        unknown: Option<u32>,
        space_prefix: bool,
    ) -> Spm {
        let ranks = match scores {
            Some(scores) => scores[..table.len()].iter().map(|&s| rank(s)).collect(),
            None => vec![0; table.len()],
        };
        let raw = |byte: usize| table.id(&[byte as u8]);
        let named = table.byte_tokens();
        let fallback = std::array::from_fn(|byte| named[byte].or_else(|| raw(byte)).or(unknown));
        Spm { ranks, fallback, space_prefix }
    }

    /// Appends the tokens of a text that has no special tokens in it.
    pub(crate) fn encode(
        &self,
        table: &TokenTable,
        text: &str,
        merger: &mut Merger,
        out: &mut Vec<u32>,
    ) {
        let text = text.replace(' ', "▁");
        let bytes = text.as_bytes();
        merger.clear();
        for (at, c) in text.char_indices() {
            let id = table.id(&bytes[at..at + c.len_utf8()]).unwrap_or(UNKNOWN);
            merger.push(id, c.len_utf8());
        }
        merger.run(|left, right| {
            let id = table.id(&bytes[left.range_with(right)])?;
            Some(Pair { rank: self.ranks[id as usize], id })
        });
        for symbol in merger.symbols() {
            match symbol.id {
                UNKNOWN => {
                    let bytes = bytes[symbol.range()].iter();
                    out.extend(bytes.filter_map(|&b| self.fallback[usize::from(b)]));
                }
                id => out.push(id),
            }
        }
    }
}

/// A number that is the lower, the higher the score is.
fn rank(score: f32) -> u32 {
    // Adding zero turns -0 into 0. The bits of floats of one sign are ordered as they are; flipping
    // all bits of the negative ones and the sign of the others orders both.
    let bits = (score + 0.0).to_bits();
    let ascending = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
    !ascending
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_fall_with_scores() {
        let scores = [f32::INFINITY, 1e9, 1.0, 1e-40, 0.0, -1e-40, -1.0, -1e9, f32::NEG_INFINITY];
        let ranks = scores.map(rank);
        assert!(ranks.is_sorted_by(|a, b| a < b), "{ranks:?}");
        assert_eq!(rank(-0.0), rank(0.0));
    }

    #[test]
    fn merges_by_score_and_falls_back_to_bytes() {
        let texts = ["<unk>", "▁", "a", "b", "ab", "▁a", "<0xC3>", "<0xA9>", "ba"];
        let table = TokenTable::new(&texts.iter().collect());
        let scores = [0.0, -9.0, -9.0, -9.0, -2.0, -1.0, 0.0, 0.0, -3.0];
        let spm = Spm::new(&table, Some(&scores), Some(0), true);
        let encode = |text: &str| {
            let mut out = Vec::new();
            spm.encode(&table, text, &mut Merger::default(), &mut out);
            out
        };
        assert_eq!(encode(" ab"), [5, 3]);
        assert_eq!(encode("aba"), [4, 2]);
        assert_eq!(encode("é"), [6, 7]);
        assert_eq!(encode("z"), [0], "no byte token: unknown");
        assert_eq!(encode(""), [0u32; 0]);
    }
}
