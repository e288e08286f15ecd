//! The shader compilers: `$GLSLC`, a `glslc` on PATH, or the built-in glslang, in this order.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

use super::Result;

/// What compiles.
pub(crate) enum Compiler {
    /// A `glslc` program and what it says about itself.
    Program { path: String, version: String },
    /// The built-in glslang.
    #[cfg(feature = "bundled-glslang")]
    Bundled,
}

impl Compiler {
    /// The first compiler that can build the probe, a shader with every extension in use.
    pub(crate) fn find(probe: &str, out: &Path) -> Result<Compiler> {
        if let Ok(path) = env::var("GLSLC") {
            let program = Compiler::program(&path);
            return match program.compile("probe", probe, out) {
                Ok(_) => Ok(program),
                Err(e) => {
                    Err(format!("$GLSLC ({path}) cannot compile shaders/probe.comp: {e}").into())
                }
            };
        }
        let program = Compiler::program("glslc");
        if program.compile("probe", probe, out).is_ok() {
            println!("cargo:warning=infr-vulkan: shaders are compiled by the glslc on PATH");
            return Ok(program);
        }
        Compiler::bundled()
    }

    fn program(path: &str) -> Compiler {
        let said = Command::new(path).arg("--version").output();
        let version = said.map(|o| String::from_utf8_lossy(&o.stdout).into_owned());
        Compiler::Program { path: path.to_owned(), version: version.unwrap_or_default() }
    }

    #[cfg(feature = "bundled-glslang")]
    fn bundled() -> Result<Compiler> {
        Ok(Compiler::Bundled)
    }

    #[cfg(not(feature = "bundled-glslang"))]
    fn bundled() -> Result<Compiler> {
        Err("no shader compiler: enable the feature `bundled-glslang` (needs a C++17 compiler), \
             or install a current glslc (set GLSLC to its path when it is not on PATH)"
            .into())
    }

    /// Tells compilers apart whose output may differ.
    pub(crate) fn identity(&self) -> &str {
        match self {
            Compiler::Program { version, .. } => version,
            #[cfg(feature = "bundled-glslang")]
            Compiler::Bundled => "glslang 0.9.1",
        }
    }

    /// Compiles one shader to SPIR-V.
    pub(crate) fn compile(&self, name: &str, text: &str, dir: &Path) -> Result<Vec<u8>> {
        match self {
            Compiler::Program { path, .. } => run(path, name, text, dir),
            #[cfg(feature = "bundled-glslang")]
            Compiler::Bundled => bundled_glslang(name, text),
        }
    }
}

fn run(glslc: &str, name: &str, text: &str, dir: &Path) -> Result<Vec<u8>> {
    let (input, output) = (dir.join(format!("{name}.comp")), dir.join(format!("{name}.out")));
    fs::write(&input, text)?;
    let done = Command::new(glslc)
        .args(["--target-env=vulkan1.3", "-o"])
        .args([&output, &input])
        .output()
        .map_err(|e| format!("{glslc}: {e}"))?;
    if !done.status.success() {
        return Err(format!("{name}:\n{}", String::from_utf8_lossy(&done.stderr)).into());
    }
    let code = fs::read(&output)?;
    fs::remove_file(&output)?;
    Ok(code)
}

#[cfg(feature = "bundled-glslang")]
fn bundled_glslang(name: &str, text: &str) -> Result<Vec<u8>> {
    use glslang::{
        Compiler, CompilerOptions, ShaderInput, ShaderSource, ShaderStage, SourceLanguage,
        SpirvVersion, Target, VulkanVersion,
    };
    let compiler = Compiler::acquire().ok_or("glslang does not start")?;
    let target =
        Target::Vulkan { version: VulkanVersion::Vulkan1_3, spirv_version: SpirvVersion::SPIRV1_6 };
    let options = CompilerOptions {
        source_language: SourceLanguage::GLSL,
        target,
        ..CompilerOptions::default()
    };
    let source = ShaderSource::from(text);
    let defines = None::<&[(&str, Option<&str>)]>;
    let fail = |e: glslang::error::GlslangError| format!("{name}: {e}");
    let input =
        ShaderInput::new(&source, ShaderStage::Compute, &options, defines, None).map_err(fail)?;
    let words = compiler.create_shader(input).map_err(fail)?.compile().map_err(fail)?;
    Ok(words.iter().flat_map(|w| w.to_le_bytes()).collect())
}
