//! `infr synth`: writes a model of a public shape with random weights.

use anyhow::{Context, Result};
use indicatif::ProgressBar;
use infr_models::synth;

use crate::flags::SynthArgs;
use crate::output;

/// Writes the file, or lists the shapes.
pub(crate) fn synth(args: &SynthArgs) -> Result<()> {
    let Some(path) = &args.out else {
        anyhow::ensure!(args.shape == "list", "where to? infr synth {} FILE.gguf", args.shape);
        let names: Vec<&str> = synth::shapes::SHAPES.iter().map(|s| s.name).collect();
        return output::print(&format!("{}\n", names.join("\n")));
    };
    let bar = ProgressBar::new(0);
    let mut progress = |done: u64, total: u64| {
        bar.set_length(total);
        bar.set_position(done);
    };
    synth::write_file(&args.shape, args.seed, path, &mut progress)
        .with_context(|| format!("cannot write {}", path.display()))?;
    bar.finish_and_clear();
    output::print(&format!("{}\n", path.display()))
}
