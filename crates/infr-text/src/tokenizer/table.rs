//! Token texts by id, and ids by text.

use std::hash::BuildHasher;

use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};
use infr_gguf::StringArray;

/// The texts of all tokens in one arena, with an index that holds ids only.
#[derive(Debug, Clone)]
pub(crate) struct TokenTable {
    texts: StringArray,
    index: HashTable<u32>,
    hasher: DefaultHashBuilder,
    max_len: usize,
}

impl TokenTable {
    /// Takes the texts of a file. An empty text is replaced by one that names its id, so that it
    /// cannot match anything by accident; of equal texts the first is found by text.
    pub(crate) fn new(texts: &StringArray) -> TokenTable {
        let named = texts.iter().any(<[u8]>::is_empty);
        let texts = if named { name_empty(texts) } else { texts.clone() };
        let hasher = DefaultHashBuilder::default();
        let mut index = HashTable::with_capacity(texts.len());
        let mut max_len = 0;
        for (id, text) in texts.iter().enumerate() {
            max_len = max_len.max(text.len());
            let equal = |&other: &u32| texts.get(other as usize) == Some(text);
            let rehash = |&other: &u32| hasher.hash_one(texts.get(other as usize));
            match index.entry(hasher.hash_one(Some(text)), equal, rehash) {
                Entry::Vacant(slot) => {
                    slot.insert(id as u32);
                }
                Entry::Occupied(slot) => {
                    tracing::warn!(first = *slot.get(), second = id, "two tokens of equal text");
                }
            }
        }
        TokenTable { texts, index, hasher, max_len }
    }

    /// Number of tokens.
    pub(crate) fn len(&self) -> usize {
        self.texts.len()
    }

    /// The text of a token; nothing for an id outside the vocabulary.
    pub(crate) fn text(&self, id: u32) -> Option<&[u8]> {
        self.texts.get(id as usize)
    }

    /// The token of exactly this text.
    pub(crate) fn id(&self, text: &[u8]) -> Option<u32> {
        if text.len() > self.max_len {
            return None;
        }
        let equal = |&id: &u32| self.texts.get(id as usize) == Some(text);
        self.index.find(self.hasher.hash_one(Some(text)), equal).copied()
    }

    /// The tokens of exactly these texts. Looking many up at once lets the processor wait for the
    /// memory of all of them together: first the index is read for each text, then the texts that
    /// it points to, and only where the two disagree is the index searched on.
    pub(crate) fn ids(&self, texts: &[&[u8]], out: &mut Vec<Option<u32>>) {
        let probe = |text: &&[u8]| {
            let hash = self.hasher.hash_one(Some(text));
            self.index.find(hash, |_| true).copied()
        };
        out.clear();
        out.extend(texts.iter().map(probe));
        for (&text, id) in texts.iter().zip(out) {
            if let Some(found) = *id
                && self.texts.get(found as usize) != Some(text)
            {
                *id = self.id(text);
            }
        }
    }

    /// The tokens that stand for single bytes, `<0x00>` to `<0xFF>`.
    pub(crate) fn byte_tokens(&self) -> [Option<u32>; 256] {
        std::array::from_fn(|byte| self.id(format!("<0x{byte:02X}>").as_bytes()))
    }
}

fn name_empty(texts: &StringArray) -> StringArray {
    let mut named = StringArray::new();
    for (id, text) in texts.iter().enumerate() {
        if text.is_empty() {
            named.push(format!("[EMPTY_{id}]").as_bytes());
        } else {
            named.push(text);
        }
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_ids_by_text_and_texts_by_id() {
        let table = TokenTable::new(&["a", "", "bc", "a", "<0x0A>"].iter().collect());
        assert_eq!(table.len(), 5);
        assert_eq!(table.id(b"bc"), Some(2));
        assert_eq!(table.id(b"a"), Some(0), "the first of two equal texts");
        assert_eq!(table.id(b""), None);
        assert_eq!(table.text(1), Some(&b"[EMPTY_1]"[..]));
        assert_eq!(table.id(b"[EMPTY_1]"), Some(1));
        assert_eq!(table.id(b"no such text, and longer than any"), None);
        assert_eq!(table.text(5), None);
        let mut ids = Vec::new();
        table.ids(&[b"a", b"", b"bc", b"abc", b"[EMPTY_1]"], &mut ids);
        assert_eq!(ids, [Some(0), None, Some(2), None, Some(1)]);
        assert_eq!(table.byte_tokens()[10], Some(4));
        assert_eq!(table.byte_tokens()[11], None);
    }
}
