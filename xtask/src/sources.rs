//! Rules on source text: sizes, module docs, and comments that tell history.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

const LONGEST_FILE: usize = 800;
const HISTORY: &[&str] =
    &["no longer", "used to be", "previously", "formerly", "for now", "TODO", "FIXME", "XXX"];
const SOURCES: &[&str] = &["rs", "comp", "glsl", "metal"];

/// Everything that breaks a rule.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let mut faults = Vec::new();
    let mut sizes = Vec::new();
    for path in files(root)? {
        let shown = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        let text = std::fs::read_to_string(&path).with_context(|| shown.clone())?;
        let lines = text.lines().count();
        let generated = ["/grids/", "/generated/", "/golden/"].iter().any(|g| shown.contains(g));
        if !generated {
            sizes.push((lines, shown.clone()));
            if lines > LONGEST_FILE {
                faults.push(format!("{shown}: {lines} lines, at most {LONGEST_FILE}"));
            }
        }
        if shown.ends_with(".rs") && !text.trim_start().starts_with("//!") && !generated {
            faults.push(format!("{shown}: does not start with a //! doc"));
        }
        if !shown.starts_with("xtask/") {
            faults.extend(history(&shown, &text));
        }
    }
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    println!("longest files:");
    for (lines, path) in sizes.iter().take(10) {
        println!("  {lines:5} {path}");
    }
    Ok(faults)
}

fn history(shown: &str, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let Some((_, comment)) = line.split_once("//") else { continue };
        for word in HISTORY {
            if comment.contains(word) {
                faults.push(format!("{shown}:{}: comment says '{word}'", index + 1));
            }
        }
    }
    faults
}

fn files(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![root.join("crates"), root.join("xtask"), root.join("fuzz")];
    while let Some(folder) = open.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().to_string();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                open.push(path);
            } else if path.extension().is_some_and(|e| SOURCES.iter().any(|s| e == *s)) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}
