//! The `Api` that `infr-gpu` runs programs through, on one device.

use std::collections::VecDeque;
use std::sync::Arc;

use ash::vk;
use infr_backend::BackendError;
use infr_gpu::{Api, Copy, DispatchList, MemoryKind};
use infr_kernels::DeviceProfile;

pub use crate::device::memory::Buffer;
use crate::device::{Device, Memory, Timeline, Transfer, transfer};
use crate::error::VulkanError;
use crate::kernel::Pipelines;
use crate::record::commands::{self, Commands};
use crate::record::encoder;

/// A replayable list of dispatches; a handle of the [`VulkanApi`] that made it.
#[derive(Debug)]
pub struct Recording(vk::CommandBuffer);

/// One device with memory, command buffers and a timeline of its own.
pub struct VulkanApi {
    /// Command buffers of copies, with the timeline's value that frees them.
    copies: VecDeque<(u64, vk::CommandBuffer)>,
    transfer: Transfer,
    timeline: Timeline,
    commands: Commands,
    memory: Memory,
    pipelines: Arc<Pipelines>,
    device: Arc<Device>,
}

impl std::fmt::Debug for VulkanApi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("VulkanApi").field(&self.device).finish()
    }
}

impl VulkanApi {
    pub(crate) fn new(
        device: Arc<Device>,
        pipelines: Arc<Pipelines>,
    ) -> Result<VulkanApi, VulkanError> {
        Ok(VulkanApi {
            copies: VecDeque::new(),
            transfer: Transfer::new(Arc::clone(&device))?,
            timeline: Timeline::new(Arc::clone(&device))?,
            commands: Commands::new(Arc::clone(&device))?,
            memory: Memory::new(Arc::clone(&device))?,
            pipelines,
            device,
        })
    }

    /// Number of buffers that exist, staging included.
    pub fn n_buffers(&self) -> usize {
        self.memory.n_buffers()
    }
}

impl Drop for VulkanApi {
    fn drop(&mut self) {
        self.device.idle();
    }
}

impl Api for VulkanApi {
    type Buffer = Buffer;
    type Recording = Recording;

    fn profile(&self) -> &DeviceProfile {
        &self.device.physical.profile
    }

    fn free_memory(&self) -> u64 {
        self.memory.free_bytes()
    }

    fn allocate(
        &mut self,
        what: &str,
        kind: MemoryKind,
        bytes: u64,
    ) -> Result<Buffer, BackendError> {
        self.memory.allocate(what, kind, bytes)
    }

    fn free(&mut self, buffer: Buffer) {
        // The caller has waited for its submissions; it cannot wait for uploads.
        if let Err(error) = self.transfer.finish() {
            tracing::warn!("waiting for uploads: {error}");
        }
        self.memory.free(buffer);
    }

    fn address(&self, buffer: &Buffer) -> u64 {
        buffer.address()
    }

    fn write(&mut self, buffer: &Buffer, offset: u64, bytes: &[u8]) {
        self.memory.mapped(*buffer)[offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    fn read(&self, buffer: &Buffer, offset: u64, out: &mut [u8]) {
        let mapped = self.memory.mapped_ref(*buffer);
        out.copy_from_slice(&mapped[offset as usize..][..out.len()]);
    }

    fn upload(&mut self, buffer: &Buffer, offset: u64, bytes: &[u8]) -> Result<(), BackendError> {
        let mut tools = transfer::Tools { memory: &mut self.memory, commands: &self.commands };
        self.transfer.upload(&mut tools, (*buffer, offset), bytes)
    }

    fn download(
        &mut self,
        buffer: &Buffer,
        offset: u64,
        out: &mut [u8],
    ) -> Result<(), BackendError> {
        let mut tools = transfer::Tools { memory: &mut self.memory, commands: &self.commands };
        self.transfer.download(&mut tools, (*buffer, offset), out)
    }

    fn record(&mut self, list: &DispatchList) -> Result<Recording, BackendError> {
        Ok(Recording(encoder::record(&self.commands, &self.memory, &self.pipelines, list)?))
    }

    fn destroy(&mut self, recording: Recording) {
        self.commands.free(recording.0);
    }

    fn submit(&mut self, recording: &Recording, value: u64) -> Result<(), BackendError> {
        Ok(self.device.submit(recording.0, &self.timeline, value)?)
    }

    fn copy(&mut self, copies: &[Copy<Buffer>], value: u64) -> Result<(), BackendError> {
        let reached = self.timeline.reached()?;
        let free = self.copies.pop_front_if(|(value, _)| *value <= reached);
        let buffer = match free {
            Some((_, buffer)) => buffer,
            None => self.commands.allocate()?,
        };
        let raw = |copy: &Copy<Buffer>| commands::Copy {
            from: (copy.from.raw(), copy.from_offset),
            to: (copy.to.raw(), copy.to_offset),
            bytes: copy.bytes,
        };
        let copies: Vec<commands::Copy> = copies.iter().map(raw).collect();
        self.commands.record_copies(buffer, &copies)?;
        self.copies.push_back((value, buffer));
        Ok(self.device.submit(buffer, &self.timeline, value)?)
    }

    fn reached(&mut self) -> Result<u64, BackendError> {
        Ok(self.timeline.reached()?)
    }

    fn wait(&mut self, value: u64) -> Result<(), BackendError> {
        Ok(self.timeline.wait(value)?)
    }
}
