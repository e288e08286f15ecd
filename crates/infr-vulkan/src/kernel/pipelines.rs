//! Pipelines: a variant with values for its constants, built when first needed and kept.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use ash::vk;
use infr_gpu::MAX_PUSH;
use infr_kernels::{SpecConsts, VariantId};

use super::{MODULES, cache};
use crate::device::Device;
use crate::error::{Called, VulkanError};

/// All pipelines of a device.
pub(crate) struct Pipelines {
    built: Mutex<HashMap<(VariantId, SpecConsts), vk::Pipeline>>,
    layout: vk::PipelineLayout,
    cache: vk::PipelineCache,
    file: Option<PathBuf>,
    device: Arc<Device>,
}

impl std::fmt::Debug for Pipelines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pipelines")
    }
}

impl Pipelines {
    /// No pipelines yet; those kept in `folder` are at hand.
    pub(crate) fn new(
        device: Arc<Device>,
        folder: Option<PathBuf>,
    ) -> Result<Pipelines, VulkanError> {
        let file = folder.map(|folder| cache::file(&folder, &device.physical.cache_key));
        let kept = file.as_deref().map(cache::load).unwrap_or_default();
        let info = vk::PipelineCacheCreateInfo::default().initial_data(&kept);
        // SAFETY: the data is empty or what this driver gave us.
        let cache = unsafe { device.raw.create_pipeline_cache(&info, None) }
            .called("vkCreatePipelineCache")?;
        let ranges = [vk::PushConstantRange::default()
            .stage_flags(vk::ShaderStageFlags::COMPUTE)
            .size(MAX_PUSH as u32)];
        let info = vk::PipelineLayoutCreateInfo::default().push_constant_ranges(&ranges);
        // SAFETY: a plain creation on a living device.
        let layout = unsafe { device.raw.create_pipeline_layout(&info, None) }
            .called("vkCreatePipelineLayout")?;
        Ok(Pipelines { built: Mutex::default(), layout, cache, file, device })
    }

    /// The layout of all pipelines: push constants alone.
    pub(crate) fn layout(&self) -> vk::PipelineLayout {
        self.layout
    }

    /// A pipeline, built if need be.
    pub(crate) fn get(
        &self,
        variant: VariantId,
        spec: &SpecConsts,
    ) -> Result<vk::Pipeline, VulkanError> {
        let mut built = self.built.lock().unwrap_or_else(|e| e.into_inner());
        let key = (variant, spec.clone());
        if let Some(pipeline) = built.get(&key) {
            return Ok(*pipeline);
        }
        let pipeline = self.build(variant, spec)?;
        built.insert(key, pipeline);
        Ok(pipeline)
    }

    fn build(&self, variant: VariantId, spec: &SpecConsts) -> Result<vk::Pipeline, VulkanError> {
        let module = MODULES.get(variant.0 as usize);
        let module = module.ok_or_else(|| VulkanError::Kernel {
            kernel: format!("{variant:?}"),
            what: "does not exist".into(),
        })?;
        let physical = &self.device.physical;
        // The first constant is the workgroup size.
        let wg = spec.0.first().copied().unwrap_or(0);
        if wg == 0 || wg > physical.profile.max_workgroup {
            return Err(VulkanError::Kernel {
                kernel: module.name.to_owned(),
                what: format!("workgroups of {wg} do not fit the device"),
            });
        }
        let words: Vec<u32> = module
            .code
            .chunks_exact(4)
            .map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]]))
            .collect();
        let info = vk::ShaderModuleCreateInfo::default().code(&words);
        let device = &self.device.raw;
        // SAFETY: the code is SPIR-V from our own compiler, for features that the device has.
        let code =
            unsafe { device.create_shader_module(&info, None) }.called("vkCreateShaderModule")?;
        let entries: Vec<vk::SpecializationMapEntry> = (0..spec.0.len() as u32)
            .map(|i| vk::SpecializationMapEntry { constant_id: i, offset: 4 * i, size: 4 })
            .collect();
        let data: Vec<u8> = spec.0.iter().flat_map(|v| v.to_le_bytes()).collect();
        let values = vk::SpecializationInfo::default().map_entries(&entries).data(&data);
        let mut size = vk::PipelineShaderStageRequiredSubgroupSizeCreateInfo::default()
            .required_subgroup_size(physical.required_subgroup.unwrap_or(0));
        let mut stage = vk::PipelineShaderStageCreateInfo::default()
            .stage(vk::ShaderStageFlags::COMPUTE)
            .module(code)
            .name(c"main")
            .specialization_info(&values);
        if wg % physical.profile.subgroup == 0 {
            stage = stage.flags(vk::PipelineShaderStageCreateFlags::REQUIRE_FULL_SUBGROUPS);
            if physical.required_subgroup.is_some() {
                stage = stage.push_next(&mut size);
            }
        }
        let info = vk::ComputePipelineCreateInfo::default().stage(stage).layout(self.layout);
        // SAFETY: module, layout and cache live, and all that `info` points at does until the call returns.
        let made = unsafe { device.create_compute_pipelines(self.cache, &[info], None) };
        // SAFETY: a module may go once its pipelines are made.
        unsafe { device.destroy_shader_module(code, None) };
        match made {
            Ok(pipelines) => Ok(pipelines[0]),
            Err((_, result)) => Err(VulkanError::Kernel {
                kernel: module.name.to_owned(),
                what: format!("{result} with constants {:?}", spec.0),
            }),
        }
    }

    /// Writes what was built to disk.
    fn save(&self) {
        let Some(file) = &self.file else { return };
        if self.built.lock().map_or(true, |b| b.is_empty()) {
            return;
        }
        // SAFETY: the cache lives.
        let data = unsafe { self.device.raw.get_pipeline_cache_data(self.cache) };
        let saved = data.map_err(std::io::Error::other).and_then(|data| cache::save(file, &data));
        if let Err(error) = saved {
            tracing::warn!("pipelines are not kept in {}: {error}", file.display());
        }
    }
}

impl Drop for Pipelines {
    fn drop(&mut self) {
        self.save();
        let built = std::mem::take(self.built.get_mut().unwrap_or_else(|e| e.into_inner()));
        // SAFETY: executors hold the pipelines by reference counting and wait for the device before they go.
        unsafe {
            for pipeline in built.into_values() {
                self.device.raw.destroy_pipeline(pipeline, None);
            }
            self.device.raw.destroy_pipeline_layout(self.layout, None);
            self.device.raw.destroy_pipeline_cache(self.cache, None);
        }
    }
}
