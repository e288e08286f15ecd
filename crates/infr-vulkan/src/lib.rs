//! Vulkan as a backend: devices, memory, kernels and submission over `ash`.
//!
//! Level 4: depends on `infr-gpu` (which lowers programs to lists of dispatches and runs them through its `Api`
//! trait), `infr-backend`, `infr-kernels`, `infr-graph` and `infr-tensor`.
//!
//! Invariants:
//! - The loader is opened at run time; without Vulkan there are no devices and a one-line reason.
//! - Kernels get addresses in push constants; there are no descriptor sets.
//! - Barriers name the compute and transfer stages with shader and transfer access, never all commands.
//! - No kernel assumes a subgroup size.
//! - Devices that run on the processor are listed, and used only when they are named.
//!
//! Reading order: [`options`], [`backend`], [`api`] (what `infr-gpu` asks for), `device` (instance, facts, queue,
//! memory, transfers), `kernel` (generated table, pipelines, their cache on disk), `record` (command buffers);
//! `kernels.toml` and `shaders/`.

pub mod api;
pub mod backend;
pub mod error;
pub mod options;

mod device;
mod kernel;
mod record;

pub use api::VulkanApi;
pub use backend::VulkanBackend;
pub use error::VulkanError;
pub use options::{MessageHook, VulkanOptions};
