//! What a request or the engine can fail with.

use std::sync::Arc;

use infr_backend::BackendError;
use infr_models::ModelError;

use crate::placement::PlanError;

/// An error of the engine. It is cheap to clone: one failure may end many requests.
#[derive(Debug, Clone, thiserror::Error)]
pub enum EngineError {
    /// The prompt leaves no room for a single new token.
    #[error("the prompt has {prompt} tokens, the context holds {context}{}", blocks(*.block))]
    TooLong {
        /// Tokens of the prompt.
        prompt: u32,
        /// Tokens that one sequence may have.
        context: u32,
        /// New tokens come in blocks of this many rows.
        block: u32,
    },
    /// The prompt has no token.
    #[error("the prompt is empty")]
    EmptyPrompt,
    /// A prompt token is outside the vocabulary.
    #[error("prompt token {index} is {token}, the vocabulary has {vocab}")]
    BadToken {
        /// Place in the prompt.
        index: u32,
        /// The token.
        token: u32,
        /// Size of the vocabulary.
        vocab: u32,
    },
    /// The model has no such output.
    #[error("the model gives no {0}")]
    NoOutput(&'static str),
    /// As many requests wait as may.
    #[error("{limit} requests are waiting already")]
    QueueFull {
        /// The limit.
        limit: u32,
    },
    /// The engine finishes its requests and takes no new ones.
    #[error("the engine is shutting down")]
    Draining,
    /// The engine's thread has ended.
    #[error("the engine has stopped")]
    Stopped,
    /// The constraint allows no token at all.
    #[error("the constraint allows no token after {generated} generated ones")]
    ConstraintStuck {
        /// Tokens generated so far.
        generated: u32,
    },
    /// The constraint refused a token that its own mask allowed.
    #[error("the constraint refused token {token}")]
    ConstraintRefused {
        /// The token.
        token: u32,
    },
    /// Memory does not suffice for the model with these options.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The device failed.
    #[error(transparent)]
    Backend(Arc<BackendError>),
    /// The model's file does not make a program.
    #[error(transparent)]
    Model(Arc<ModelError>),
    /// The program lacks the graph of the model's way to decode.
    #[error("the program has no graph for {0}")]
    NoGraph(&'static str),
    /// A block of tokens is drawn together, so nothing can depend on the token before.
    #[error("models that write in blocks take no {0}")]
    InBlocks(&'static str),
    /// The operating system gave no thread.
    #[error("cannot start the engine's thread: {0}")]
    Thread(String),
}

fn blocks(block: u32) -> String {
    match block {
        0 | 1 => String::new(),
        _ => format!(" and the answer comes in blocks of {block}"),
    }
}

impl From<BackendError> for EngineError {
    fn from(error: BackendError) -> EngineError {
        EngineError::Backend(Arc::new(error))
    }
}

impl From<ModelError> for EngineError {
    fn from(error: ModelError) -> EngineError {
        EngineError::Model(Arc::new(error))
    }
}
