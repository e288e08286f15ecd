//! What can be wrong with a file's vocabulary.

use infr_gguf::GgufError;

/// Why a tokenizer could not be built from a file's metadata.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// A key is missing or has another type than the format prescribes.
    #[error(transparent)]
    Metadata(#[from] GgufError),
    /// The file asks for an algorithm that is not implemented.
    #[error("tokenizer.ggml.model is {found:?}, which is not supported; supported are {known}")]
    UnsupportedModel {
        /// The name in the file.
        found: String,
        /// The supported names, joined by commas.
        known: String,
    },
    /// The file names a pre-tokenizer that is not in the table.
    #[error("tokenizer.ggml.pre is {found:?}, which is not known; known are {known}")]
    UnknownPreTokenizer {
        /// The name in the file.
        found: String,
        /// The known names, joined by commas.
        known: String,
    },
    /// An array that runs parallel to the tokens is shorter than they are.
    #[error("{key} has {found} elements for {wanted} tokens")]
    ShortArray {
        /// The array's key.
        key: &'static str,
        /// Number of tokens.
        wanted: usize,
        /// Number of elements.
        found: usize,
    },
    /// A token is to be added to every text, but the file does not say which.
    #[error("{flag} is true, but there is no valid {id}")]
    NoTokenToAdd {
        /// The key that asks for the token.
        flag: &'static str,
        /// The key that should name it.
        id: &'static str,
    },
    /// More tokens than ids have room for.
    #[error("the vocabulary has {found} tokens; at most {limit} are supported")]
    TooManyTokens {
        /// Number of tokens.
        found: usize,
        /// The largest number supported.
        limit: usize,
    },
}
