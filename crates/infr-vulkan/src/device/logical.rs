//! A logical device with its one queue, and timelines.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ash::{ext, vk};
use infr_backend::DeviceKind;

use super::{Instance, Physical};
use crate::error::{Called, VulkanError};

/// How long a wait spins before it blocks: a decode step is usually shorter, and a blocking wait costs more than
/// what is left of it.
const SPIN: Duration = Duration::from_millis(2);
/// One blocking wait; waits go on until the value is reached or the device is lost.
const BLOCK: Duration = Duration::from_secs(1);

/// A logical device.
pub(crate) struct Device {
    pub(crate) raw: ash::Device,
    pub(crate) physical: Physical,
    pub(crate) queue: Mutex<vk::Queue>,
    pub(crate) instance: Arc<Instance>,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Device").field(&self.physical.info.id).finish()
    }
}

impl Device {
    /// Opens a physical device.
    pub(crate) fn new(instance: Arc<Instance>, physical: Physical) -> Result<Device, VulkanError> {
        let Physical { raw: handle, queue_family, features, .. } = physical;
        let mut extensions = Vec::new();
        if features.memory_budget {
            extensions.push(ext::memory_budget::NAME.as_ptr());
        }
        if features.portability {
            extensions.push(ash::khr::portability_subset::NAME.as_ptr());
        }
        let core =
            vk::PhysicalDeviceFeatures::default().shader_int64(true).shader_int16(features.int16);
        let mut vk11 =
            vk::PhysicalDeviceVulkan11Features::default().storage_buffer16_bit_access(true);
        let mut vk12 = vk::PhysicalDeviceVulkan12Features::default()
            .buffer_device_address(true)
            .scalar_block_layout(true)
            .timeline_semaphore(true)
            .shader_int8(features.int8)
            .shader_float16(features.float16)
            .storage_buffer8_bit_access(features.storage8);
        let mut vk13 = vk::PhysicalDeviceVulkan13Features::default()
            .synchronization2(true)
            .subgroup_size_control(true)
            .compute_full_subgroups(true)
            .maintenance4(true)
            .shader_integer_dot_product(features.int_dot);
        let queues = [vk::DeviceQueueCreateInfo::default()
            .queue_family_index(queue_family)
            .queue_priorities(&[1.0])];
        let info = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queues)
            .enabled_extension_names(&extensions)
            .enabled_features(&core)
            .push_next(&mut vk11)
            .push_next(&mut vk12)
            .push_next(&mut vk13);
        // SAFETY: the handle belongs to the instance, and all that `info` points at lives until the call returns.
        let raw =
            unsafe { instance.raw.create_device(handle, &info, None) }.called("vkCreateDevice")?;
        // SAFETY: one queue of this family was asked for above.
        let queue = unsafe { raw.get_device_queue(queue_family, 0) };
        Ok(Device { raw, physical, queue: Mutex::new(queue), instance })
    }

    /// Submits one command buffer that signals a value of a timeline.
    pub(crate) fn submit(
        &self,
        commands: vk::CommandBuffer,
        timeline: &Timeline,
        value: u64,
    ) -> Result<(), VulkanError> {
        let commands = [vk::CommandBufferSubmitInfo::default().command_buffer(commands)];
        let signals = [vk::SemaphoreSubmitInfo::default()
            .semaphore(timeline.raw)
            .value(value)
            .stage_mask(vk::PipelineStageFlags2::ALL_COMMANDS)];
        let submits = [vk::SubmitInfo2::default()
            .command_buffer_infos(&commands)
            .signal_semaphore_infos(&signals)];
        let queue = self.queue.lock().unwrap_or_else(|e| e.into_inner());
        // SAFETY: the command buffer is recorded, all handles are the device's, the lock keeps others off the queue.
        unsafe { self.raw.queue_submit2(*queue, &submits, vk::Fence::null()) }
            .called("vkQueueSubmit2")
    }

    /// Waits until the device is idle; errors do not matter, it is about to be released.
    pub(crate) fn idle(&self) {
        let _queue = self.queue.lock().unwrap_or_else(|e| e.into_inner());
        // SAFETY: the lock keeps others off the queue, which the call demands.
        let _ = unsafe { self.raw.device_wait_idle() };
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: everything made from the device holds it by reference counting, so nothing is left.
        unsafe { self.raw.destroy_device(None) };
    }
}

/// A counter that submissions raise.
pub(crate) struct Timeline {
    raw: vk::Semaphore,
    device: Arc<Device>,
}

impl Timeline {
    /// A timeline at 0.
    pub(crate) fn new(device: Arc<Device>) -> Result<Timeline, VulkanError> {
        let mut kind = vk::SemaphoreTypeCreateInfo::default()
            .semaphore_type(vk::SemaphoreType::TIMELINE)
            .initial_value(0);
        let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
        // SAFETY: a plain creation on a living device.
        let raw =
            unsafe { device.raw.create_semaphore(&info, None) }.called("vkCreateSemaphore")?;
        Ok(Timeline { raw, device })
    }

    /// The value that it has reached.
    pub(crate) fn reached(&self) -> Result<u64, VulkanError> {
        // SAFETY: the semaphore is a timeline of this device.
        unsafe { self.device.raw.get_semaphore_counter_value(self.raw) }
            .called("vkGetSemaphoreCounterValue")
    }

    /// Waits for a value: spins for a while where the device is real, then blocks.
    pub(crate) fn wait(&self, value: u64) -> Result<(), VulkanError> {
        if self.device.physical.info.kind != DeviceKind::Software {
            let start = Instant::now();
            while start.elapsed() < SPIN {
                if self.reached()? >= value {
                    return Ok(());
                }
                std::hint::spin_loop();
            }
        }
        let (semaphores, values) = ([self.raw], [value]);
        let info = vk::SemaphoreWaitInfo::default().semaphores(&semaphores).values(&values);
        loop {
            // SAFETY: the semaphore is a timeline of this device.
            let waited = unsafe { self.device.raw.wait_semaphores(&info, BLOCK.as_nanos() as u64) };
            match waited {
                Err(vk::Result::TIMEOUT) => {}
                other => return other.called("vkWaitSemaphores"),
            }
        }
    }
}

impl Drop for Timeline {
    fn drop(&mut self) {
        // SAFETY: owners wait for the device before they release their timelines.
        unsafe { self.device.raw.destroy_semaphore(self.raw, None) };
    }
}
