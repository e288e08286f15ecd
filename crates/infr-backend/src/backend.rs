//! A compute API with its devices, and what it needs to open a program.

use std::ops::{Deref, Range};
use std::sync::Arc;

use infr_graph::{Program, WeightDecl};

use crate::batch::Batch;
use crate::error::BackendError;
use crate::executor::Executor;
use crate::output::StepOutput;
use crate::placement::Placement;

/// What kind of hardware a device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceKind {
    /// The processor.
    Cpu,
    /// A GPU with memory of its own.
    Discrete,
    /// A GPU that shares the system's memory.
    Integrated,
    /// A GPU API implemented on the processor.
    Software,
}

/// A device as users see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// What users type: `cpu`, `vulkan0`.
    pub id: String,
    /// Marketing name.
    pub name: String,
    /// Kind of hardware.
    pub kind: DeviceKind,
    /// Driver name and version, or the instruction sets in use.
    pub driver: String,
    /// Bytes of memory in all.
    pub memory: u64,
    /// Bytes free now.
    pub free: u64,
}

/// A compute API.
pub trait Backend: Send + Sync {
    /// Its devices.
    fn devices(&self) -> &[DeviceInfo];

    /// Loads a program.
    ///
    /// # Errors
    /// When memory does not suffice, a weight is unreadable or an op is not supported.
    fn open(
        &self,
        program: &Program,
        weights: &dyn WeightSource,
        placement: &Placement,
    ) -> Result<Box<dyn Executor>, BackendError>;

    /// Runs one batch with everything from and to the host: for tests and tools.
    ///
    /// # Errors
    /// As [`Backend::open`] and [`Executor::submit`].
    fn eval(&self, case: &EvalCase) -> Result<EvalResult, BackendError>;
}

/// The bytes of one weight, borrowed from a mapping or owned.
#[derive(Clone)]
pub struct WeightBytes {
    owner: Arc<dyn AsRef<[u8]> + Send + Sync>,
    range: Range<usize>,
}

impl WeightBytes {
    /// A part of shared bytes; the range must lie within them.
    pub fn shared(owner: Arc<dyn AsRef<[u8]> + Send + Sync>, range: Range<usize>) -> WeightBytes {
        WeightBytes { owner, range }
    }

    /// Bytes of its own.
    pub fn owned(bytes: Vec<u8>) -> WeightBytes {
        let range = 0..bytes.len();
        WeightBytes { owner: Arc::new(bytes), range }
    }
}

impl Deref for WeightBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &(*self.owner).as_ref()[self.range.clone()]
    }
}

impl std::fmt::Debug for WeightBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WeightBytes({})", self.range.len())
    }
}

/// Where a program's weights come from.
pub trait WeightSource: Sync {
    /// The bytes of a weight, in the type and shape of its declaration.
    ///
    /// # Errors
    /// When they cannot be had.
    fn load(&self, weight: &WeightDecl) -> Result<WeightBytes, BackendError>;
}

/// A tensor in host memory.
#[derive(Debug, Clone, PartialEq)]
pub struct HostTensor {
    /// Type and shape.
    pub desc: infr_tensor::TensorDesc,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// One batch of one program with all its data.
#[derive(Debug, Clone)]
pub struct EvalCase {
    /// The program; its `Forward` graph is run.
    pub program: Program,
    /// One per weight of the program.
    pub weights: Vec<HostTensor>,
    /// The batch; its page tables and slots index pools of the sizes below.
    pub batch: Batch,
    /// Pages per cache group.
    pub pages: Vec<u32>,
    /// Rows per page.
    pub page_len: u32,
    /// Slots.
    pub slots: u32,
    /// Run the backend's rewrite passes first.
    pub optimise: bool,
}

/// What a case gives.
#[derive(Debug, Clone, PartialEq)]
pub struct EvalResult {
    /// The step's rows.
    pub output: StepOutput,
    /// Every graph output as `f32` rows (ids converted).
    pub values: Vec<Vec<f32>>,
}
