//! The fake device behind the seam, for the suites that every backend runs.

use infr_backend::{
    Backend, BackendError, DeviceInfo, DeviceKind, EvalCase, EvalResult, Executor, Placement,
    WeightSource,
};
use infr_graph::Program;

use super::FakeApi;
use crate::executor::GpuExecutor;
use crate::options::GpuOptions;

/// A backend with the fake device alone.
#[derive(Debug)]
pub struct FakeBackend {
    devices: Vec<DeviceInfo>,
    options: GpuOptions,
}

impl FakeBackend {
    /// The fake device with these options.
    pub fn new(options: GpuOptions) -> FakeBackend {
        let device = DeviceInfo {
            id: "fake0".into(),
            name: "emulated kernels".into(),
            kind: DeviceKind::Software,
            driver: "plain Rust".into(),
            memory: 1 << 30,
            free: 1 << 30,
        };
        FakeBackend { devices: vec![device], options }
    }
}

impl Backend for FakeBackend {
    fn devices(&self) -> &[DeviceInfo] {
        &self.devices
    }

    fn open(
        &self,
        program: &Program,
        weights: &dyn WeightSource,
        placement: &Placement,
    ) -> Result<Box<dyn Executor>, BackendError> {
        let device = FakeApi::device(self.options);
        Ok(Box::new(GpuExecutor::open(device, program, weights, placement)?))
    }

    fn eval(&self, case: &EvalCase) -> Result<EvalResult, BackendError> {
        crate::eval(FakeApi::device(self.options), case)
    }
}
