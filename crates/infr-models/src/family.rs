//! The two traits that a model family implements, and what a model says about itself.

use std::collections::HashSet;

use infr_gguf::Gguf;
use infr_graph::{Program, WeightFrom};

use crate::error::ModelError;
use crate::options::BuildOptions;
use crate::synth::recipe::Recipe;
use crate::table::TensorTable;

/// A model family: a set of architecture names with one way to compute.
pub trait Family: Sync {
    /// Values of `general.architecture` that it takes.
    fn archs(&self) -> &'static [&'static str];

    /// Reads and checks the hyper-parameters of a file.
    ///
    /// # Errors
    /// When a key is missing or has a value that the family cannot have.
    fn parse(&self, gguf: &Gguf) -> Result<Box<dyn Model>, ModelError>;

    /// Tiny random models for tests, one per variant; `unit` (64 or 256) divides every row that the
    /// file's block types cut.
    fn tiny(&self, unit: u32) -> Vec<Recipe>;
}

/// A model whose hyper-parameters have been read.
pub trait Model: Send + Sync {
    /// What it says about itself.
    fn info(&self) -> &ModelInfo;

    /// Builds its graphs over a table of tensors.
    ///
    /// # Errors
    /// When a tensor is missing or has another shape than the hyper-parameters ask for.
    fn build(
        &self,
        tensors: &dyn TensorTable,
        options: &BuildOptions,
    ) -> Result<Program, ModelError>;

    /// Builds its graphs over the tensors of a file.
    ///
    /// # Errors
    /// As [`Model::build`].
    fn program(&self, gguf: &Gguf, options: &BuildOptions) -> Result<Program, ModelError> {
        let program = self.build(gguf, options)?;
        log_unused(gguf, &program);
        Ok(program)
    }
}

/// A tensor that no graph reads is no fault, but it may be one of the file or of this crate.
fn log_unused(gguf: &Gguf, program: &Program) {
    let mut used = HashSet::new();
    for weight in &program.weights {
        match &weight.source {
            WeightFrom::Tensor(name) => drop(used.insert(name.as_str())),
            WeightFrom::Concat(names) => used.extend(names.iter().map(String::as_str)),
            WeightFrom::Const(_) => {}
        }
    }
    let mut unused = gguf.tensors().iter().filter(|t| !used.contains(t.name.as_str()));
    if let Some(first) = unused.next() {
        tracing::debug!(first = first.name, count = 1 + unused.count(), "tensors without a use");
    }
}

/// What a model says about itself.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelInfo {
    /// Value of `general.architecture`.
    pub architecture: String,
    /// Value of `general.name`.
    pub name: Option<String>,
    /// Layers of the trunk, without multi-token prediction blocks.
    pub layers: u32,
    /// Width of the residual stream.
    pub embedding: u32,
    /// Tokens in the vocabulary.
    pub vocab: u32,
    /// Positions the model was trained for.
    pub context_length: u32,
    /// Experts and experts used per token; `None` for dense models.
    pub experts: Option<(u32, u32)>,
    /// Whether the file has a multi-token prediction block that this crate can build.
    pub draft: bool,
    /// How it makes tokens or vectors.
    pub style: DecodeStyle,
    /// How its tokens are drawn unless the user says otherwise.
    pub sampling: SamplingDefaults,
    /// Elements of all tensors in the file.
    pub parameters: u64,
}

/// How a model is run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum DecodeStyle {
    /// One token after another.
    Autoregressive,
    /// Blocks of tokens that are denoised together.
    BlockDiffusion(Diffusion),
    /// A vector per sequence.
    Embedding {
        /// How the rows of a sequence become one.
        pooling: Pooling,
        /// Whether rows see only what stands before them. When not, all rows of a sequence have to
        /// be in one batch.
        causal: bool,
    },
}

/// Parameters of block diffusion.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Diffusion {
    /// Rows of a canvas.
    pub canvas: u32,
    /// Steps at most per block.
    pub max_steps: u32,
    /// Temperature of the last step.
    pub t_min: f32,
    /// Temperature before the first step.
    pub t_max: f32,
    /// Sum of entropies up to which rows are accepted.
    pub entropy_bound: f32,
    /// Steps for which the canvas has to stay equal.
    pub stability_threshold: u32,
    /// Mean entropy below which a block may end early.
    pub confidence_threshold: f32,
    /// The mask token of the vocabulary, if it has one.
    pub mask_token: Option<u32>,
}

/// How the rows of a sequence become one vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pooling {
    /// The average of all rows.
    Mean,
    /// The row of the lowest position.
    Cls,
    /// The row of the highest position.
    Last,
    /// The last row through a classification head; `Output::Logits` are the classes.
    Rank,
}

/// Sampling parameters that a file or its family recommends.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SamplingDefaults {
    /// Divides the logits.
    pub temperature: Option<f32>,
    /// Keep this many tokens; 0 keeps all.
    pub top_k: Option<u32>,
    /// Keep tokens up to this probability.
    pub top_p: Option<f32>,
    /// Drop tokens less likely than this fraction of the most likely one.
    pub min_p: Option<f32>,
    /// Penalty on tokens seen.
    pub repeat_penalty: Option<f32>,
}
