//! One batch with everything from and to the host: what a backend's `eval` is.

use infr_backend::{
    BackendError, EvalCase, EvalResult, Executor, ExpertPlacement, HostTensor, Placement, StateOp,
    StepOutput, WeightBytes, WeightSource,
};
use infr_graph::{Phase, WeightDecl, WeightFrom};

use crate::api::Api;
use crate::executor::{Device, GpuExecutor};
use crate::options::GpuOptions;

/// Runs a case on a device; the case says whether the rewrite passes run.
///
/// # Errors
/// As opening the program and submitting the batch.
pub fn eval<A: Api>(device: Device<A>, case: &EvalCase) -> Result<EvalResult, BackendError> {
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
    let options = GpuOptions { fuse: case.optimise, warm: false, ..device.options };
    let device = Device { options, ..device };
    let weights = CaseWeights(&case.weights);
    let mut executor = GpuExecutor::open(device, &program, &weights, &placement)?;
    let slots = case.batch.seqs.iter().map(|seq| StateOp::Clear(seq.slot));
    executor.state(&mut slots.collect::<Vec<_>>())?;
    let ticket = executor.submit(Phase::Forward, &case.batch)?;
    let mut output = StepOutput::default();
    executor.collect(ticket, &mut output)?;
    let values = executor.last_values(&case.batch)?;
    Ok(EvalResult { output, values })
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
