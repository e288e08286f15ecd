//! How Vulkan is used.

use std::path::PathBuf;
use std::sync::Arc;

use infr_gpu::GpuOptions;

/// Receives the messages of validation layers and drivers, warnings and errors only.
pub type MessageHook = Arc<dyn Fn(&str) + Send + Sync>;

/// Options of the backend.
#[derive(Clone, Default)]
pub struct VulkanOptions {
    /// Id of the device to use when a placement names none; a device on the processor is used only when it is
    /// named here or in a placement.
    pub device: Option<String>,
    /// Folder where built pipelines are kept between runs.
    pub pipeline_cache: Option<PathBuf>,
    /// Receives what validation layers and drivers say.
    pub on_message: Option<MessageHook>,
    /// How work is planned.
    pub gpu: GpuOptions,
}

impl std::fmt::Debug for VulkanOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VulkanOptions")
            .field("device", &self.device)
            .field("pipeline_cache", &self.pipeline_cache)
            .field("gpu", &self.gpu)
            .finish_non_exhaustive()
    }
}
