//! Picks the file of a cached repository that a reference means.
//!
//! Names follow conventions, not rules: the quantisation stands between separators in the file's
//! or folder's name (`Model-Q4_K_M.gguf`, `UD-Q4_K_XL/…`), large models are split into parts
//! (`…-00001-of-00003.gguf`), and `mmproj` files hold no language model.

use std::path::PathBuf;

use crate::HubError;
use crate::cache::{Repo, gguf_files};
use crate::reference::{DEFAULT_QUANT, Wanted};

/// The file that is meant, of those in the cache.
pub(crate) fn in_cache(repo: &Repo, wanted: &Wanted) -> Result<PathBuf, HubError> {
    let not_cached =
        || HubError::NotCached { repo: repo.name().into(), cache: repo.cache().into() };
    let snapshot = repo.snapshot().ok_or_else(not_cached)?;
    let files = gguf_files(&snapshot);
    let models = models(&files);
    if models.is_empty() {
        return Err(not_cached());
    }
    let file = pick(&models, &files, wanted).map_err(|failure| failure.of(repo, wanted))?;
    let missing = missing_parts(file, &files);
    if !missing.is_empty() {
        return Err(HubError::MissingParts { file: file.into(), missing });
    }
    Ok(snapshot.join(file))
}

enum Failure {
    None { found: Vec<String> },
    Several { found: Vec<String> },
}

impl Failure {
    fn of(self, repo: &Repo, wanted: &Wanted) -> HubError {
        let (repo, wanted) = (repo.name().to_owned(), wanted.to_string());
        match self {
            Self::None { found } => HubError::NoMatch { repo, wanted, found },
            Self::Several { found } => HubError::Ambiguous { repo, wanted, found },
        }
    }
}

/// What can be loaded: whole models, and the first of each split model's parts that is there.
fn models(files: &[String]) -> Vec<&str> {
    let mut models: Vec<&str> = Vec::new();
    for file in files {
        let name = base_name(file).to_ascii_lowercase();
        if name.contains("mmproj") || name.contains("imatrix") {
            continue;
        }
        let again = |known: &&str| match (split(known), split(file)) {
            (Some(a), Some(b)) => a.stem == b.stem && a.of == b.of,
            _ => false,
        };
        // Files are sorted, so the first part comes first.
        if !models.iter().any(again) {
            models.push(file);
        }
    }
    models
}

fn pick<'f>(models: &[&'f str], files: &'f [String], wanted: &Wanted) -> Result<&'f str, Failure> {
    let owned = |found: &[&str]| found.iter().map(|file| (*file).to_owned()).collect();
    let quant = match wanted {
        Wanted::File(file) => {
            let exact = files.iter().find(|known| *known == file);
            let named = exact.or_else(|| files.iter().find(|k| k.eq_ignore_ascii_case(file)));
            return match named {
                Some(file) => Ok(file),
                None => Err(Failure::None { found: owned(models) }),
            };
        }
        Wanted::Quant(quant) => quant.as_str(),
        Wanted::Default => DEFAULT_QUANT,
    };
    let mut fitting: Vec<&str> =
        models.iter().copied().filter(|file| has_word(&stem(file), quant)).collect();
    // `UD-Q4_K_M` is another file than `Q4_K_M`, and is meant only if nothing else is there.
    let dynamic = format!("UD-{quant}");
    let plain: Vec<&str> =
        fitting.iter().copied().filter(|file| !has_word(&stem(file), &dynamic)).collect();
    if !plain.is_empty() {
        fitting = plain;
    }
    match (fitting.as_slice(), models, wanted) {
        ([file], _, _) | ([], [file], Wanted::Default) => Ok(file),
        ([], _, _) => Err(Failure::None { found: owned(models) }),
        (several, _, _) => Err(Failure::Several { found: owned(several) }),
    }
}

/// Whether `word` stands between separators somewhere in `text`, in any case.
fn has_word(text: &str, word: &str) -> bool {
    let (text, word) = (text.to_ascii_lowercase(), word.to_ascii_lowercase());
    let separates = |c: Option<char>| c.is_none_or(|c| !c.is_ascii_alphanumeric());
    // `Q4_K` is no word of `Q4_K_M`.
    let ends = |c: Option<char>| separates(c) && c != Some('_');
    text.match_indices(&word).any(|(at, _)| {
        ends(text[at + word.len()..].chars().next()) && separates(text[..at].chars().next_back())
    })
}

fn base_name(file: &str) -> &str {
    file.rsplit('/').next().unwrap_or(file)
}

/// The path without its extension and its part number.
fn stem(file: &str) -> String {
    match split(file) {
        Some(part) => part.stem.to_owned(),
        None => file[..file.len() - ".gguf".len()].to_owned(),
    }
}

struct Part<'f> {
    stem: &'f str,
    number: u32,
    of: u32,
}

/// `STEM-00001-of-00003.gguf`.
fn split(file: &str) -> Option<Part<'_>> {
    let name = file.get(..file.len().checked_sub(".gguf".len())?)?;
    let (rest, of) = name.rsplit_once("-of-")?;
    let (stem, number) = rest.rsplit_once('-')?;
    let digits = |text: &str| {
        (text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok())?
    };
    Some(Part { stem, number: digits(number)?, of: digits(of)? })
}

fn missing_parts(file: &str, files: &[String]) -> Vec<String> {
    let Some(part) = split(file) else { return Vec::new() };
    let there: Vec<u32> = files
        .iter()
        .filter_map(|file| split(file))
        .filter(|other| other.stem == part.stem && other.of == part.of)
        .map(|other| other.number)
        .collect();
    (1..=part.of)
        .filter(|number| !there.contains(number))
        .map(|number| format!("{}-{number:05}-of-{:05}.gguf", part.stem, part.of))
        .take(20)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(files: &[&str], wanted: &Wanted) -> Result<String, Vec<String>> {
        let mut files: Vec<String> = files.iter().map(|file| (*file).to_owned()).collect();
        files.sort();
        let models = models(&files);
        match pick(&models, &files, wanted) {
            Ok(file) => Ok(file.to_owned()),
            Err(Failure::None { found } | Failure::Several { found }) => Err(found),
        }
    }

    fn quant(text: &str) -> Wanted {
        Wanted::Quant(text.into())
    }

    #[test]
    fn the_quantisation_is_found_in_the_name() {
        let files = [
            "M-Q4_K_M.gguf",
            "M-q8_0.gguf",
            "M-UD-Q4_K_M.gguf",
            "M-UD-Q4_K_XL.gguf",
            "M.Q4_K_S.gguf",
            "M-i1-IQ4_XS.gguf",
            "mmproj-M-BF16.gguf",
            "M-BF16.gguf",
            "M-MXFP4_MOE.gguf",
        ];
        let cases = [
            (Wanted::Default, "M-Q4_K_M.gguf"),
            (quant("q4_k_m"), "M-Q4_K_M.gguf"),
            (quant("Q8_0"), "M-q8_0.gguf"),
            (quant("UD-Q4_K_M"), "M-UD-Q4_K_M.gguf"),
            (quant("Q4_K_XL"), "M-UD-Q4_K_XL.gguf"),
            (quant("Q4_K_S"), "M.Q4_K_S.gguf"),
            (quant("IQ4_XS"), "M-i1-IQ4_XS.gguf"),
            (quant("bf16"), "M-BF16.gguf"),
            (Wanted::File("m-bf16.gguf".into()), "M-BF16.gguf"),
            (Wanted::File("mmproj-M-BF16.gguf".into()), "mmproj-M-BF16.gguf"),
        ];
        for (wanted, want) in cases {
            assert_eq!(choose(&files, &wanted).as_deref(), Ok(want), "{wanted:?}");
        }
        // `Q4_K` is not `Q4_K_M`, and `8_0` is no quantisation.
        for none in [quant("Q4_K"), quant("8_0"), quant("Q2_K"), Wanted::File("x.gguf".into())] {
            assert_eq!(choose(&files, &none).unwrap_err().len(), 8, "{none:?}");
        }
    }

    #[test]
    fn without_a_quantisation_the_only_model_will_do() {
        let only = ["M-Q8_0.gguf", "mmproj-F16.gguf"];
        assert_eq!(choose(&only, &Wanted::Default).as_deref(), Ok("M-Q8_0.gguf"));
        assert_eq!(choose(&only, &quant("Q4_K_M")).unwrap_err(), ["M-Q8_0.gguf"]);
        let two = ["M-Q8_0.gguf", "M-Q6_K.gguf"];
        assert_eq!(choose(&two, &Wanted::Default).unwrap_err().len(), 2);
    }

    #[test]
    fn two_that_fit_equally_are_listed() {
        let two = ["A-Q4_K_M.gguf", "B-Q4_K_M.gguf", "B-Q8_0.gguf"];
        let found = choose(&two, &Wanted::Default).unwrap_err();
        assert_eq!(found, ["A-Q4_K_M.gguf", "B-Q4_K_M.gguf"]);
    }

    #[test]
    fn split_models_are_their_first_part() {
        let files = [
            "Q4_K_M/M-Q4_K_M-00002-of-00003.gguf",
            "Q4_K_M/M-Q4_K_M-00001-of-00003.gguf",
            "UD-IQ2_M/M-00001-of-00002.gguf",
            "UD-IQ2_M/M-00002-of-00002.gguf",
        ];
        let first = "Q4_K_M/M-Q4_K_M-00001-of-00003.gguf";
        assert_eq!(choose(&files, &Wanted::Default).as_deref(), Ok(first));
        assert_eq!(
            choose(&files, &quant("UD-IQ2_M")).as_deref(),
            Ok("UD-IQ2_M/M-00001-of-00002.gguf")
        );
        let files: Vec<String> = files.iter().map(|file| (*file).to_owned()).collect();
        assert_eq!(missing_parts(first, &files), ["Q4_K_M/M-Q4_K_M-00003-of-00003.gguf"]);
        assert!(missing_parts("UD-IQ2_M/M-00001-of-00002.gguf", &files).is_empty());
    }
}
