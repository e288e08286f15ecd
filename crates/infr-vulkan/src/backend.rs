//! Vulkan behind the seam: its devices, and executors on them.

use std::sync::{Arc, Mutex};

use infr_backend::{
    Backend, BackendError, DeviceInfo, DeviceKind, EvalCase, EvalResult, Executor, Placement,
    WeightSource,
};
use infr_gpu::GpuExecutor;
use infr_graph::Program;
use infr_kernels::{Selector, Table, Tuning};

use crate::api::VulkanApi;
use crate::device::{Device, Instance, Physical};
use crate::error::VulkanError;
use crate::kernel::{KERNELS, Pipelines, TUNING};
use crate::options::VulkanOptions;

/// A device that was used, with its pipelines; kept for the next use.
#[derive(Debug)]
struct Opened {
    device: Arc<Device>,
    pipelines: Arc<Pipelines>,
}

/// All Vulkan devices.
#[derive(Debug)]
pub struct VulkanBackend {
    infos: Vec<DeviceInfo>,
    physical: Vec<Physical>,
    opened: Mutex<Vec<Option<Arc<Opened>>>>,
    table: Table,
    tuning: Tuning,
    options: VulkanOptions,
    /// Why there are no devices, or not all of them.
    notes: Vec<String>,
    instance: Option<Arc<Instance>>,
}

impl VulkanBackend {
    /// Looks for devices; without Vulkan there are none, and [`VulkanBackend::notes`] says why.
    ///
    /// # Errors
    /// When the tables that come with this crate are wrong.
    pub fn new(options: VulkanOptions) -> Result<VulkanBackend, VulkanError> {
        let table = Table::parse(KERNELS)?;
        let tuning = Tuning::parse(TUNING, &[], &table)?;
        let found = Instance::new(options.on_message.clone()).and_then(|instance| {
            let (physical, notes) = Physical::all(&instance)?;
            Ok((Some(Arc::new(instance)), physical, notes))
        });
        let (instance, physical, notes) =
            found.unwrap_or_else(|error| (None, Vec::new(), vec![error.to_string()]));
        let infos: Vec<DeviceInfo> = physical.iter().map(|p| p.info.clone()).collect();
        let opened = Mutex::new(infos.iter().map(|_| None).collect());
        Ok(VulkanBackend { infos, physical, opened, table, tuning, options, notes, instance })
    }

    /// Why there are no devices, or why one is not listed; a line each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The API on a device, for tests and tools.
    ///
    /// # Errors
    /// When the device cannot be opened.
    pub fn api(&self, device: usize) -> Result<VulkanApi, VulkanError> {
        let opened = self.opened(device)?;
        VulkanApi::new(Arc::clone(&opened.device), Arc::clone(&opened.pipelines))
    }

    /// Kernels and choices for a device.
    pub fn selector(&self, device: usize) -> Selector {
        Selector {
            table: self.table.clone(),
            tuning: self.tuning.clone(),
            profile: self.physical[device].profile.clone(),
        }
    }

    fn opened(&self, index: usize) -> Result<Arc<Opened>, VulkanError> {
        let mut all = self.opened.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(opened) = all.get(index).and_then(Option::as_ref) {
            return Ok(Arc::clone(opened));
        }
        let instance = self.instance.as_ref();
        let (Some(physical), Some(instance)) = (self.physical.get(index), instance) else {
            return Err(VulkanError::NoDevice(format!("vulkan{index}")));
        };
        let device = Arc::new(Device::new(Arc::clone(instance), physical.clone())?);
        let folder = self.options.pipeline_cache.clone();
        let pipelines = Arc::new(Pipelines::new(Arc::clone(&device), folder)?);
        let opened = Arc::new(Opened { device, pipelines });
        all[index] = Some(Arc::clone(&opened));
        Ok(opened)
    }

    /// The device for a placement: the one that it names, the one that the options name, or the first that is
    /// real hardware.
    fn choose(&self, homes: &[u16]) -> Result<usize, BackendError> {
        if let Some(&home) = homes.first() {
            if homes.iter().any(|h| *h != home) {
                let what = "a program over several Vulkan devices".to_owned();
                return Err(BackendError::Unsupported(what));
            }
            return Ok(usize::from(home));
        }
        if let Some(id) = &self.options.device {
            let found = self.infos.iter().position(|d| d.id.eq_ignore_ascii_case(id));
            return Ok(found.ok_or_else(|| VulkanError::NoDevice(id.clone()))?);
        }
        let real = self.infos.iter().position(|d| d.kind != DeviceKind::Software);
        let why = || match (self.infos.is_empty(), self.notes.first()) {
            (false, _) => "the only Vulkan devices run on the processor; name one to use it".into(),
            (true, Some(note)) => note.clone(),
            (true, None) => "Vulkan has no devices here".into(),
        };
        Ok(real.ok_or_else(|| VulkanError::Nothing(why()))?)
    }

    fn device(&self, index: usize) -> Result<infr_gpu::Device<VulkanApi>, BackendError> {
        let api = self.api(index)?;
        Ok(infr_gpu::Device { api, selector: self.selector(index), options: self.options.gpu })
    }
}

impl Backend for VulkanBackend {
    fn devices(&self) -> &[DeviceInfo] {
        &self.infos
    }

    fn open(
        &self,
        program: &Program,
        weights: &dyn WeightSource,
        placement: &Placement,
    ) -> Result<Box<dyn Executor>, BackendError> {
        let device = self.device(self.choose(&placement.homes)?)?;
        Ok(Box::new(GpuExecutor::open(device, program, weights, placement)?))
    }

    fn eval(&self, case: &EvalCase) -> Result<EvalResult, BackendError> {
        infr_gpu::eval(self.device(self.choose(&[])?)?, case)
    }
}
