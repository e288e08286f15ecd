//! Names of the parts of a split model, and of raw pieces that are not parts.
//!
//! A split model is `<prefix>-00001-of-00003.gguf` and so on: each part is a GGUF file. Raw pieces
//! (`.part1of2`, `.gguf-split-a`) are cuts at arbitrary bytes.

use std::path::{Path, PathBuf};

/// Digits of a part number in a file name.
const DIGITS: usize = 5;

/// The name of one part of a split model, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PartName {
    prefix: String,
    /// Number of the part, from 1.
    pub(crate) number: u32,
    /// Number of parts.
    pub(crate) count: u32,
}

impl PartName {
    /// Takes a path's file name apart; nothing when it is not named as a part.
    pub(crate) fn parse(path: &Path) -> Option<PartName> {
        let stem = path.file_name()?.to_str()?.strip_suffix(".gguf")?;
        let (rest, count) = take_number(stem)?;
        let (rest, number) = take_number(rest.strip_suffix("-of-")?)?;
        let prefix = rest.strip_suffix('-')?.to_owned();
        (1..=count).contains(&number).then_some(PartName { prefix, number, count })
    }

    /// Path of part `number` (from 1) in the folder of `beside`.
    pub(crate) fn sibling(&self, beside: &Path, number: u32) -> PathBuf {
        // The prefix comes from a file name, so it holds no separator.
        beside.with_file_name(format!("{}-{number:05}-of-{:05}.gguf", self.prefix, self.count))
    }
}

fn take_number(text: &str) -> Option<(&str, u32)> {
    let (rest, digits) = text.split_at_checked(text.len().checked_sub(DIGITS)?)?;
    let number = digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())??;
    Some((rest, number))
}

/// For a file named as a raw piece, the command that joins all pieces.
pub(crate) fn raw_cut_join(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let (base, pieces) = raw_cut(name)?;
    // A command is for copying into a shell, so it only holds names that a shell takes as they are.
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-+".contains(&b);
    Some(match name.bytes().all(plain) {
        true => format!("cat {pieces} > {base}"),
        false => "cat piece-1 piece-2 > whole.gguf".to_owned(),
    })
}

/// Name of the whole and a pattern of the pieces.
fn raw_cut(name: &str) -> Option<(&str, String)> {
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    if let Some((base, of)) = name.rsplit_once(".part")
        && let Some((number, count)) = of.split_once("of")
    {
        let (number, count) = (number.trim_matches(['-', '_']), count.trim_matches(['-', '_']));
        if digits(number) && digits(count) {
            let listed = count.parse::<u32>().ok().filter(|n| (1..=8).contains(n));
            let pieces = match listed {
                Some(n) if number.len() == 1 && of == format!("{number}of{count}") => {
                    let names: Vec<_> = (1..=n).map(|i| format!("{base}.part{i}of{n}")).collect();
                    names.join(" ")
                }
                _ => format!("{base}.part*"),
            };
            return Some((base, pieces));
        }
    }
    if let Some((base, piece)) = name.rsplit_once("-split-")
        && base.ends_with(".gguf")
        && !piece.is_empty()
        && piece.bytes().all(|b| b.is_ascii_alphanumeric())
    {
        return Some((base, format!("{base}-split-*")));
    }
    // `split` and archive programs append `.aa`, `.001`, `.part1`; `.gz` and `.xz` are other things.
    let (base, end) = name.rsplit_once('.')?;
    let number = end.strip_prefix("part").unwrap_or(end).trim_start_matches(['-', '_']);
    let letters = matches!(number.as_bytes(), [b'a', b'a'..=b'z']);
    (base.ends_with(".gguf") && (digits(number) || letters)).then(|| {
        let kept = end.len() - number.len();
        (base, format!("{base}.{}*", &end[..kept]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(name: &str) -> Option<PartName> {
        PartName::parse(Path::new(name))
    }

    #[test]
    fn part_names_are_taken_apart_and_built() {
        let path = Path::new("/models/q-4-00002-of-00013.gguf");
        let name = PartName::parse(path).unwrap();
        assert_eq!((name.prefix.as_str(), name.number, name.count), ("q-4", 2, 13));
        assert_eq!(name.sibling(path, 2), path);
        assert_eq!(name.sibling(path, 1), Path::new("/models/q-4-00001-of-00013.gguf"));
    }

    #[test]
    fn other_names_are_not_part_names() {
        for name in [
            "model.gguf",
            "m-00000-of-00003.gguf",
            "m-00004-of-00003.gguf",
            "m-0001-of-00003.gguf",
            "m-00001-of-00003.bin",
            "m-+0001-of-00003.gguf",
            "m00001-of-00003.gguf",
            "-of-00003.gguf",
            "é0001-of-00003.gguf",
            "",
            "..",
        ] {
            assert_eq!(parse(name), None, "{name}");
        }
    }

    #[test]
    fn raw_pieces_are_recognised() {
        let join = |name: &str| raw_cut_join(Path::new(name));
        let some = |s: &str| Some(s.to_owned());
        assert_eq!(
            join("/x/m.gguf.part1of2"),
            some("cat m.gguf.part1of2 m.gguf.part2of2 > m.gguf")
        );
        assert_eq!(join("m.gguf.part03of12"), some("cat m.gguf.part* > m.gguf"));
        assert_eq!(join("m.gguf-split-a"), some("cat m.gguf-split-* > m.gguf"));
        assert_eq!(join("m.gguf.aa"), some("cat m.gguf.* > m.gguf"));
        assert_eq!(join("m.gguf.part-ab"), some("cat m.gguf.part-* > m.gguf"));
        assert_eq!(join("m.gguf.001"), some("cat m.gguf.* > m.gguf"));
        let odd = join("a;b c.gguf.001").unwrap();
        assert!(!odd.contains("001"), "{odd}");
        for name in [
            "m.gguf",
            "m-00001-of-00002.gguf",
            "m.v0.3",
            "m.gguf.part",
            "m.gguf.bak",
            "m.gguf.gz",
            "",
        ] {
            assert_eq!(join(name), None, "{name}");
        }
    }
}
