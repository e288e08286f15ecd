//! What can be wrong with the tables, and asks that they cannot answer.

use infr_tensor::DType;

/// An error of a kernel table, a tuning file or a selection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KernelError {
    /// The text is not what the schema says.
    #[error("{file}: {what}")]
    Syntax {
        /// Which text.
        file: &'static str,
        /// What is wrong, with its place.
        what: String,
    },
    /// A name is not known.
    #[error("{file}: {what} `{name}` does not exist")]
    Unknown {
        /// Which text.
        file: &'static str,
        /// What the name should name.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// No variant answers the ask.
    #[error("no kernel {family} for {quant:?}")]
    NoKernel {
        /// Name of the kernel.
        family: &'static str,
        /// The weight type.
        quant: Option<DType>,
    },
    /// A specialisation constant has no value, or a value has no constant.
    #[error("kernel {family}: constant `{name}` {what}")]
    Constant {
        /// Name of the kernel.
        family: &'static str,
        /// Name of the constant.
        name: String,
        /// What is wrong with it.
        what: &'static str,
    },
}
