//! What a chat can fail with.

use infr_engine::EngineError;
use infr_gguf::GgufError;
use infr_models::ModelError;
use infr_text::template::TemplateError;
use infr_text::tokenizer::TokenizerError;

/// An error of loading a model or answering a request.
#[derive(Debug, thiserror::Error)]
pub enum ChatError {
    /// The file cannot be read.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// The model cannot be built.
    #[error("{path}: {source}")]
    Model {
        /// The file.
        path: String,
        /// Why.
        source: ModelError,
    },
    /// The vocabulary cannot be used.
    #[error("{path}: {source}")]
    Tokenizer {
        /// The file.
        path: String,
        /// Why.
        source: TokenizerError,
    },
    /// The template rejects or cannot render the conversation.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// The model's template does not compile.
    #[error("the model's chat template cannot be used (--raw sends text as it is): {0}")]
    BrokenTemplate(std::sync::Arc<ChatError>),
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The model makes vectors, not text.
    #[error("{0} is an embedding model: it makes vectors and cannot answer")]
    NotAChatModel(String),
}
