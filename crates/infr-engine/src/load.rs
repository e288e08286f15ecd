//! From a loaded model file to what the engine starts with.

use std::sync::Arc;

use infr_backend::Backend;
use infr_models::{BuildOptions, DecodeStyle, Loaded};

use crate::engine::{EngineOptions, EngineSource};
use crate::error::EngineError;
use crate::placement::Plan;

impl EngineSource {
    /// Builds the program of a model for the context that it is to have: the wanted one, or what
    /// the model was trained for, or as much of that as memory holds. `build.context` does not
    /// count.
    ///
    /// # Errors
    /// When the program cannot be built or memory does not suffice.
    pub fn from_model(
        backend: Arc<dyn Backend>,
        loaded: &Loaded,
        options: &EngineOptions,
        build: BuildOptions,
    ) -> Result<EngineSource, EngineError> {
        let info = loaded.model.info();
        let (causal, diffusion) = match info.style {
            DecodeStyle::Autoregressive => (true, None),
            DecodeStyle::Embedding { causal, .. } => (causal, None),
            DecodeStyle::BlockDiffusion(rule) => (true, Some(rule)),
        };
        let context = options.context.unwrap_or(info.context_length);
        let program = |context| {
            let build = BuildOptions { context, ..build };
            let program = loaded.model.program(&loaded.gguf, &build)?;
            Ok::<_, EngineError>(Arc::new(program))
        };
        let mut source = EngineSource {
            backend,
            program: program(context)?,
            weights: Arc::new(loaded.weights()),
            vocab: info.vocab,
            context,
            causal,
            diffusion,
        };
        let plan = Plan::for_source(&source, options)?;
        if plan.context < context {
            source.program = program(plan.context)?;
            source.context = plan.context;
        }
        Ok(source)
    }
}
