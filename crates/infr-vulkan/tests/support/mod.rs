//! The device that the tests run on.
//!
//! `INFR_VULKAN_DEVICE` names it (`vulkan0`); otherwise the first hardware device, otherwise the first of all. Every
//! message of a validation layer fails the test: set `VK_INSTANCE_LAYERS=VK_LAYER_KHRONOS_validation` to have them.

#![allow(clippy::unwrap_used, dead_code)] // Each test file uses a part.

use std::sync::{Arc, Mutex};

use infr_backend::{
    Backend, BackendError, DeviceInfo, DeviceKind, EvalCase, EvalResult, Executor, Placement,
    WeightSource,
};
use infr_gguf::Gguf;
use infr_gpu::GpuOptions;
use infr_graph::Program;
use infr_models::{BuildOptions, registry, synth};
use infr_tensor::DType;
use infr_testkit::Subject;
use infr_vulkan::{VulkanBackend, VulkanOptions};

/// A backend that panics at the end when a layer has complained.
pub(crate) struct Watched {
    pub(crate) backend: VulkanBackend,
    device: usize,
    messages: Arc<Mutex<Vec<String>>>,
}

/// The backend on the tests' device, `None` (with a message) when there is none.
pub(crate) fn backend(gpu: GpuOptions) -> Option<Watched> {
    let messages: Arc<Mutex<Vec<String>>> = Arc::default();
    let sink = Arc::clone(&messages);
    let hook: infr_vulkan::MessageHook = Arc::new(move |text: &str| {
        eprintln!("{text}");
        sink.lock().unwrap().push(text.to_owned());
    });
    let options = VulkanOptions { gpu, on_message: Some(hook), ..VulkanOptions::default() };
    let probe = VulkanBackend::new(options.clone()).unwrap();
    #[allow(clippy::disallowed_methods)] // The header above documents it.
    let named = std::env::var("INFR_VULKAN_DEVICE").ok();
    let devices = probe.devices();
    let real = devices.iter().find(|d| d.kind != DeviceKind::Software).or(devices.first());
    let device = named.or_else(|| real.map(|d| d.id.clone()));
    let Some(device) = device else {
        eprintln!("skipped: no Vulkan device ({})", probe.notes().join("; "));
        return None;
    };
    let index = devices.iter().position(|d| d.id == device).expect("the named device exists");
    let backend = VulkanBackend::new(VulkanOptions { device: Some(device), ..options }).unwrap();
    Some(Watched { backend, device: index, messages })
}

/// A random tiny model of the recipe `name` in the file type `mix`, with a cache of this type.
pub(crate) fn tiny(name: &str, mix: &str, cache: DType) -> Subject {
    let bytes = synth::tiny(name, 7, mix).unwrap();
    let gguf = Arc::new(Gguf::from_bytes(name, bytes).unwrap());
    let loaded = registry::from_gguf(gguf).unwrap();
    let options = BuildOptions { cache_k: cache, cache_v: cache, ..BuildOptions::default() };
    let program = loaded.model.program(&loaded.gguf, &options).unwrap();
    let vocab = loaded.model.info().vocab;
    Subject { name: format!("{name} {mix}"), program, weights: Arc::new(loaded.weights()), vocab }
}

impl Watched {
    /// Its device in `devices()`.
    pub(crate) fn device(&self) -> usize {
        self.device
    }

    /// Fails when a layer has complained.
    pub(crate) fn check(&self) {
        let messages = self.messages.lock().unwrap();
        assert!(messages.is_empty(), "{} messages, such as\n{}", messages.len(), messages[0]);
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.check();
        }
    }
}

impl Backend for Watched {
    fn devices(&self) -> &[DeviceInfo] {
        self.backend.devices()
    }

    fn open(
        &self,
        program: &Program,
        weights: &dyn WeightSource,
        placement: &Placement,
    ) -> Result<Box<dyn Executor>, BackendError> {
        self.backend.open(program, weights, placement)
    }

    fn eval(&self, case: &EvalCase) -> Result<EvalResult, BackendError> {
        self.backend.eval(case)
    }
}
