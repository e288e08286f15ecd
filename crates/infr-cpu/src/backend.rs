//! The processor as a backend.

use std::sync::Arc;

use infr_backend::{
    Backend, BackendError, DeviceInfo, EvalCase, EvalResult, Executor, ExpertPlacement, HostTensor,
    Placement, StateOp, StepOutput, WeightBytes, WeightSource,
};
use infr_graph::{Phase, Program, WeightDecl, WeightFrom, verify};

use crate::device;
use crate::executor::{CpuExecutor, Shared};
use crate::fast::SimdLevel;
use crate::profile::{OpTime, Profile};
use crate::threads::ThreadPool;

/// How the processor is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuOptions {
    /// Use the SIMD kernels; otherwise the plain loops of the reference.
    pub simd: bool,
    /// Threads that compute; 0 takes all that the process may use.
    pub threads: usize,
    /// A row's arithmetic depends on its own sequence alone, not on its neighbours in the batch. All kernels
    /// keep this, so the option costs nothing and changes nothing.
    pub strict: bool,
    /// Instruction set of the SIMD kernels; `None` takes the best that the processor has.
    pub level: Option<SimdLevel>,
    /// Measure the time of every op; [`CpuBackend::profile`] gives it.
    pub profile: bool,
}

impl Default for CpuOptions {
    fn default() -> CpuOptions {
        CpuOptions { simd: true, threads: 0, strict: false, level: None, profile: false }
    }
}

impl CpuOptions {
    /// The reference: plain loops, sums in `f64`.
    pub fn reference() -> CpuOptions {
        CpuOptions { simd: false, ..CpuOptions::default() }
    }
}

/// The processor.
#[derive(Debug)]
pub struct CpuBackend {
    devices: Vec<DeviceInfo>,
    pool: Arc<ThreadPool>,
    /// Instruction set, `None` for the reference.
    level: Option<SimdLevel>,
    profile: Option<Arc<Profile>>,
}

impl CpuBackend {
    /// The processor with its threads started.
    pub fn new(options: CpuOptions) -> CpuBackend {
        let pool = match options.threads {
            0 => ThreadPool::with_all_processors(),
            n => ThreadPool::new(n),
        };
        let level = options.level.map_or_else(SimdLevel::detect, SimdLevel::or_scalar);
        let level = options.simd.then_some(level);
        let set = level.map_or_else(|| "reference".to_owned(), |level| format!("{level:?}"));
        let driver = format!("{set}, {} threads", pool.n_threads());
        let profile = options.profile.then(Arc::default);
        CpuBackend { devices: vec![device::describe(driver)], pool: Arc::new(pool), level, profile }
    }

    /// Takes the times that ops took since the last call, longest first; empty unless asked for in the
    /// options.
    pub fn profile(&self) -> Vec<OpTime> {
        self.profile.as_ref().map_or_else(Vec::new, |p| p.take())
    }

    fn open_here(
        &self,
        program: &Program,
        weights: &dyn WeightSource,
        placement: &Placement,
    ) -> Result<CpuExecutor, BackendError> {
        verify::verify_program(program).map_err(|e| BackendError::Unsupported(e.to_string()))?;
        let shared = Shared {
            pool: Arc::clone(&self.pool),
            level: self.level,
            profile: self.profile.clone(),
        };
        CpuExecutor::open(program, weights, placement, shared)
    }
}

impl Backend for CpuBackend {
    fn devices(&self) -> &[DeviceInfo] {
        &self.devices
    }

    fn open(
        &self,
        program: &Program,
        weights: &dyn WeightSource,
        placement: &Placement,
    ) -> Result<Box<dyn Executor>, BackendError> {
        Ok(Box::new(self.open_here(program, weights, placement)?))
    }

    fn eval(&self, case: &EvalCase) -> Result<EvalResult, BackendError> {
        let mut program = case.program.clone();
        // A case brings all its weights, also those that the program could compute.
        for (index, weight) in program.weights.iter_mut().enumerate() {
            weight.source = WeightFrom::Tensor(index.to_string());
        }
        let placement = Placement {
            homes: Vec::new(),
            experts: ExpertPlacement::Resident,
            pages: case.pages.clone(),
            page_len: case.page_len,
            slots: case.slots,
            max_rows: case.batch.rows.len() as u32,
        };
        let mut executor = self.open_here(&program, &CaseWeights(&case.weights), &placement)?;
        let slots = case.batch.seqs.iter().map(|seq| StateOp::Clear(seq.slot));
        executor.state(&mut slots.collect::<Vec<_>>())?;
        let ticket = executor.submit(Phase::Forward, &case.batch)?;
        let mut output = StepOutput::default();
        executor.collect(ticket, &mut output)?;
        Ok(EvalResult { output, values: executor.last_values(Phase::Forward, &case.batch) })
    }
}

/// The weights of a case, found by their index in the program.
struct CaseWeights<'a>(&'a [HostTensor]);

impl WeightSource for CaseWeights<'_> {
    fn load(&self, weight: &WeightDecl) -> Result<WeightBytes, BackendError> {
        let WeightFrom::Tensor(index) = &weight.source else { unreachable!("set by eval") };
        let fail = |what: String| BackendError::Weight { name: weight.name.clone(), what };
        let tensor = index.parse::<usize>().ok().and_then(|i| self.0.get(i));
        let tensor = tensor.ok_or_else(|| fail("the case does not bring it".into()))?;
        if tensor.desc != weight.desc {
            return Err(fail(format!("has {:?}, wants {:?}", tensor.desc, weight.desc)));
        }
        Ok(WeightBytes::owned(tensor.bytes.clone()))
    }
}
