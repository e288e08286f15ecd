//! Compiles every kernel variant of `kernels.toml` to SPIR-V and writes the table that the library includes.
//!
//! A variant is its kernel's source with `#include "quant"` replaced by the file of its weight type. Modules
//! are kept in `OUT_DIR` under a hash of their expanded source and of the compiler, so that a change of one
//! file compiles only the variants that include it.

#![allow(clippy::disallowed_methods)] // Build scripts are configured through the environment.

mod compiler;
mod source;

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs, thread};

use infr_kernels::{Table, Variant};
use sha2::{Digest, Sha256};

use compiler::Compiler;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// A compiled variant.
struct Module {
    name: String,
    file: PathBuf,
    hash: [u8; 32],
}

fn main() -> Result<()> {
    println!("cargo:rerun-if-changed=shaders");
    println!("cargo:rerun-if-changed=kernels.toml");
    println!("cargo:rerun-if-changed=build");
    println!("cargo:rerun-if-env-changed=GLSLC");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let shaders = Path::new("shaders");
    let table = Table::parse(&fs::read_to_string("kernels.toml")?)?;
    let compiler = Compiler::find(&fs::read_to_string(shaders.join("probe.comp"))?, &out)?;
    let modules = compile_all(&table, shaders, &compiler, &out)?;
    fs::write(out.join("generated.rs"), generated(&modules)?)?;
    Ok(())
}

/// Compiles all variants on all processors; the result stands in the order of the table.
fn compile_all(
    table: &Table,
    shaders: &Path,
    compiler: &Compiler,
    out: &Path,
) -> Result<Vec<Module>> {
    let cache = out.join("spv");
    fs::create_dir_all(&cache)?;
    let variants = table.variants();
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<Option<Result<Module>>>> =
        Mutex::new(variants.iter().map(|_| None).collect());
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(variant) = variants.get(index) else { return };
                    let result = compile_one(table, variant, shaders, compiler, &cache);
                    if let Ok(mut done) = done.lock() {
                        done[index] = Some(result);
                    }
                }
            });
        }
    });
    let done = done.into_inner().map_err(|_| "a compiling thread panicked")?;
    done.into_iter().map(|m| m.unwrap_or_else(|| Err("a variant was left out".into()))).collect()
}

fn compile_one(
    table: &Table,
    variant: &Variant,
    shaders: &Path,
    compiler: &Compiler,
    cache: &Path,
) -> Result<Module> {
    let name = variant.name();
    let kernel = table.kernel(variant.family).ok_or("a variant has no kernel")?;
    let quant = variant.quant.map(|q| format!("quant/{}.glsl", q.name().to_lowercase()));
    let text = source::expand(shaders, &kernel.source, quant.as_deref())?;
    let hash: [u8; 32] =
        Sha256::new().chain_update(compiler.identity()).chain_update(&text).finalize().into();
    let key = hash.iter().fold(String::new(), |s, b| s + &format!("{b:02x}"));
    let file = cache.join(format!("{key}.spv"));
    if !file.exists() {
        let words = compiler.compile(&name, &text, cache)?;
        let partial = cache.join(format!("{key}.tmp"));
        fs::write(&partial, words)?;
        fs::rename(&partial, &file)?;
    }
    Ok(Module { name, file, hash })
}

/// The table as Rust source.
fn generated(modules: &[Module]) -> Result<String> {
    let mut text = String::from("pub(crate) static MODULES: &[Module] = &[\n");
    let mut all = Sha256::new();
    for Module { name, file, hash } in modules {
        all.update(hash);
        writeln!(text, "    Module {{ name: {name:?}, code: include_bytes!({file:?}) }},")?;
    }
    let all: [u8; 32] = all.finalize().into();
    writeln!(text, "];\n\npub(crate) static SHADER_HASH: [u8; 32] = {all:?};")?;
    Ok(text)
}
