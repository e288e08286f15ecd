//! The table of families, and the way from a file to a model.

use std::path::Path;
use std::sync::Arc;

use infr_gguf::Gguf;

use crate::error::ModelError;
use crate::families;
use crate::family::{Family, Model};
use crate::weights::GgufWeights;

/// All families.
pub static FAMILIES: &[&dyn Family] = &[
    &families::llama::Llama,
    &families::llama4::Llama4,
    &families::qwen2::Qwen2,
    &families::qwen3::Qwen3,
    &families::qwen35::Qwen35,
    &families::gemma2::Gemma2,
    &families::gemma3::Gemma3,
    &families::gemma4::Gemma4,
    &families::diffusion_gemma::DiffusionGemma,
    &families::gpt_oss::GptOss,
    &families::bitnet::Bitnet,
    &families::mistral3::Mistral3,
    &families::phi3::Phi3,
    &families::deepseek2::Deepseek2,
    &families::glm4moe::Glm4Moe,
    &families::granite::Granite,
    &families::lfm2::Lfm2,
    &families::olmo2::Olmo2,
    &families::smollm3::Smollm3,
];

/// A file with the model that its metadata describes.
pub struct Loaded {
    /// The file.
    pub gguf: Arc<Gguf>,
    /// The model.
    pub model: Box<dyn Model>,
}

impl Loaded {
    /// The bytes of the model's weights.
    pub fn weights(&self) -> GgufWeights {
        GgufWeights(self.gguf.clone())
    }
}

impl std::fmt::Debug for Loaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Loaded({}, {:?})", self.gguf.path().display(), self.model.info())
    }
}

/// Opens a file and reads the model's hyper-parameters.
///
/// # Errors
/// When the file is unreadable, its architecture unknown or a key missing or not allowed.
pub fn load(path: &Path) -> Result<Loaded, ModelError> {
    from_gguf(Arc::new(Gguf::open(path)?))
}

/// Reads the hyper-parameters of a file that is open.
///
/// # Errors
/// As [`load`].
pub fn from_gguf(gguf: Arc<Gguf>) -> Result<Loaded, ModelError> {
    let model = parse(&gguf)?;
    Ok(Loaded { gguf, model })
}

/// The model that a file's metadata describes.
pub(crate) fn parse(gguf: &Gguf) -> Result<Box<dyn Model>, ModelError> {
    let arch = gguf.metadata().architecture()?;
    let family = FAMILIES.iter().find(|f| f.archs().contains(&arch));
    let Some(family) = family else {
        return Err(ModelError::UnknownArchitecture {
            found: arch.to_owned(),
            supported: architectures().join(", "),
        });
    };
    family.parse(gguf)
}

/// All supported values of `general.architecture`, sorted.
pub fn architectures() -> Vec<&'static str> {
    let mut all: Vec<&str> = FAMILIES.iter().flat_map(|f| f.archs().iter().copied()).collect();
    all.sort_unstable();
    all
}
