//! From a kernel's file to one text: includes, each file once.

use std::fs;
use std::path::Path;

use super::Result;

/// Expands `#include "path"` (relative to the shader folder); `#include "quant"` stands for `quant`.
pub(crate) fn expand(shaders: &Path, file: &str, quant: Option<&str>) -> Result<String> {
    let mut text = String::new();
    let mut seen = Vec::new();
    append(shaders, file, quant, (&mut seen, &mut text))?;
    Ok(text)
}

fn append(
    shaders: &Path,
    file: &str,
    quant: Option<&str>,
    (seen, text): (&mut Vec<String>, &mut String),
) -> Result<()> {
    if seen.iter().any(|s| s == file) {
        return Ok(());
    }
    seen.push(file.to_owned());
    let own = fs::read_to_string(shaders.join(file)).map_err(|e| format!("{file}: {e}"))?;
    for line in own.lines() {
        let included = line.strip_prefix("#include \"").and_then(|rest| rest.strip_suffix('"'));
        match included {
            Some("quant") => {
                let quant =
                    quant.ok_or_else(|| format!("{file}: the kernel has no weight type"))?;
                append(shaders, quant, None, (&mut *seen, &mut *text))?;
            }
            Some(path) => append(shaders, path, quant, (&mut *seen, &mut *text))?,
            None => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    Ok(())
}
