//! Buffers with device addresses.

use std::collections::BTreeMap;
use std::sync::Arc;

use ash::vk;
use gpu_allocator::vulkan::{
    Allocation, AllocationCreateDesc, AllocationScheme, Allocator, AllocatorCreateDesc,
};
use gpu_allocator::{AllocationSizes, MemoryLocation};
use infr_backend::BackendError;
use infr_gpu::MemoryKind;

use super::{Device, physical};
use crate::error::{Called, VulkanError};

/// Addresses are multiples of this, and sizes too: kernels may read whole words at the end.
const ALIGN: u64 = 256;
/// Bytes of one block that small buffers share.
const BLOCK: u64 = 64 << 20;

/// A buffer; a handle of the [`Memory`] that made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Buffer {
    raw: vk::Buffer,
    address: u64,
}

impl Buffer {
    /// Device address of its first byte.
    pub(crate) fn address(self) -> u64 {
        self.address
    }

    /// The Vulkan handle.
    pub(crate) fn raw(self) -> vk::Buffer {
        self.raw
    }
}

struct Held {
    buffer: Buffer,
    bytes: u64,
    allocation: Allocation,
}

/// All buffers of one executor.
pub(crate) struct Memory {
    allocator: Option<Allocator>,
    /// By address.
    held: BTreeMap<u64, Held>,
    device: Arc<Device>,
}

impl Memory {
    /// An allocator without memory.
    pub(crate) fn new(device: Arc<Device>) -> Result<Memory, VulkanError> {
        let mut debug_settings = gpu_allocator::AllocatorDebugSettings::default();
        debug_settings.log_leaks_on_shutdown = false;
        let allocator = Allocator::new(&AllocatorCreateDesc {
            instance: device.instance.raw.clone(),
            device: device.raw.clone(),
            physical_device: device.physical.raw,
            debug_settings,
            buffer_device_address: true,
            allocation_sizes: AllocationSizes::new(BLOCK, BLOCK),
        })
        .map_err(|error| VulkanError::Memory { what: "the allocator".into(), error })?;
        Ok(Memory { allocator: Some(allocator), held: BTreeMap::new(), device })
    }

    /// Bytes that can still be allocated, by the driver's word.
    pub(crate) fn free_bytes(&self) -> u64 {
        let physical = &self.device.physical;
        let (total, free) =
            physical::memory(&self.device.instance, physical.raw, physical.features.memory_budget);
        if physical.features.memory_budget {
            return free;
        }
        let held: u64 = self.held.values().map(|h| h.bytes).sum();
        free.min(total.saturating_sub(held))
    }

    /// Allocates a buffer.
    pub(crate) fn allocate(
        &mut self,
        what: &str,
        kind: MemoryKind,
        bytes: u64,
    ) -> Result<Buffer, BackendError> {
        let bytes = bytes.max(1).next_multiple_of(ALIGN);
        let out_of_memory =
            |free: u64| BackendError::OutOfMemory { what: what.to_owned(), wanted: bytes, free };
        if bytes > self.device.physical.max_buffer {
            return Err(out_of_memory(self.device.physical.max_buffer));
        }
        let usage = vk::BufferUsageFlags::STORAGE_BUFFER
            | vk::BufferUsageFlags::SHADER_DEVICE_ADDRESS
            | vk::BufferUsageFlags::TRANSFER_SRC
            | vk::BufferUsageFlags::TRANSFER_DST
            | vk::BufferUsageFlags::INDIRECT_BUFFER;
        let info = vk::BufferCreateInfo::default().size(bytes).usage(usage);
        let device = &self.device.raw;
        // SAFETY: a plain creation on a living device.
        let raw = unsafe { device.create_buffer(&info, None) }.called("vkCreateBuffer")?;
        // SAFETY: the buffer was just made.
        let mut requirements = unsafe { device.get_buffer_memory_requirements(raw) };
        requirements.alignment = requirements.alignment.max(ALIGN);
        let location = match kind {
            MemoryKind::Device => MemoryLocation::GpuOnly,
            MemoryKind::Upload => MemoryLocation::CpuToGpu,
            MemoryKind::Readback => MemoryLocation::GpuToCpu,
        };
        let allocator = self.allocator.as_mut().expect("the allocator lives as long as this");
        let allocation = allocator.allocate(&AllocationCreateDesc {
            name: what,
            requirements,
            location,
            linear: true,
            allocation_scheme: AllocationScheme::GpuAllocatorManaged,
        });
        let allocation = match allocation {
            Ok(allocation) => allocation,
            Err(error) => {
                // SAFETY: the buffer was just made and has no memory yet.
                unsafe { device.destroy_buffer(raw, None) };
                return Err(match error {
                    gpu_allocator::AllocationError::OutOfMemory => out_of_memory(self.free_bytes()),
                    error => VulkanError::Memory { what: what.to_owned(), error }.into(),
                });
            }
        };
        // SAFETY: the allocation was made for this buffer's requirements and lives as long as it.
        unsafe { device.bind_buffer_memory(raw, allocation.memory(), allocation.offset()) }
            .called("vkBindBufferMemory")?;
        let info = vk::BufferDeviceAddressInfo::default().buffer(raw);
        // SAFETY: the buffer has memory and was made for having an address.
        let address = unsafe { device.get_buffer_device_address(&info) };
        let buffer = Buffer { raw, address };
        self.held.insert(address, Held { buffer, bytes, allocation });
        if address % ALIGN != 0 {
            self.free(buffer);
            let what = format!("buffer addresses are no multiples of {ALIGN}");
            return Err(BackendError::Unsupported(what));
        }
        Ok(buffer)
    }

    /// Releases a buffer that the device does not use.
    pub(crate) fn free(&mut self, buffer: Buffer) {
        let Some(held) = self.held.remove(&buffer.address) else { return };
        // SAFETY: the caller says that the device is done with it; it was ours until now.
        unsafe { self.device.raw.destroy_buffer(held.buffer.raw, None) };
        if let Some(allocator) = &mut self.allocator
            && let Err(error) = allocator.free(held.allocation)
        {
            tracing::warn!("releasing memory: {error}");
        }
    }

    /// Mapped bytes of a buffer, for writing.
    pub(crate) fn mapped(&mut self, buffer: Buffer) -> &mut [u8] {
        let held = self.held.get_mut(&buffer.address).expect("the buffer is ours");
        held.allocation.mapped_slice_mut().expect("the buffer is of a mapped kind")
    }

    /// Mapped bytes of a buffer, for reading.
    pub(crate) fn mapped_ref(&self, buffer: Buffer) -> &[u8] {
        let held = self.held.get(&buffer.address).expect("the buffer is ours");
        held.allocation.mapped_slice().expect("the buffer is of a mapped kind")
    }

    /// The buffer that holds an address, and the place in it.
    pub(crate) fn find(&self, address: u64) -> Option<(Buffer, u64)> {
        let (start, held) = self.held.range(..=address).next_back()?;
        let offset = address - start;
        (offset < held.bytes).then_some((held.buffer, offset))
    }

    /// Number of buffers.
    pub(crate) fn n_buffers(&self) -> usize {
        self.held.len()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let buffers: Vec<Buffer> = self.held.values().map(|h| h.buffer).collect();
        for buffer in buffers {
            self.free(buffer);
        }
        // Before the device may go.
        self.allocator = None;
    }
}
