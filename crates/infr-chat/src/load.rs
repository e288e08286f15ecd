//! Opens a model file: engine, tokenizer and template in one.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use infr_backend::Backend;
use infr_engine::{Engine, EngineOptions, EngineSource};
use infr_gguf::Gguf;
use infr_models::{BuildOptions, DecodeStyle, ModelInfo};
use infr_text::template::{ChatTemplate, SpecialTexts};
use infr_text::tokenizer::Tokenizer;

use crate::error::ChatError;

/// Choices of the caller.
#[derive(Clone)]
pub struct LoadOptions {
    /// Runs the model.
    pub backend: Arc<dyn Backend>,
    /// Sizes of the engine.
    pub engine: EngineOptions,
    /// Types of the caches.
    pub build: BuildOptions,
}

/// A model that is ready to answer.
#[derive(Debug)]
pub struct ChatModel {
    pub(crate) engine: Engine,
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) template: Result<ChatTemplate, Arc<ChatError>>,
    pub(crate) tool_template: Option<ChatTemplate>,
    pub(crate) info: ModelInfo,
    path: PathBuf,
    load_time: Duration,
}

impl ChatModel {
    /// Opens the model in `path`.
    ///
    /// # Errors
    /// When the file, its model, its vocabulary or the device does not work out. A broken template
    /// is an error of the first request that needs it, so that raw prompts still run.
    pub fn open(path: &Path, options: &LoadOptions) -> Result<ChatModel, ChatError> {
        let start = Instant::now();
        let shown = || path.display().to_string();
        let gguf = Arc::new(Gguf::open(path)?);
        let tokenizer = tokenizer(&gguf)?;
        let loaded = infr_models::from_gguf(Arc::clone(&gguf))
            .map_err(|source| ChatError::Model { path: shown(), source })?;
        let info = loaded.model.info().clone();
        if matches!(info.style, DecodeStyle::Embedding { .. }) {
            return Err(ChatError::NotAChatModel(shown()));
        }
        let backend = Arc::clone(&options.backend);
        let source = EngineSource::from_model(backend, &loaded, &options.engine, options.build)?;
        let engine = Engine::start(source, options.engine.clone())?;
        let template = ChatTemplate::from_metadata(gguf.metadata(), false, specials(&tokenizer));
        let named = gguf.metadata().get("tokenizer.chat_template.tool_use").is_some();
        let tool_template = match named {
            true => Some(ChatTemplate::from_metadata(gguf.metadata(), true, specials(&tokenizer))?),
            false => None,
        };
        Ok(ChatModel {
            engine,
            template: template.map_err(|e| Arc::new(ChatError::from(e))),
            tool_template,
            tokenizer,
            info,
            path: path.to_path_buf(),
            load_time: start.elapsed(),
        })
    }

    /// What the model says about itself.
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// Its engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Its tokenizer.
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.tokenizer
    }

    /// The file it came from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How long opening it took.
    pub fn load_time(&self) -> Duration {
        self.load_time
    }
}

/// The tokenizer of a file.
///
/// # Errors
/// When the file has no vocabulary that can be used.
pub fn tokenizer(gguf: &Gguf) -> Result<Arc<Tokenizer>, ChatError> {
    let path = || gguf.path().display().to_string();
    Tokenizer::from_metadata(gguf.metadata())
        .map(Arc::new)
        .map_err(|source| ChatError::Tokenizer { path: path(), source })
}

/// The template of a file, for tools that render without running.
///
/// # Errors
/// When the template does not compile.
pub fn template(gguf: &Gguf, with_tools: bool) -> Result<ChatTemplate, ChatError> {
    let tokenizer = tokenizer(gguf)?;
    Ok(ChatTemplate::from_metadata(gguf.metadata(), with_tools, specials(&tokenizer))?)
}

fn specials(tokenizer: &Tokenizer) -> SpecialTexts {
    let text = |id: Option<u32>| {
        id.and_then(|id| tokenizer.piece(id)).map(|p| p.into_owned()).unwrap_or_default()
    };
    SpecialTexts { bos: text(tokenizer.bos()), eos: text(tokenizer.eos()) }
}
