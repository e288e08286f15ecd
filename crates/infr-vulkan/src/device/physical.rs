//! Facts of physical devices, read once.

use std::ffi::CStr;

use ash::{ext, nv, vk};
use infr_backend::{DeviceInfo, DeviceKind};
use infr_kernels::DeviceProfile;

use super::Instance;
use crate::error::{Called, VulkanError};

/// Workgroups of the usual size that a multiprocessor holds with room to spare.
const GROUPS_PER_PROCESSOR: u32 = 2;

/// A physical device.
#[derive(Debug, Clone)]
pub(crate) struct Physical {
    pub(crate) raw: vk::PhysicalDevice,
    pub(crate) info: DeviceInfo,
    pub(crate) profile: DeviceProfile,
    /// What the cache of pipelines is good for.
    pub(crate) cache_key: String,
    pub(crate) queue_family: u32,
    /// Subgroup size that pipelines must ask for, when the device has several.
    pub(crate) required_subgroup: Option<u32>,
    /// Bytes of the largest buffer.
    pub(crate) max_buffer: u64,
    pub(crate) features: Features,
}

/// Optional features and extensions that are switched on.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Features {
    pub(crate) int16: bool,
    pub(crate) int8: bool,
    pub(crate) float16: bool,
    pub(crate) storage8: bool,
    pub(crate) int_dot: bool,
    pub(crate) memory_budget: bool,
    pub(crate) portability: bool,
}

impl Physical {
    /// All devices that can run the kernels, and one line for each that cannot.
    pub(crate) fn all(instance: &Instance) -> Result<(Vec<Physical>, Vec<String>), VulkanError> {
        // SAFETY: the instance lives.
        let raw = unsafe { instance.raw.enumerate_physical_devices() }
            .called("vkEnumeratePhysicalDevices")?;
        let (mut fit, mut unfit) = (Vec::new(), Vec::new());
        for raw in raw {
            match Physical::read(instance, raw, fit.len()) {
                Ok(device) => fit.push(device),
                Err(reason) => unfit.push(reason),
            }
        }
        Ok((fit, unfit))
    }

    fn read(
        instance: &Instance,
        raw: vk::PhysicalDevice,
        index: usize,
    ) -> Result<Physical, String> {
        // SAFETY: the device belongs to the instance.
        let plain = unsafe { instance.raw.get_physical_device_properties(raw) };
        let name = text(plain.device_name_as_c_str());
        let lacks = |what: &str| format!("{name}: lacks {what}");
        if plain.api_version < super::instance::API_VERSION {
            return Err(lacks("Vulkan 1.3"));
        }
        // SAFETY: as above.
        let extensions = unsafe { instance.raw.enumerate_device_extension_properties(raw) }
            .map_err(|e| format!("{name}: {e}"))?;
        let has = |wanted: &CStr| {
            extensions.iter().any(|e| e.extension_name_as_c_str().is_ok_and(|n| n == wanted))
        };
        let mut features = read_features(instance, raw).map_err(lacks)?;
        features.memory_budget = has(ext::memory_budget::NAME);
        features.portability = has(ash::khr::portability_subset::NAME);
        let queue_family = queue_family(instance, raw).ok_or_else(|| lacks("a compute queue"))?;

        let mut vk11 = vk::PhysicalDeviceVulkan11Properties::default();
        let mut vk12 = vk::PhysicalDeviceVulkan12Properties::default();
        let mut vk13 = vk::PhysicalDeviceVulkan13Properties::default();
        let mut processors = vk::PhysicalDeviceShaderSMBuiltinsPropertiesNV::default();
        let mut properties = vk::PhysicalDeviceProperties2::default()
            .push_next(&mut vk11)
            .push_next(&mut vk12)
            .push_next(&mut vk13);
        let counts_processors = has(nv::shader_sm_builtins::NAME);
        if counts_processors {
            properties = properties.push_next(&mut processors);
        }
        // SAFETY: the chain holds structures of core 1.3 and of an extension that the device has.
        unsafe { instance.raw.get_physical_device_properties2(raw, &mut properties) };
        let limits = properties.properties.limits;
        let version = properties.properties.driver_version;
        check_limits(&limits, vk11).map_err(|what| lacks(&what))?;

        let uuid: String = vk11.device_uuid.iter().map(|b| format!("{b:02x}")).collect();
        let driver_uuid: String = vk11.driver_uuid.iter().map(|b| format!("{b:02x}")).collect();
        let parallel_groups = match processors.shader_sm_count {
            0 => 64,
            n => n * GROUPS_PER_PROCESSOR,
        };
        let profile = DeviceProfile {
            name: name.clone(),
            subgroup: vk11.subgroup_size,
            max_workgroup: limits.max_compute_work_group_invocations,
            shared_memory: limits.max_compute_shared_memory_size,
            max_grid: limits.max_compute_work_group_count,
            parallel_groups,
            features: feature_names(features),
        };
        let (memory, free) = memory(instance, raw, features.memory_budget);
        let kind = match plain.device_type {
            vk::PhysicalDeviceType::DISCRETE_GPU | vk::PhysicalDeviceType::VIRTUAL_GPU => {
                DeviceKind::Discrete
            }
            vk::PhysicalDeviceType::CPU => DeviceKind::Software,
            _ => DeviceKind::Integrated,
        };
        let driver = text(vk12.driver_name_as_c_str());
        let driver = format!("{driver} {}", text(vk12.driver_info_as_c_str()));
        let sizes = (vk13.min_subgroup_size, vk13.max_subgroup_size);
        Ok(Physical {
            raw,
            info: DeviceInfo {
                id: format!("vulkan{index}"),
                name,
                kind,
                driver: driver.trim().to_owned(),
                memory,
                free,
            },
            profile,
            cache_key: format!("{uuid}-{driver_uuid}-{version:x}"),
            queue_family,
            required_subgroup: (sizes.0 != sizes.1).then_some(vk11.subgroup_size),
            max_buffer: vk13.max_buffer_size.max(1 << 30),
            features,
        })
    }
}

fn text<E>(name: Result<&CStr, E>) -> String {
    name.map_or_else(|_| "?".to_owned(), |n| n.to_string_lossy().into_owned())
}

/// The family of the one queue: the first that computes.
fn queue_family(instance: &Instance, raw: vk::PhysicalDevice) -> Option<u32> {
    // SAFETY: the device belongs to the instance.
    let families = unsafe { instance.raw.get_physical_device_queue_family_properties(raw) };
    let computes = |f: &vk::QueueFamilyProperties| f.queue_flags.contains(vk::QueueFlags::COMPUTE);
    families.iter().position(computes).map(|i| i as u32)
}

/// Reads the features; an error names one that is needed and missing.
fn read_features(instance: &Instance, raw: vk::PhysicalDevice) -> Result<Features, &'static str> {
    let mut vk11 = vk::PhysicalDeviceVulkan11Features::default();
    let mut vk12 = vk::PhysicalDeviceVulkan12Features::default();
    let mut vk13 = vk::PhysicalDeviceVulkan13Features::default();
    let mut all = vk::PhysicalDeviceFeatures2::default()
        .push_next(&mut vk11)
        .push_next(&mut vk12)
        .push_next(&mut vk13);
    // SAFETY: the chain holds structures of core 1.3, which the device has.
    unsafe { instance.raw.get_physical_device_features2(raw, &mut all) };
    let core = all.features;
    let needed = [
        (core.shader_int64, "shaderInt64"),
        (core.shader_int16, "shaderInt16"),
        (vk11.storage_buffer16_bit_access, "storageBuffer16BitAccess"),
        (vk12.buffer_device_address, "bufferDeviceAddress"),
        (vk12.scalar_block_layout, "scalarBlockLayout"),
        (vk12.timeline_semaphore, "timelineSemaphore"),
        (vk13.synchronization2, "synchronization2"),
        (vk13.subgroup_size_control, "subgroupSizeControl"),
        (vk13.compute_full_subgroups, "computeFullSubgroups"),
        (vk13.maintenance4, "maintenance4"),
    ];
    if let Some((_, name)) = needed.iter().find(|(has, _)| *has == vk::FALSE) {
        return Err(name);
    }
    Ok(Features {
        int16: true,
        int8: vk12.shader_int8 != 0,
        float16: vk12.shader_float16 != 0,
        storage8: vk12.storage_buffer8_bit_access != 0,
        int_dot: vk13.shader_integer_dot_product != 0,
        ..Features::default()
    })
}

fn feature_names(features: Features) -> Vec<String> {
    let all = [
        (features.int8 && features.storage8, "int8"),
        (features.float16, "float16"),
        (features.int_dot, "int_dot"),
    ];
    all.iter().filter(|(has, _)| *has).map(|(_, name)| (*name).to_owned()).collect()
}

/// Limits that the kernels rely on; drivers that report nonsense are refused here, not met later.
fn check_limits(
    limits: &vk::PhysicalDeviceLimits,
    vk11: vk::PhysicalDeviceVulkan11Properties<'_>,
) -> Result<(), String> {
    let subgroup_ok =
        (4..=128).contains(&vk11.subgroup_size) && vk11.subgroup_size.is_power_of_two();
    let operations = vk::SubgroupFeatureFlags::BASIC
        | vk::SubgroupFeatureFlags::ARITHMETIC
        | vk::SubgroupFeatureFlags::CLUSTERED;
    let group =
        limits.max_compute_work_group_size[0].min(limits.max_compute_work_group_invocations);
    let checks = [
        (subgroup_ok, format!("a usual subgroup size ({} reported)", vk11.subgroup_size)),
        (
            vk11.subgroup_supported_operations.contains(operations)
                && vk11.subgroup_supported_stages.contains(vk::ShaderStageFlags::COMPUTE),
            "subgroup arithmetic".to_owned(),
        ),
        (group >= 256, format!("workgroups of 256 ({group} reported)")),
        (limits.max_compute_shared_memory_size >= 16 << 10, "16 KiB of shared memory".to_owned()),
        (limits.max_push_constants_size >= 128, "128 bytes of push constants".to_owned()),
    ];
    checks.into_iter().find(|(ok, _)| !ok).map_or(Ok(()), |(_, what)| Err(what))
}

/// Bytes in all and free of the largest heap that is the device's own; what drivers say of their budget is
/// clamped to the heap.
pub(crate) fn memory(instance: &Instance, raw: vk::PhysicalDevice, has_budget: bool) -> (u64, u64) {
    let mut budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
    let mut properties = vk::PhysicalDeviceMemoryProperties2::default();
    if has_budget {
        properties = properties.push_next(&mut budget);
    }
    // SAFETY: the budget is asked for only where the device has the extension.
    unsafe { instance.raw.get_physical_device_memory_properties2(raw, &mut properties) };
    let memory = properties.memory_properties;
    let heaps = memory.memory_heaps[..memory.memory_heap_count as usize].iter().enumerate();
    let own = heaps.filter(|(_, h)| h.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL));
    let Some((index, heap)) = own.max_by_key(|(_, h)| h.size) else { return (0, 0) };
    if !has_budget || budget.heap_budget[index] == 0 {
        return (heap.size, heap.size / 10 * 9);
    }
    let left = budget.heap_budget[index].saturating_sub(budget.heap_usage[index]);
    (heap.size, left.min(heap.size))
}
