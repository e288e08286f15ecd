//! From a list of dispatches to a replayable command buffer.

use ash::vk;
use infr_gpu::{DispatchList, Grid};

use super::commands::{Commands, Side};
use crate::device::Memory;
use crate::error::VulkanError;
use crate::kernel::Pipelines;

/// Records a list.
pub(crate) fn record(
    commands: &Commands,
    memory: &Memory,
    pipelines: &Pipelines,
    list: &DispatchList,
) -> Result<vk::CommandBuffer, VulkanError> {
    // Building pipelines can fail; that comes before the command buffer exists.
    let built = list
        .dispatches
        .iter()
        .map(|d| pipelines.get(d.kernel, &d.spec))
        .collect::<Result<Vec<_>, _>>()?;
    let buffer = commands.allocate()?;
    let done = encode(commands, memory, (list, &built, pipelines.layout()), buffer);
    if done.is_err() {
        commands.free(buffer);
    }
    done.map(|()| buffer)
}

fn encode(
    commands: &Commands,
    memory: &Memory,
    (list, built, layout): (&DispatchList, &[vk::Pipeline], vk::PipelineLayout),
    buffer: vk::CommandBuffer,
) -> Result<(), VulkanError> {
    let device = &commands.device.raw;
    commands.begin(buffer, vk::CommandBufferUsageFlags::SIMULTANEOUS_USE)?;
    let mut bound = vk::Pipeline::null();
    for (index, (dispatch, pipeline)) in list.dispatches.iter().zip(built).enumerate() {
        let kernels = match dispatch.grid {
            Grid::Fixed(_) => Side::KERNELS,
            Grid::Indirect { .. } => Side::INDIRECT_KERNELS,
        };
        if index == 0 {
            commands.barrier(buffer, Side::WRITTEN_BEFORE, Side::INDIRECT_KERNELS);
        } else if list.barriers[index] {
            commands.barrier(buffer, Side::KERNELS_WROTE, kernels);
        }
        // SAFETY: the buffer is being recorded, the pipeline is a compute pipeline of the layout, and pushes fit the
        // layout's range (they are at most 128 bytes by the contract of dispatches).
        unsafe {
            if bound != *pipeline {
                device.cmd_bind_pipeline(buffer, vk::PipelineBindPoint::COMPUTE, *pipeline);
                bound = *pipeline;
            }
            let stage = vk::ShaderStageFlags::COMPUTE;
            device.cmd_push_constants(buffer, layout, stage, 0, &dispatch.push);
        }
        match dispatch.grid {
            Grid::Fixed([x, y, z]) => {
                // SAFETY: as above; lowering keeps grids within the profile's limits.
                unsafe { device.cmd_dispatch(buffer, x, y, z) };
            }
            Grid::Indirect { address } => {
                let (counts, offset) = memory.find(address).ok_or_else(|| VulkanError::Kernel {
                    kernel: dispatch.label.clone(),
                    what: format!("no buffer holds the grid's address {address:#x}"),
                })?;
                // SAFETY: as above; the counts lie in a living buffer.
                unsafe { device.cmd_dispatch_indirect(buffer, counts.raw(), offset) };
            }
        }
    }
    commands.barrier(buffer, Side::KERNELS_WROTE, Side::HOST);
    commands.end(buffer)
}
