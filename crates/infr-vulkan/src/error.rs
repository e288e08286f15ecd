//! What can go wrong with Vulkan.

use ash::vk;
use infr_backend::BackendError;

/// An error of this backend.
#[derive(Debug, thiserror::Error)]
pub enum VulkanError {
    /// No loader, or one that cannot be used.
    #[error("Vulkan is not available: {0}")]
    Loader(String),
    /// A call failed.
    #[error("{call}: {result}")]
    Call {
        /// What was called.
        call: &'static str,
        /// What it answered.
        result: vk::Result,
    },
    /// No device has this id.
    #[error("there is no device `{0}`")]
    NoDevice(String),
    /// There is nothing to run on.
    #[error("{0}")]
    Nothing(String),
    /// The allocator failed.
    #[error("{what}: {error}")]
    Memory {
        /// What was to be allocated.
        what: String,
        /// What the allocator says.
        error: gpu_allocator::AllocationError,
    },
    /// A kernel cannot be built here.
    #[error("kernel {kernel}: {what}")]
    Kernel {
        /// Which kernel.
        kernel: String,
        /// Why not.
        what: String,
    },
    /// The kernel table or a tuning file is wrong.
    #[error(transparent)]
    Table(#[from] infr_kernels::KernelError),
}

impl From<VulkanError> for BackendError {
    fn from(error: VulkanError) -> BackendError {
        match error {
            VulkanError::Call { result: vk::Result::ERROR_DEVICE_LOST, .. } => {
                BackendError::DeviceLost
            }
            other => BackendError::Unsupported(other.to_string()),
        }
    }
}

/// Names the call in its error.
pub(crate) trait Called<T> {
    /// The value, or which call failed.
    fn called(self, call: &'static str) -> Result<T, VulkanError>;
}

impl<T> Called<T> for Result<T, vk::Result> {
    fn called(self, call: &'static str) -> Result<T, VulkanError> {
        self.map_err(|result| VulkanError::Call { call, result })
    }
}
