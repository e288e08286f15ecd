//! What can be wrong with a model, with the values needed to act on it.

use infr_gguf::GgufError;
use infr_graph::GraphError;

/// An error of loading a model or building its program.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The file cannot be read, or a key is missing or has the wrong type.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// No family knows the architecture.
    #[error("architecture {found:?} is not supported; supported are {supported}")]
    UnknownArchitecture {
        /// The architecture in the file.
        found: String,
        /// All that are supported, separated by commas.
        supported: String,
    },
    /// A key has a value that the model cannot have.
    #[error("key {key:?} is {found}, but {allowed}")]
    Value {
        /// The key.
        key: String,
        /// Its value.
        found: String,
        /// What is allowed, as a clause: "at most 8 is allowed".
        allowed: String,
    },
    /// A tensor is missing.
    #[error("tensor {name:?} of shape {wanted} is missing")]
    MissingTensor {
        /// Its name.
        name: String,
        /// Its shape in GGUF order.
        wanted: String,
    },
    /// A tensor has another shape than the metadata asks for.
    #[error("tensor {name:?} should have shape {wanted} but has {found}")]
    TensorShape {
        /// Its name.
        name: String,
        /// The shape wanted, in GGUF order.
        wanted: String,
        /// The shape found, in GGUF order.
        found: String,
    },
    /// The file asks for something that this crate does not compute.
    #[error("{what} is not supported")]
    Unsupported {
        /// What it asks for.
        what: String,
    },
    /// A model file built a graph that breaks the rules of the IR.
    #[error("the graph of the model is invalid: {0}")]
    Graph(#[from] GraphError),
}
