//! The choice of device: the only file of the program that names a backend.

use std::sync::Arc;

use anyhow::{Result, bail};
use infr_backend::{Backend, DeviceInfo, DeviceKind};
use infr_cpu::{CpuBackend, CpuOptions};
use infr_gpu::GpuOptions;
use infr_vulkan::{VulkanBackend, VulkanOptions};

use crate::config::{Settings, env};

/// A device with the backend that runs it.
#[derive(Clone)]
pub(crate) struct Choice {
    /// Opens models on the device.
    pub(crate) backend: Arc<dyn Backend>,
    /// The device.
    pub(crate) device: DeviceInfo,
}

/// Every device that can be used here, and a line on each API that has none.
pub(crate) fn all(settings: &Settings) -> Result<(Vec<Choice>, Vec<String>)> {
    let vulkan = Arc::new(VulkanBackend::new(vulkan_options(settings))?);
    let notes = vulkan.notes().to_vec();
    let mut choices = Vec::new();
    for backend in [vulkan as Arc<dyn Backend>, cpu(settings, settings.cpu_simd.unwrap_or(true))] {
        for device in backend.devices() {
            choices.push(Choice { backend: Arc::clone(&backend), device: device.clone() });
        }
    }
    Ok((choices, notes))
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

fn vulkan_options(settings: &Settings) -> VulkanOptions {
    VulkanOptions {
        device: settings.dev.clone(),
        pipeline_cache: env::cache_dir().map(|d| d.join("pipelines")),
        gpu: GpuOptions { strict: settings.strict, ..GpuOptions::default() },
        ..VulkanOptions::default()
    }
}

/// The device that the settings name, or the best one: a discrete GPU, an integrated one, the CPU.
///
/// # Errors
/// When no device has that name; the message lists those there are.
pub(crate) fn choose(settings: &Settings) -> Result<Choice> {
    if settings.dev.as_deref().is_some_and(|d| d.eq_ignore_ascii_case("cpu")) {
        return Ok(cpu_choice(settings));
    }
    let (choices, notes) = all(settings)?;
    let found = match settings.dev.as_deref() {
        Some(name) => choices.iter().find(|c| c.device.id.eq_ignore_ascii_case(name)),
        None => choices.iter().min_by_key(|c| preference(c.device.kind)),
    };
    if let Some(choice) = found {
        return Ok(choice.clone());
    }
    let names: Vec<&str> = choices.iter().map(|c| c.device.id.as_str()).collect();
    let notes: String = notes.iter().map(|n| format!("\n{n}")).collect();
    let wanted = settings.dev.as_deref().unwrap_or_default();
    bail!("there is no device '{wanted}'; there are: {}{notes}", names.join(", "))
}

/// The CPU as a choice.
pub(crate) fn cpu_choice(settings: &Settings) -> Choice {
    let backend = cpu(settings, settings.cpu_simd.unwrap_or(true));
    let device = backend.devices()[0].clone();
    Choice { backend, device }
}

/// Devices that run a GPU's API on the processor come last: they are used only when named.
fn preference(kind: DeviceKind) -> u8 {
    match kind {
        DeviceKind::Discrete => 0,
        DeviceKind::Integrated => 1,
        DeviceKind::Cpu => 2,
        DeviceKind::Software => 3,
    }
}
