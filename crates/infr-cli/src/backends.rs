//! The choice of backend: the only file of the program that names one.

use std::sync::Arc;

use anyhow::{Result, bail};
use infr_backend::Backend;
use infr_cpu::{CpuBackend, CpuOptions};

use crate::config::Settings;

/// Every backend that can be used here.
pub(crate) fn all(settings: &Settings) -> Vec<Arc<dyn Backend>> {
    vec![cpu(settings, settings.cpu_simd.unwrap_or(true))]
}

/// The CPU, with or without SIMD kernels.
pub(crate) fn cpu(settings: &Settings, simd: bool) -> Arc<dyn Backend> {
    Arc::new(CpuBackend::new(CpuOptions {
        simd,
        threads: settings.threads.unwrap_or(0),
        strict: settings.strict,
        ..CpuOptions::default()
    }))
}

/// The backend of the device that the settings name, or the best one.
///
/// # Errors
/// When no device has that name; the message lists those there are.
pub(crate) fn choose(settings: &Settings) -> Result<Arc<dyn Backend>> {
    let backends = all(settings);
    let wanted = settings.dev.as_deref();
    let has = |backend: &Arc<dyn Backend>, name: &str| {
        backend.devices().iter().any(|d| d.id.eq_ignore_ascii_case(name))
    };
    let found = match wanted {
        Some(name) => backends.iter().find(|b| has(b, name)),
        None => backends.first(),
    };
    match found {
        Some(backend) => Ok(Arc::clone(backend)),
        None => {
            let names: Vec<&str> =
                backends.iter().flat_map(|b| b.devices().iter().map(|d| d.id.as_str())).collect();
            bail!(
                "there is no device '{}'; there are: {}",
                wanted.unwrap_or_default(),
                names.join(", ")
            )
        }
    }
}
