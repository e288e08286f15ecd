//! The printable stand-ins for bytes in byte-level BPE vocabularies.
//!
//! Source: Radford et al., "Language Models are Unsupervised Multitask Learners" (GPT-2, 2019),
//! `bytes_to_unicode` of its published encoder: bytes that print in Latin-1 stand for themselves,
//! the 68 others for U+0100 and up, in order.

/// The first code point that stands for a byte which does not print.
const FIRST_STAND_IN: u32 = 0x100;
/// One past the last code point in use.
const END: usize = 0x144;

fn prints(byte: u8) -> bool {
    matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF)
}

/// Both directions of the map.
#[derive(Debug, Clone)]
pub(crate) struct ByteMap {
    to_char: [char; 256],
    to_byte: [Option<u8>; END],
}

impl ByteMap {
    pub(crate) fn new() -> ByteMap {
        let mut to_char = ['\0'; 256];
        let mut to_byte = [None; END];
        let mut next = FIRST_STAND_IN;
        for byte in 0..=255u8 {
            let mut code = u32::from(byte);
            if !prints(byte) {
                code = next;
                next += 1;
            }
            to_char[usize::from(byte)] = char::from_u32(code).expect("below the surrogates");
            to_byte[code as usize] = Some(byte);
        }
        ByteMap { to_char, to_byte }
    }

    /// The character that stands for a byte.
    pub(crate) fn char(&self, byte: u8) -> char {
        self.to_char[usize::from(byte)]
    }

    /// The byte that a character stands for.
    pub(crate) fn byte(&self, c: char) -> Option<u8> {
        self.to_byte.get(c as usize).copied().flatten()
    }

    /// Writes the stand-ins of `bytes` as UTF-8.
    pub(crate) fn encode_into(&self, bytes: &[u8], out: &mut Vec<u8>) {
        let mut utf8 = [0; 4];
        for &byte in bytes {
            out.extend_from_slice(self.char(byte).encode_utf8(&mut utf8).as_bytes());
        }
    }

    /// The bytes that a token's text stands for. Characters outside the map, which only malformed
    /// vocabularies have, stand for themselves.
    pub(crate) fn decode(&self, text: &[u8]) -> Vec<u8> {
        let Ok(text) = std::str::from_utf8(text) else { return text.to_vec() };
        let mut out = Vec::with_capacity(text.len());
        for c in text.chars() {
            match self.byte(c) {
                Some(byte) => out.push(byte),
                None => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_the_published_map() {
        let map = ByteMap::new();
        assert_eq!(map.char(b'A'), 'A');
        assert_eq!(map.char(b' '), 'Ġ');
        assert_eq!(map.char(b'\n'), 'Ċ');
        assert_eq!(map.char(0xAD), '\u{143}');
        assert_eq!(map.byte('\u{144}'), None);
        assert_eq!(map.byte(' '), None);
    }

    #[test]
    fn both_directions_agree() {
        let map = ByteMap::new();
        let all: Vec<u8> = (0..=255).collect();
        let mut text = Vec::new();
        map.encode_into(&all, &mut text);
        assert_eq!(map.decode(&text), all);
    }

    #[test]
    fn keeps_characters_outside_the_map() {
        assert_eq!(ByteMap::new().decode("Ġ中".as_bytes()), " 中".as_bytes());
    }
}
