//! The layering of the crates: a crate depends only on crates of a smaller level.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Level of each crate, as in ARCHITECTURE.md. Development crates stand outside.
const LEVELS: &[(&str, u32)] = &[
    ("infr-tensor", 0),
    ("infr-hub", 0),
    ("infr-gguf", 1),
    ("infr-graph", 1),
    ("infr-kernels", 1),
    ("infr-backend", 2),
    ("infr-text", 2),
    ("infr-models", 3),
    ("infr-cpu", 3),
    ("infr-gpu", 3),
    ("infr-vulkan", 4),
    ("infr-metal", 4),
    ("infr-engine", 4),
    ("infr-chat", 5),
    ("infr-server", 6),
    ("infr-cli", 7),
];

/// Crates for development only: no crate of the product depends on them.
const DEVELOPMENT: &[&str] = &["infr-testkit", "xtask"];

/// The crates that may name a device API's crate.
const GPU_CRATES: &[&str] = &["infr-vulkan", "infr-metal", "infr-cpu"];

/// Everything that breaks the layering.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let levels: BTreeMap<&str, u32> = LEVELS.iter().copied().collect();
    let mut faults = Vec::new();
    for (name, dependencies) in workspace(root)? {
        if DEVELOPMENT.contains(&name.as_str()) {
            continue;
        }
        let Some(level) = levels.get(name.as_str()) else {
            faults.push(format!("{name}: not in the table of levels (xtask/src/layers.rs)"));
            continue;
        };
        for dependency in dependencies {
            if DEVELOPMENT.contains(&dependency.as_str()) {
                faults.push(format!("{name} depends on {dependency}, a development crate"));
            }
            match levels.get(dependency.as_str()) {
                Some(below) if below < level => {}
                Some(below) => faults.push(format!(
                    "{name} (level {level}) depends on {dependency} (level {below})"
                )),
                None => {}
            }
            if GPU_CRATES.contains(&dependency.as_str()) && name != "infr-cli" {
                faults.push(format!("{name} names the backend {dependency}"));
            }
        }
    }
    Ok(faults)
}

/// Workspace crates with their normal dependencies.
fn workspace(root: &Path) -> Result<Vec<(String, Vec<String>)>> {
    let output = Command::new("cargo")
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(root)
        .output()
        .context("cannot run cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    }
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"].as_array().context("cargo metadata has no packages")?;
    let name = |v: &Value| v["name"].as_str().unwrap_or_default().to_string();
    let normal = |p: &Value| {
        let all = p["dependencies"].as_array().cloned().unwrap_or_default();
        all.iter().filter(|d| d["kind"].is_null()).map(name).collect()
    };
    Ok(packages.iter().map(|p| (name(p), normal(p))).collect())
}
