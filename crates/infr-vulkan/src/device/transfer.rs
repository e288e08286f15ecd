//! Bytes to and from device memory through staging buffers.

use std::sync::Arc;

use ash::vk;
use infr_backend::BackendError;
use infr_gpu::MemoryKind;

use super::memory::Buffer;
use super::{Device, Memory, Timeline};
use crate::error::VulkanError;
use crate::record::commands::{self, Commands};

/// Bytes of one staging buffer.
const CHUNK: u64 = 16 << 20;

struct Stage {
    buffer: Buffer,
    commands: vk::CommandBuffer,
    /// Reached when the device is done with the buffer.
    value: u64,
}

/// Staging for uploads and downloads; uploads fill one buffer while another is copied from.
pub(crate) struct Transfer {
    uploads: Vec<Stage>,
    download: Option<Stage>,
    timeline: Timeline,
    last: u64,
    device: Arc<Device>,
}

/// What a transfer works with.
pub(crate) struct Tools<'a> {
    /// The buffers.
    pub(crate) memory: &'a mut Memory,
    /// Where command buffers come from.
    pub(crate) commands: &'a Commands,
}

impl Transfer {
    /// Staging that allocates when first needed.
    pub(crate) fn new(device: Arc<Device>) -> Result<Transfer, VulkanError> {
        let timeline = Timeline::new(Arc::clone(&device))?;
        Ok(Transfer { uploads: Vec::new(), download: None, timeline, last: 0, device })
    }

    /// Copies bytes into a buffer, ordered between submissions.
    pub(crate) fn upload(
        &mut self,
        tools: &mut Tools<'_>,
        to: (Buffer, u64),
        bytes: &[u8],
    ) -> Result<(), BackendError> {
        let mut offset = to.1;
        for part in bytes.chunks(CHUNK as usize) {
            if self.uploads.len() < 2 {
                self.uploads.push(stage(tools, "upload staging", MemoryKind::Upload)?);
            }
            // The one that was used longest ago.
            let index = usize::from(
                self.uploads.len() == 2 && { self.uploads[1].value < self.uploads[0].value },
            );
            let stage = &mut self.uploads[index];
            self.timeline.wait(stage.value)?;
            tools.memory.mapped(stage.buffer)[..part.len()].copy_from_slice(part);
            let copy = commands::Copy {
                from: (stage.buffer.raw(), 0),
                to: (to.0.raw(), offset),
                bytes: part.len() as u64,
            };
            tools.commands.record_copies(stage.commands, &[copy])?;
            self.last += 1;
            stage.value = self.last;
            self.device.submit(stage.commands, &self.timeline, self.last)?;
            offset += part.len() as u64;
        }
        Ok(())
    }

    /// Waits for all transfers.
    pub(crate) fn finish(&self) -> Result<(), VulkanError> {
        self.timeline.wait(self.last)
    }

    /// Copies bytes out of a buffer, after everything submitted; blocks.
    pub(crate) fn download(
        &mut self,
        tools: &mut Tools<'_>,
        from: (Buffer, u64),
        out: &mut [u8],
    ) -> Result<(), BackendError> {
        let mut offset = from.1;
        for part in out.chunks_mut(CHUNK as usize) {
            if self.download.is_none() {
                self.download = Some(stage(tools, "download staging", MemoryKind::Readback)?);
            }
            let stage = self.download.as_mut().expect("made above");
            let copy = commands::Copy {
                from: (from.0.raw(), offset),
                to: (stage.buffer.raw(), 0),
                bytes: part.len() as u64,
            };
            tools.commands.record_copies(stage.commands, &[copy])?;
            self.last += 1;
            self.device.submit(stage.commands, &self.timeline, self.last)?;
            self.timeline.wait(self.last)?;
            part.copy_from_slice(&tools.memory.mapped_ref(stage.buffer)[..part.len()]);
            offset += part.len() as u64;
        }
        Ok(())
    }
}

fn stage(tools: &mut Tools<'_>, what: &str, kind: MemoryKind) -> Result<Stage, BackendError> {
    let buffer = tools.memory.allocate(what, kind, CHUNK)?;
    Ok(Stage { buffer, commands: tools.commands.allocate()?, value: 0 })
}
