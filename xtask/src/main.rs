//! Repository tasks. `cargo run -p xtask -- tidy` checks what the compiler does not.

mod layers;
mod sources;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};

fn main() -> ExitCode {
    let result = match std::env::args().nth(1).as_deref() {
        Some("tidy") => tidy(),
        _ => Err(anyhow::anyhow!("usage: cargo run -p xtask -- tidy")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn tidy() -> Result<()> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let root = root.parent().map(PathBuf::from).unwrap_or(root);
    let mut faults = layers::check(&root)?;
    faults.extend(sources::check(&root)?);
    for fault in &faults {
        println!("{fault}");
    }
    if !faults.is_empty() {
        bail!("{} faults", faults.len());
    }
    Ok(())
}
