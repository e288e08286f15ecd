//! A pool of command buffers, barriers, and copies.

use std::sync::Arc;

use ash::vk;

use crate::device::Device;
use crate::error::{Called, VulkanError};

/// A copy between two buffers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Copy {
    /// Source and its first byte.
    pub(crate) from: (vk::Buffer, u64),
    /// Destination and its first byte.
    pub(crate) to: (vk::Buffer, u64),
    /// Number of bytes.
    pub(crate) bytes: u64,
}

/// Command buffers of one executor.
pub(crate) struct Commands {
    pool: vk::CommandPool,
    pub(crate) device: Arc<Device>,
}

impl Commands {
    /// An empty pool.
    pub(crate) fn new(device: Arc<Device>) -> Result<Commands, VulkanError> {
        let info = vk::CommandPoolCreateInfo::default()
            .flags(vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER)
            .queue_family_index(device.physical.queue_family);
        // SAFETY: a plain creation on a living device.
        let pool =
            unsafe { device.raw.create_command_pool(&info, None) }.called("vkCreateCommandPool")?;
        Ok(Commands { pool, device })
    }

    /// A new command buffer.
    pub(crate) fn allocate(&self) -> Result<vk::CommandBuffer, VulkanError> {
        let info = vk::CommandBufferAllocateInfo::default()
            .command_pool(self.pool)
            .level(vk::CommandBufferLevel::PRIMARY)
            .command_buffer_count(1);
        // SAFETY: the pool is used by its one owner.
        let made = unsafe { self.device.raw.allocate_command_buffers(&info) }
            .called("vkAllocateCommandBuffers")?;
        Ok(made[0])
    }

    /// Releases a command buffer that the device does not run.
    pub(crate) fn free(&self, commands: vk::CommandBuffer) {
        // SAFETY: the caller says that the device is done with it; it came from this pool.
        unsafe { self.device.raw.free_command_buffers(self.pool, &[commands]) };
    }

    /// Starts recording; the buffer's earlier commands go.
    pub(crate) fn begin(
        &self,
        commands: vk::CommandBuffer,
        flags: vk::CommandBufferUsageFlags,
    ) -> Result<(), VulkanError> {
        let info = vk::CommandBufferBeginInfo::default().flags(flags);
        // SAFETY: the device does not run the buffer, and its pool allows the implied reset.
        unsafe { self.device.raw.begin_command_buffer(commands, &info) }
            .called("vkBeginCommandBuffer")
    }

    /// Ends recording.
    pub(crate) fn end(&self, commands: vk::CommandBuffer) -> Result<(), VulkanError> {
        // SAFETY: the buffer is being recorded.
        unsafe { self.device.raw.end_command_buffer(commands) }.called("vkEndCommandBuffer")
    }

    /// A memory barrier.
    pub(crate) fn barrier(&self, commands: vk::CommandBuffer, from: Side, to: Side) {
        let barriers = [vk::MemoryBarrier2::default()
            .src_stage_mask(from.stages)
            .src_access_mask(from.access)
            .dst_stage_mask(to.stages)
            .dst_access_mask(to.access)];
        let info = vk::DependencyInfo::default().memory_barriers(&barriers);
        // SAFETY: the buffer is being recorded, and sync2 is switched on.
        unsafe { self.device.raw.cmd_pipeline_barrier2(commands, &info) };
    }

    /// Records copies that do not depend on each other: after all that came before, before all that comes.
    pub(crate) fn record_copies(
        &self,
        commands: vk::CommandBuffer,
        copies: &[Copy],
    ) -> Result<(), VulkanError> {
        self.begin(commands, vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT)?;
        self.barrier(commands, Side::WRITTEN_BEFORE, Side::COPIES);
        for copy in copies {
            let region = [vk::BufferCopy::default()
                .src_offset(copy.from.1)
                .dst_offset(copy.to.1)
                .size(copy.bytes)];
            // SAFETY: the buffer is being recorded; the ranges lie in living buffers by the contract of the API.
            unsafe {
                self.device.raw.cmd_copy_buffer(commands, copy.from.0, copy.to.0, &region);
            };
        }
        self.barrier(commands, Side::COPIED, Side::HOST);
        self.end(commands)
    }
}

impl Drop for Commands {
    fn drop(&mut self) {
        // SAFETY: owners wait for the device before they release their pools.
        unsafe { self.device.raw.destroy_command_pool(self.pool, None) };
    }
}

/// One side of a barrier.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Side {
    stages: vk::PipelineStageFlags2,
    access: vk::AccessFlags2,
}

impl Side {
    const fn new(stages: u64, access: u64) -> Side {
        Side {
            stages: vk::PipelineStageFlags2::from_raw(stages),
            access: vk::AccessFlags2::from_raw(access),
        }
    }

    const COMPUTE: u64 = vk::PipelineStageFlags2::COMPUTE_SHADER.as_raw();
    const TRANSFER: u64 = vk::PipelineStageFlags2::COPY.as_raw();
    const SHADER_WRITE: u64 = vk::AccessFlags2::SHADER_WRITE.as_raw();
    const SHADER_BOTH: u64 = Side::SHADER_WRITE | vk::AccessFlags2::SHADER_READ.as_raw();
    const COPY_WRITE: u64 = vk::AccessFlags2::TRANSFER_WRITE.as_raw();
    const COPY_BOTH: u64 = Side::COPY_WRITE | vk::AccessFlags2::TRANSFER_READ.as_raw();
    const INDIRECT: u64 = vk::PipelineStageFlags2::DRAW_INDIRECT.as_raw();
    const INDIRECT_READ: u64 = vk::AccessFlags2::INDIRECT_COMMAND_READ.as_raw();

    /// What earlier submissions wrote.
    pub(crate) const WRITTEN_BEFORE: Side =
        Side::new(Side::COMPUTE | Side::TRANSFER, Side::SHADER_WRITE | Side::COPY_WRITE);
    /// What kernels wrote.
    pub(crate) const KERNELS_WROTE: Side = Side::new(Side::COMPUTE, Side::SHADER_WRITE);
    /// What copies wrote.
    pub(crate) const COPIED: Side = Side::new(Side::TRANSFER, Side::COPY_WRITE);
    /// Kernels to come.
    pub(crate) const KERNELS: Side = Side::new(Side::COMPUTE, Side::SHADER_BOTH);
    /// Kernels to come whose grid stands in memory.
    pub(crate) const INDIRECT_KERNELS: Side =
        Side::new(Side::COMPUTE | Side::INDIRECT, Side::SHADER_BOTH | Side::INDIRECT_READ);
    /// Copies to come.
    pub(crate) const COPIES: Side = Side::new(Side::TRANSFER, Side::COPY_BOTH);
    /// The host, once it has waited.
    pub(crate) const HOST: Side =
        Side::new(vk::PipelineStageFlags2::HOST.as_raw(), vk::AccessFlags2::HOST_READ.as_raw());
}
