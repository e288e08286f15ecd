//! Byte-pair encoding: over bytes (GPT-2 and its heirs) or over characters (Gemma 4).

use std::collections::HashMap;

use hashbrown::HashMap as FastMap;
use infr_gguf::StringArray;

use super::byte_map::ByteMap;
use super::merge::{Merger, Pair, UNKNOWN};
use super::pretok::PreTokenizer;
use super::table::TokenTable;

/// What the symbols are before any merge, and how words are cut.
#[derive(Debug, Clone)]
pub(crate) enum Alphabet {
    /// Bytes; the vocabulary spells them by stand-ins.
    Bytes(Box<PreTokenizer>, Box<ByteMap>),
    /// Characters, with ▁ for spaces; words are lines.
    Characters,
}

/// The merges of a vocabulary.
#[derive(Debug, Clone)]
pub(crate) struct Bpe {
    alphabet: Alphabet,
    n_tokens: u32,
    /// By left symbol (upper half) and right symbol.
    merges: FastMap<u64, Pair>,
    /// Symbols that merges mention and the vocabulary lacks, numbered from `n_tokens`.
    extra: HashMap<Box<[u8]>, u32>,
    /// The symbol of each byte; of characters, for the ASCII ones.
    singles: [u32; 256],
    /// The token of each byte, for symbols that are no token.
    fallback: [Option<u32>; 256],
}

/// Working memory, kept from word to word.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) merger: Merger,
    spelling: Vec<u8>,
}

impl Bpe {
    /// Takes merges as the file has them, "left right" with the lowest rank first.
    pub(crate) fn new(table: &TokenTable, merges: &StringArray, alphabet: Alphabet) -> Bpe {
        let n_tokens = table.len() as u32;
        let mut extra: HashMap<Box<[u8]>, u32> = HashMap::new();
        let mut or_extra = |id: Option<u32>, text: &[u8]| {
            if let Some(id) = id.or_else(|| extra.get(text).copied()) {
                return id;
            }
            let id = n_tokens + extra.len() as u32;
            extra.insert(text.into(), id);
            id
        };
        let mut map = FastMap::with_capacity(merges.len());
        let (mut parts, mut ids, mut joined) = (Vec::new(), Vec::new(), Vec::new());
        let mut last = 0u32;
        let mut rest = merges.iter().enumerate();
        let mut block = Vec::with_capacity(BLOCK);
        loop {
            block.clear();
            block.extend(rest.by_ref().take(BLOCK).filter_map(|(rank, text)| {
                let (left, right) = halves(text)?;
                Some((left, right, rank as u32))
            }));
            parts.clear();
            parts.extend(block.iter().flat_map(|&(left, right, _)| [left, right]));
            table.ids(&parts, &mut ids);
            for (&(left, right, rank), found) in block.iter().zip(ids.chunks_exact(2)) {
                joined.clear();
                joined.extend_from_slice(left);
                joined.extend_from_slice(right);
                // Tokens mostly stand in the order of the merges that make them, some of them made
                // by several.
                let near = [last, last.saturating_add(1)];
                let near = near.into_iter().find(|&id| table.text(id) == Some(&joined));
                last = or_extra(near.or_else(|| table.id(&joined)), &joined);
                let key = key(or_extra(found[0], left), or_extra(found[1], right));
                map.entry(key).or_insert(Pair { rank, id: last });
            }
            if rest.len() == 0 {
                break;
            }
        }
        let mut bpe = Bpe {
            alphabet,
            n_tokens,
            merges: map,
            extra,
            singles: [UNKNOWN; 256],
            fallback: table.byte_tokens(),
        };
        let singles = std::array::from_fn(|byte| bpe.single(table, byte as u8));
        bpe.singles = singles;
        if let Alphabet::Bytes(..) = bpe.alphabet {
            bpe.fallback = singles.map(|id| (id < n_tokens).then_some(id));
        }
        bpe
    }

    fn single(&self, table: &TokenTable, byte: u8) -> u32 {
        let c = match &self.alphabet {
            Alphabet::Bytes(_, map) => map.char(byte),
            Alphabet::Characters if byte.is_ascii() => char::from(byte),
            Alphabet::Characters => return UNKNOWN,
        };
        self.symbol(table, c.encode_utf8(&mut [0; 4]).as_bytes())
    }

    fn symbol(&self, table: &TokenTable, text: &[u8]) -> u32 {
        table.id(text).or_else(|| self.extra.get(text).copied()).unwrap_or(UNKNOWN)
    }

    /// Appends the tokens of a text that has no special tokens in it.
    pub(crate) fn encode(
        &self,
        table: &TokenTable,
        text: &str,
        scratch: &mut Scratch,
        out: &mut Vec<u32>,
    ) {
        match &self.alphabet {
            Alphabet::Bytes(pre, map) => pre.split(text, &mut |word| {
                if pre.ignore_merges {
                    scratch.spelling.clear();
                    map.encode_into(word.as_bytes(), &mut scratch.spelling);
                    if let Some(id) = table.id(&scratch.spelling) {
                        return out.push(id);
                    }
                }
                scratch.merger.clear();
                for &byte in word.as_bytes() {
                    scratch.merger.push(self.singles[usize::from(byte)], 1);
                }
                self.merge(word, &mut scratch.merger, out);
            }),
            Alphabet::Characters => {
                let text = text.replace(' ', "▁");
                for line in lines(&text) {
                    if line.starts_with('\n')
                        && let Some(id) = table.id(line.as_bytes())
                    {
                        out.push(id);
                        continue;
                    }
                    scratch.merger.clear();
                    for (at, c) in line.char_indices() {
                        let id = match c.is_ascii() {
                            true => self.singles[c as usize],
                            false => self.symbol(table, &line.as_bytes()[at..at + c.len_utf8()]),
                        };
                        scratch.merger.push(id, c.len_utf8());
                    }
                    self.merge(line, &mut scratch.merger, out);
                }
            }
        }
    }

    fn merge(&self, word: &str, merger: &mut Merger, out: &mut Vec<u32>) {
        merger.run(|left, right| self.merges.get(&key(left.id, right.id)).copied());
        for symbol in merger.symbols() {
            if symbol.id < self.n_tokens {
                out.push(symbol.id);
                continue;
            }
            let bytes = &word.as_bytes()[symbol.range()];
            out.extend(bytes.iter().filter_map(|&b| self.fallback[usize::from(b)]));
        }
    }
}

/// Merges whose parts are looked up together.
const BLOCK: usize = 64;

/// The two parts of a merge. A space may itself be the first character of the left one.
fn halves(merge: &[u8]) -> Option<(&[u8], &[u8])> {
    let space = 1 + merge.iter().skip(1).position(|&b| b == b' ')?;
    Some((&merge[..space], &merge[space + 1..]))
}

fn key(left: u32, right: u32) -> u64 {
    u64::from(left) << 32 | u64::from(right)
}

/// Runs of newlines and runs of anything else.
fn lines(text: &str) -> impl Iterator<Item = &str> + '_ {
    let mut rest = text;
    std::iter::from_fn(move || {
        let newline = rest.as_bytes().first()? == &b'\n';
        let end = rest.bytes().position(|b| (b == b'\n') != newline).unwrap_or(rest.len());
        let (line, after) = rest.split_at(end);
        rest = after;
        Some(line)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(bpe: &Bpe, table: &TokenTable, text: &str) -> Vec<u32> {
        let mut out = Vec::new();
        bpe.encode(table, text, &mut Scratch::default(), &mut out);
        out
    }

    fn bytes(pre: &str) -> Alphabet {
        Alphabet::Bytes(PreTokenizer::named(pre).unwrap().into(), ByteMap::new().into())
    }

    #[test]
    fn merges_bytes_by_rank() {
        let table = TokenTable::new(&["a", "b", "Ġ", "ab", "Ġab", "ba"].iter().collect());
        let merges = ["b a", "a b", "Ġ ab"].iter().collect();
        let bpe = Bpe::new(&table, &merges, bytes("gpt-2"));
        assert_eq!(encode(&bpe, &table, "ab ab"), [3, 4]);
        assert_eq!(encode(&bpe, &table, "aba"), [0, 5]);
        assert_eq!(encode(&bpe, &table, "acb"), [0, 1], "a byte without a token is dropped");
    }

    #[test]
    fn symbols_without_a_token_fall_back_to_bytes() {
        let table = TokenTable::new(&["a", "b", "c", "abc"].iter().collect());
        let merges = ["a b", "ab c"].iter().collect();
        let bpe = Bpe::new(&table, &merges, bytes("gpt-2"));
        assert_eq!(encode(&bpe, &table, "abcab"), [3, 0, 1]);
    }

    #[test]
    fn whole_words_only_where_merges_are_ignored() {
        let table = TokenTable::new(&["a", "b", "ab"].iter().collect());
        let none = StringArray::new();
        let llama = Bpe::new(&table, &none, bytes("llama-bpe"));
        assert_eq!(encode(&llama, &table, "ab"), [2]);
        let qwen = Bpe::new(&table, &none, bytes("qwen2"));
        assert_eq!(encode(&qwen, &table, "ab"), [0, 1]);
    }

    #[test]
    fn characters_with_byte_fallback() {
        let texts = ["▁", "é", "▁é", "\n\n", "\n", "<0xC3>", "<0xA0>"];
        let table = TokenTable::new(&texts.iter().collect());
        let bpe = Bpe::new(&table, &["▁ é"].iter().collect(), Alphabet::Characters);
        assert_eq!(encode(&bpe, &table, " é\n\né"), [2, 3, 1]);
        assert_eq!(encode(&bpe, &table, "à\n\n\n"), [5, 6, 4, 4, 4]);
    }
}
