//! Random model files: tiny ones of every family for tests, and ones with the shapes of public models
//! for measuring speed where no download is wanted.
//!
//! A file has a vocabulary that decodes, a chat template and weights that keep activations finite; it
//! says nothing of sense. llama.cpp loads what is written here.
//!
//! Reading order: [`recipe`], `record` (where tensors and shapes come from), `mix` (types), `fill`
//! (contents), `vocab`, [`shapes`].

mod fill;
mod mix;
pub mod recipe;
mod record;
pub mod shapes;
mod vocab;

use std::collections::HashMap;
use std::io::{BufWriter, Write};
use std::path::Path;

use infr_gguf::write::Writer;
use infr_gguf::{Gguf, GgufError, TensorType};
use infr_tensor::DType;

use crate::error::ModelError;
use crate::options::BuildOptions;
use crate::registry::{FAMILIES, parse};
use crate::synth::fill::{Fill, Random};
use crate::synth::mix::{Facts, Kind, Mix};
pub use crate::synth::recipe::Recipe;
use crate::synth::record::{Recorder, Wanted};

/// Bytes of random blocks made per tensor; longer tensors repeat them.
const CHUNK: usize = 4 << 20;

/// An error of making a random model.
#[derive(Debug, thiserror::Error)]
pub enum SynthError {
    /// No recipe has this name.
    #[error("{found:?} is not known; there are {known}")]
    Unknown {
        /// The name asked for.
        found: String,
        /// All names, separated by commas.
        known: String,
    },
    /// The recipe makes no valid model.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The file cannot be written.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// The file cannot be created.
    #[error("{}: {source}", file.display())]
    Io {
        /// The file.
        file: std::path::PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

/// The tiny models of all families: those for tests in the file type `mix`.
///
/// Widths are 64, or 256 where the mix's blocks ask for it.
pub fn tiny_recipes(mix: &str) -> Vec<Recipe> {
    let unit = match Mix::by_name(mix) {
        Some(mix) if mix.block_len() > 32 => 256,
        _ => 64,
    };
    FAMILIES.iter().flat_map(|f| f.tiny(unit)).collect()
}

/// A tiny model as bytes of a file; `name` is a recipe's name, `mix` a file type such as `F32` or
/// `Q4_K_M`.
///
/// # Errors
/// When a name is unknown.
pub fn tiny(name: &str, seed: u64, mix: &str) -> Result<Vec<u8>, SynthError> {
    let recipes = tiny_recipes(mix);
    let recipe = recipes.iter().find(|r| r.name == name).ok_or_else(|| {
        let known: Vec<&str> = recipes.iter().map(|r| r.name.as_str()).collect();
        SynthError::Unknown { found: name.to_owned(), known: known.join(", ") }
    })?;
    let mut out = Vec::new();
    write(recipe, mix, seed, &mut out, &mut |_, _| {})?;
    Ok(out)
}

/// Writes a file with the shape of a public model: `spec` is `qwen3-8b` or `qwen3-8b:Q4_K_M`.
/// `progress` is told bytes written and bytes in all.
///
/// # Errors
/// When a name is unknown or the file cannot be written.
pub fn write_file(
    spec: &str,
    seed: u64,
    path: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), SynthError> {
    let (name, mix) = spec.split_once(':').unwrap_or((spec, ""));
    let shape = shapes::find(name)?;
    let mix = if mix.is_empty() { shape.mix } else { mix };
    let io = |source| SynthError::Io { file: path.to_path_buf(), source };
    let file = std::fs::File::create(path).map_err(io)?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    write(&(shape.recipe)(), mix, seed, &mut out, progress)?;
    out.flush().map_err(io)
}

/// Writes a recipe's model in the file type `mix`.
///
/// # Errors
/// When the mix is unknown, the recipe invalid or `out` fails.
pub fn write<W: Write>(
    recipe: &Recipe,
    mix: &str,
    seed: u64,
    out: W,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), SynthError> {
    let writer = plan(recipe, mix)?;
    let total = writer.tensors().iter().map(|t| t.bytes).sum();
    let mut data = writer.begin(out)?;
    let mut done = 0;
    while let Some(tensor) = data.next_tensor().cloned() {
        let TensorType::Known(dtype) = tensor.dtype else { break };
        let chunk = CHUNK / dtype.block_bytes() * dtype.block_bytes();
        let len = usize::try_from(tensor.bytes).unwrap_or(usize::MAX).min(chunk);
        let mut blocks = vec![0; len];
        let fill = Fill::of(&tensor.name, tensor.dims[0], recipe);
        fill.write(dtype, &mut Random::new(seed, &tensor.name), &mut blocks);
        let mut left = tensor.bytes;
        while left > 0 {
            let now = left.min(len as u64);
            data.write_chunk(&blocks[..now as usize])?;
            left -= now;
            done += now;
            progress(done, total);
        }
    }
    data.finish()?;
    Ok(())
}

/// The header of a recipe's file in the file type `mix`: keys, and tensors with types and shapes.
///
/// # Errors
/// When the mix is unknown or the recipe invalid.
pub fn plan(recipe: &Recipe, mix: &str) -> Result<Writer, SynthError> {
    let mix = Mix::by_name(mix).ok_or_else(|| {
        let known: Vec<&str> = mix::MIXES.iter().map(|m| m.name).collect();
        SynthError::Unknown { found: mix.to_owned(), known: known.join(", ") }
    })?;
    let mut writer = header(recipe, mix);
    for (tensor, dtype) in typed(recipe, mix, wanted(recipe, &writer)?) {
        writer.tensor(&tensor.name, &tensor.dims, TensorType::Known(dtype))?;
    }
    Ok(writer)
}

/// The key-value section of a recipe's file.
fn header(recipe: &Recipe, mix: Mix) -> Writer {
    let mut writer = Writer::new();
    writer.set("general.architecture", recipe.arch);
    writer.set("general.name", format!("{} (random weights)", recipe.name));
    writer.set("general.file_type", mix.file_type);
    writer.set("general.quantization_version", 2u32);
    for (key, value) in &recipe.keys {
        match key.strip_prefix('.') {
            Some(suffix) => writer.set(&format!("{}.{suffix}", recipe.arch), value.clone()),
            None => writer.set(key, value.clone()),
        };
    }
    writer.set(&format!("{}.vocab_size", recipe.arch), recipe.vocab);
    vocab::write(&mut writer, recipe.vocab);
    writer
}

/// The tensors that a recipe's model declares.
fn wanted(recipe: &Recipe, header: &Writer) -> Result<Vec<Wanted>, SynthError> {
    let bytes = header.clone().begin(Vec::new())?.finish()?;
    let gguf = Gguf::from_bytes(&recipe.name, bytes)?;
    let model = parse(&gguf)?;
    let recorder = Recorder::new(recipe);
    let options = BuildOptions { draft: model.info().draft, ..BuildOptions::default() };
    model.build(&recorder, &options)?;
    Ok(recorder.into_wanted())
}

/// The type of each tensor.
fn typed(recipe: &Recipe, mix: Mix, tensors: Vec<Wanted>) -> Vec<(Wanted, DType)> {
    let heads = recipe.number(".attention.head_count").unwrap_or(1);
    let kv_heads = recipe.number(".attention.head_count_kv").unwrap_or(heads);
    let facts = Facts {
        layers: recipe.number(".block_count").unwrap_or(1),
        gqa: heads / kv_heads.max(1),
        experts: recipe.number(".expert_count").unwrap_or(0),
        untied: recipe.has("output.weight") || tensors.iter().any(|t| t.name == "output.weight"),
    };
    let mut seen: HashMap<(Kind, String), u32> = HashMap::new();
    let dtype = |tensor: &Wanted| {
        if mix::is_plain(&tensor.name, &tensor.dims) {
            return DType::F32;
        }
        let kind = Kind::of(&tensor.name, facts);
        let short = tensor.name.rsplit('.').nth(1).unwrap_or_default().to_owned();
        let index = seen.entry((kind, short)).or_insert(0);
        let dtype = mix.dtype(kind, *index, tensor.dims[0], facts);
        *index += 1;
        dtype
    };
    let types: Vec<DType> = tensors.iter().map(dtype).collect();
    tensors.into_iter().zip(types).collect()
}
