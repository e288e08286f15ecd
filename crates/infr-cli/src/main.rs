//! The `infr` program.
//!
//! Level 7, the only crate that names a backend. [`flags`] is what users type, [`config`] merges it
//! with the configuration file and the environment, [`commands`] has one file per command.

mod backends;
mod commands;
mod config;
mod flags;
mod models;
mod output;

use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory, Parser};

use crate::flags::{Cli, Command};

fn main() -> ExitCode {
    let cli = Cli::parse();
    match start(&cli) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start(cli: &Cli) -> Result<ExitCode> {
    let Some(command) = &cli.command else {
        output::print(&format!("{}\n", Cli::command().render_help()))?;
        return Ok(ExitCode::SUCCESS);
    };
    start_log();
    let resolved = config::resolve(&cli.layers())?;
    for warning in &resolved.warnings {
        eprintln!("warning: {warning}");
    }
    let settings = &resolved.settings;
    match command {
        Command::Run(args) => return commands::run::run(args, settings),
        Command::Inspect(args) => commands::inspect::inspect(args, settings)?,
        Command::Bench(args) => commands::bench::bench(args, settings)?,
        Command::Devices => commands::devices::devices(settings)?,
        Command::Config => commands::config::config(&resolved)?,
        Command::Synth(args) => commands::synth::synth(args)?,
        Command::Debug(command) => commands::debug::debug(command, settings)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Warnings go to standard error; `INFR_LOG=debug` shows more.
fn start_log() {
    let filter = config::env::log_filter().unwrap_or_else(|| "warn".into());
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::new(filter))
        .with_writer(std::io::stderr)
        .without_time()
        .with_target(false)
        .init();
}
