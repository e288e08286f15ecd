//! What users type: commands and flags, with the help they read.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::config::Layers;

/// The program's command line.
#[derive(Debug, Parser)]
#[command(
    name = "infr",
    version,
    about = "Run language models on your own machine",
    after_help = "First steps:\n  infr run demo \"What is the capital of France?\"   answers with a small model\n  infr run demo                                   chats with it\n  infr run org/repo:Q4_K_M                        any GGUF model in the Hugging Face cache\n  infr run path/to/model.gguf                     any GGUF file"
)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Option<Command>,

    /// Configuration file (default: ./infr.toml, then the user's infr/config.toml)
    #[arg(long, global = true, value_name = "PATH", help_heading = "Global options")]
    pub config: Option<PathBuf>,

    /// Set any setting, e.g. --set kernels.cpu.simd=false (`infr config` lists them)
    #[arg(long, global = true, value_name = "PATH=VALUE", help_heading = "Global options")]
    pub set: Vec<String>,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Answer a message, or chat when none is given
    Run(Box<RunArgs>),
    /// Show a model's metadata and tensors
    Inspect(InspectArgs),
    /// Measure prompt and generation speed
    Bench(BenchArgs),
    /// List the devices that models can run on
    Devices,
    /// Show every setting with its value and where it came from
    Config,
    /// Write a synthetic model of a public shape (random weights), for benchmarks
    Synth(SynthArgs),
    /// Tools for engineers: logits, token ids, rendered templates
    #[command(subcommand)]
    Debug(DebugCommand),
}

/// Where to run.
#[derive(Debug, Args, Clone, Default)]
pub(crate) struct DeviceArgs {
    /// Device: cpu, or a name that `infr devices` lists
    #[arg(long, value_name = "DEVICE", help_heading = "Device")]
    pub dev: Option<String>,
    /// Context in tokens, e.g. 4096 or 32k
    #[arg(long, short = 'c', value_name = "TOKENS", help_heading = "Device")]
    pub ctx: Option<String>,
    /// Rows of a prefill chunk
    #[arg(
        long,
        short = 'u',
        visible_alias = "ubatch-size",
        value_name = "ROWS",
        help_heading = "Device"
    )]
    pub ubatch: Option<String>,
    /// CPU threads (default: all cores)
    #[arg(long, short = 't', value_name = "N", help_heading = "Device")]
    pub threads: Option<String>,
    /// Make every token's arithmetic independent of what runs beside it (slower)
    #[arg(long, help_heading = "Device")]
    pub strict: bool,
}

/// How tokens are drawn.
#[derive(Debug, Args, Clone, Default)]
pub(crate) struct SamplingArgs {
    /// Temperature, 0 is greedy (default: the model's own)
    #[arg(long, visible_alias = "temperature", value_name = "T", help_heading = "Sampling")]
    pub temp: Option<String>,
    /// Keep the K most likely tokens, 0 keeps all
    #[arg(long, value_name = "K", help_heading = "Sampling")]
    pub top_k: Option<String>,
    /// Keep the most likely tokens up to probability P
    #[arg(long, value_name = "P", help_heading = "Sampling")]
    pub top_p: Option<String>,
    /// Drop tokens less likely than this fraction of the best
    #[arg(long, value_name = "P", help_heading = "Sampling")]
    pub min_p: Option<String>,
    /// Penalty on tokens seen lately, 1 is off
    #[arg(long, value_name = "X", help_heading = "Sampling")]
    pub repeat_penalty: Option<String>,
    /// Subtracted once from tokens seen lately
    #[arg(long, value_name = "X", allow_hyphen_values = true, help_heading = "Sampling")]
    pub presence_penalty: Option<String>,
    /// Subtracted per occurrence from tokens seen lately
    #[arg(long, value_name = "X", allow_hyphen_values = true, help_heading = "Sampling")]
    pub frequency_penalty: Option<String>,
    /// Seed of the random numbers (default: the clock)
    #[arg(long, value_name = "N", help_heading = "Sampling")]
    pub seed: Option<String>,
    /// Longest answer in tokens
    #[arg(
        long,
        visible_alias = "max-new",
        short = 'n',
        value_name = "N",
        help_heading = "Sampling"
    )]
    pub max_tokens: Option<String>,
    /// Let a thinking model think
    #[arg(long, overrides_with = "no_think", help_heading = "Sampling")]
    pub think: bool,
    /// Ask a thinking model not to think
    #[arg(long, overrides_with = "think", help_heading = "Sampling")]
    pub no_think: bool,
}

/// `infr run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// demo, org/repo[:quant] or a path to a GGUF file
    pub model: String,
    /// The message; without one (and without piped input) a chat starts
    pub message: Vec<String>,
    /// System message
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,
    /// Send the message as it is, without the chat template
    #[arg(long)]
    pub raw: bool,
    /// Print load time, memory and tokens per second
    #[arg(long, short)]
    pub verbose: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub device: DeviceArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub sampling: SamplingArgs,
}

/// `infr inspect`.
#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// demo, org/repo[:quant] or a path to a GGUF file
    pub model: String,
    /// Print long values (token lists, templates) in full
    #[arg(long)]
    pub full: bool,
}

/// How a table of results is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// A Markdown table
    Md,
    /// One JSON object per line
    Jsonl,
}

/// `infr bench`.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// demo, org/repo[:quant] or a path to a GGUF file
    #[arg(value_name = "MODEL", required_unless_present = "model_flag")]
    pub model: Option<String>,
    /// The same as the first argument
    #[arg(short = 'm', long = "model", value_name = "MODEL")]
    pub model_flag: Option<String>,
    /// Prompt tokens
    #[arg(short = 'p', long, default_value_t = 512)]
    pub n_prompt: u32,
    /// Generated tokens
    #[arg(short = 'n', long, default_value_t = 128)]
    pub n_gen: u32,
    /// Tokens already in the context
    #[arg(short = 'd', long, default_value_t = 0)]
    pub n_depth: u32,
    /// Repetitions
    #[arg(short = 'r', long, visible_alias = "reps", default_value_t = 5)]
    pub repetitions: u32,
    /// How the results are printed
    #[arg(short = 'o', long, value_enum, default_value = "md")]
    pub output: OutputFormat,
    /// Rows of a prefill chunk
    #[arg(short = 'u', long = "ubatch-size", visible_alias = "ub", value_name = "ROWS")]
    pub ubatch: Option<String>,
    /// CPU threads (default: all cores)
    #[arg(short = 't', long, value_name = "N")]
    pub threads: Option<String>,
    /// Device: cpu, or a name that `infr devices` lists
    #[arg(long, value_name = "DEVICE")]
    pub dev: Option<String>,
}

/// `infr synth`.
#[derive(Debug, Args)]
pub(crate) struct SynthArgs {
    /// Shape and quant, e.g. qwen3-8b:Q4_K_M; `list` names the shapes
    pub shape: String,
    /// File to write
    pub out: Option<PathBuf>,
    /// Seed of the random weights
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// `infr debug`.
#[derive(Debug, Subcommand)]
pub(crate) enum DebugCommand {
    /// Write the logits of every position as little-endian f32 [tokens, vocabulary]
    Logits(LogitsArgs),
    /// Print the token ids of a text as a JSON list
    Tokenize(TokenizeArgs),
    /// Print a conversation as the model's template renders it
    Template(TemplateArgs),
}

/// `infr debug logits`.
#[derive(Debug, Args)]
pub(crate) struct LogitsArgs {
    /// demo, org/repo[:quant] or a path to a GGUF file
    pub model: String,
    /// File with token ids, comma or white-space separated (no BOS is added)
    #[arg(long, value_name = "FILE")]
    pub tokens: PathBuf,
    /// File to write
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub device: DeviceArgs,
}

/// `infr debug tokenize`.
#[derive(Debug, Args)]
pub(crate) struct TokenizeArgs {
    /// demo, org/repo[:quant] or a path to a GGUF file (a vocabulary alone suffices)
    pub model: String,
    /// The text
    #[arg(long, conflicts_with = "file")]
    pub text: Option<String>,
    /// File with the text (default: standard input)
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Add BOS and EOS as the model asks
    #[arg(long)]
    pub bos: bool,
}

/// `infr debug template`.
#[derive(Debug, Args)]
pub(crate) struct TemplateArgs {
    /// demo, org/repo[:quant] or a path to a GGUF file
    pub model: String,
    /// JSON file: a list of messages, or an object with messages and tools
    #[arg(long, value_name = "FILE")]
    pub messages: PathBuf,
    /// Let a thinking model think
    #[arg(long, overrides_with = "no_think")]
    pub think: bool,
    /// Ask a thinking model not to think
    #[arg(long, overrides_with = "think")]
    pub no_think: bool,
}

type FlagValues = Vec<(&'static str, String)>;

impl Cli {
    /// The layers of configuration that the command line holds.
    pub(crate) fn layers(&self) -> Layers {
        let mut flags = Vec::new();
        match &self.command {
            Some(Command::Run(run)) => {
                run.device.collect(&mut flags);
                run.sampling.collect(&mut flags);
            }
            Some(Command::Bench(bench)) => {
                let device = DeviceArgs {
                    dev: bench.dev.clone(),
                    ubatch: bench.ubatch.clone(),
                    threads: bench.threads.clone(),
                    ..DeviceArgs::default()
                };
                device.collect(&mut flags);
            }
            Some(Command::Debug(DebugCommand::Logits(logits))) => logits.device.collect(&mut flags),
            _ => {}
        }
        Layers { config: self.config.clone(), set: self.set.clone(), flags }
    }
}

fn put(out: &mut FlagValues, path: &'static str, value: Option<&String>) {
    if let Some(value) = value {
        out.push((path, value.clone()));
    }
}

impl DeviceArgs {
    fn collect(&self, out: &mut FlagValues) {
        put(out, "device.dev", self.dev.as_ref());
        put(out, "device.ctx", self.ctx.as_ref());
        put(out, "device.ubatch", self.ubatch.as_ref());
        put(out, "device.threads", self.threads.as_ref());
        if self.strict {
            out.push(("device.strict", "true".into()));
        }
    }
}

impl SamplingArgs {
    fn collect(&self, out: &mut FlagValues) {
        put(out, "sampling.temp", self.temp.as_ref());
        put(out, "sampling.top_k", self.top_k.as_ref());
        put(out, "sampling.top_p", self.top_p.as_ref());
        put(out, "sampling.min_p", self.min_p.as_ref());
        put(out, "sampling.repeat_penalty", self.repeat_penalty.as_ref());
        put(out, "sampling.presence_penalty", self.presence_penalty.as_ref());
        put(out, "sampling.frequency_penalty", self.frequency_penalty.as_ref());
        put(out, "sampling.seed", self.seed.as_ref());
        put(out, "sampling.max_tokens", self.max_tokens.as_ref());
        if self.think || self.no_think {
            out.push(("sampling.think", self.think.to_string()));
        }
    }
}
