//! A device that exists in plain Rust: every kernel of the contract, over made-up device addresses.
//!
//! It runs whole models through lowering, plans and batch arrays without a GPU, slowly. It is strict where
//! hardware is lenient: submissions run only when somebody waits, so a result that is read too early or an
//! array that is overwritten too early shows; launches without a barrier between must not meet in memory;
//! new memory is poisoned.

mod attention;
mod backend;
mod elementwise;
mod linear;
mod memory;
mod rope;
mod sample;

use std::collections::VecDeque;

use infr_backend::BackendError;
use infr_kernels::{DeviceProfile, KernelFamily, Selector, Table, Tuning, Variant};
use infr_tensor::DType;

use crate::api::{Api, Copy, MemoryKind};
use crate::dispatch::{Dispatch, DispatchList, Grid};
use crate::executor::Device;
use crate::options::GpuOptions;
use memory::Memory;

pub use backend::FakeBackend;

/// A buffer of the fake device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FakeBuffer {
    address: u64,
    bytes: u64,
    kind: MemoryKind,
}

#[derive(Debug)]
enum Work {
    Recording(DispatchList),
    Copies(Vec<Copy<FakeBuffer>>),
}

/// What the fake device has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FakeCounts {
    /// Recordings made.
    pub recorded: u64,
    /// Recordings and lists of copies submitted.
    pub submitted: u64,
    /// Waits that had to run something.
    pub waits: u64,
    /// Launches run.
    pub launches: u64,
}

/// The fake device.
#[derive(Debug)]
pub struct FakeApi {
    profile: DeviceProfile,
    table: Table,
    memory: Memory,
    queue: VecDeque<(u64, Work)>,
    reached: u64,
    counts: FakeCounts,
}

/// A launch as a kernel sees it.
struct Launch<'a> {
    variant: Variant,
    /// Names and values of the specialisation constants.
    spec: Vec<(&'a str, u32)>,
    push: &'a [u8],
    n_addresses: usize,
    grid: [u32; 3],
}

impl Launch<'_> {
    fn address(&self, index: usize) -> u64 {
        let bytes = self.push[8 * index..][..8].try_into().expect("eight bytes");
        u64::from_le_bytes(bytes)
    }

    fn u32(&self, index: usize) -> u32 {
        let bytes = self.push[8 * self.n_addresses + 4 * index..][..4].try_into();
        u32::from_le_bytes(bytes.expect("four bytes"))
    }

    fn usize(&self, index: usize) -> usize {
        self.u32(index) as usize
    }

    fn f32(&self, index: usize) -> f32 {
        f32::from_bits(self.u32(index))
    }

    fn pair(&self, index: usize) -> (usize, usize) {
        let word = self.u32(index);
        ((word & 0xffff) as usize, (word >> 16) as usize)
    }

    fn spec(&self, name: &str) -> u32 {
        let found = self.spec.iter().find(|(n, _)| *n == name);
        found.unwrap_or_else(|| panic!("constant {name}")).1
    }

    fn quant(&self) -> DType {
        self.variant.quant.expect("a kernel with a weight type")
    }

    /// Rows that the counts and the grid allow.
    fn rows(&self, memory: &mut Memory, count: u32) -> usize {
        let rows = memory.word(self.address(0) + 4 * u64::from(count));
        assert!(rows <= self.grid[1], "{rows} rows in a grid of {:?}", self.grid);
        rows as usize
    }

    /// The grid must hold exactly the parts of `wg` elements of a row.
    fn check_parts(&self, width: usize) {
        assert_eq!(self.grid[0] as usize, width.div_ceil(self.spec("wg") as usize));
    }
}

/// How many addresses the push constants of a kernel begin with.
fn n_addresses(family: KernelFamily) -> usize {
    match family {
        KernelFamily::Patch | KernelFamily::Unary | KernelFamily::Slice => 3,
        KernelFamily::AttnCombine
        | KernelFamily::GatedAct
        | KernelFamily::Binary
        | KernelFamily::GatherRows
        | KernelFamily::Concat => 4,
        KernelFamily::Embed | KernelFamily::Rope => 5,
        KernelFamily::Norm | KernelFamily::KvWrite | KernelFamily::Sample => 6,
        KernelFamily::LinearVec | KernelFamily::LinearMat => 8,
        KernelFamily::AttnDecode => 9,
        KernelFamily::AttnPrefill => 10,
        KernelFamily::RopeKv => 12,
    }
}

fn run(launch: &Launch<'_>, memory: &mut Memory) {
    match launch.variant.family {
        KernelFamily::Patch => elementwise::patch(launch, memory),
        KernelFamily::Embed => linear::embed(launch, memory),
        KernelFamily::Norm => elementwise::norm(launch, memory),
        KernelFamily::LinearVec | KernelFamily::LinearMat => linear::linear(launch, memory),
        KernelFamily::Rope => rope::rope(launch, memory),
        KernelFamily::RopeKv => rope::rope_kv(launch, memory),
        KernelFamily::KvWrite => rope::kv_write(launch, memory),
        KernelFamily::AttnDecode => attention::decode(launch, memory),
        KernelFamily::AttnCombine => attention::combine(launch, memory),
        KernelFamily::AttnPrefill => attention::prefill(launch, memory),
        KernelFamily::GatedAct => elementwise::gated_act(launch, memory),
        KernelFamily::Unary => elementwise::unary(launch, memory),
        KernelFamily::Binary => elementwise::binary(launch, memory),
        KernelFamily::GatherRows => elementwise::gather_rows(launch, memory),
        KernelFamily::Slice => elementwise::slice(launch, memory),
        KernelFamily::Concat => elementwise::concat(launch, memory),
        KernelFamily::Sample => sample::sample(launch, memory),
    }
}

impl FakeApi {
    /// The emulator's kernels and tuning.
    pub fn selector() -> Selector {
        let table = Table::parse(include_str!("kernels.toml")).expect("the emulator's own table");
        let tuning = Tuning::parse(include_str!("tuning.toml"), &[], &table);
        let tuning = tuning.expect("the emulator's own tuning");
        let profile = DeviceProfile { parallel_groups: 8, ..DeviceProfile::basic("fake") };
        Selector { table, tuning, profile }
    }

    /// A device for an executor.
    pub fn device(options: GpuOptions) -> Device<FakeApi> {
        let selector = FakeApi::selector();
        let api = FakeApi {
            profile: selector.profile.clone(),
            table: selector.table.clone(),
            memory: Memory::new(),
            queue: VecDeque::new(),
            reached: 0,
            counts: FakeCounts::default(),
        };
        Device { api, selector, options }
    }

    /// What was done so far.
    pub fn counts(&self) -> FakeCounts {
        self.counts
    }

    /// Number of buffers that live, and their bytes.
    pub fn held(&self) -> (usize, u64) {
        self.memory.held()
    }

    fn launch(&mut self, dispatch: &Dispatch) {
        let variant = *self.table.variant(dispatch.kernel).expect("a variant of the table");
        let kernel = self.table.kernel(variant.family).expect("a kernel of the table");
        assert_eq!(kernel.spec.len(), dispatch.spec.0.len(), "{}: constants", dispatch.label);
        assert!(dispatch.push.len() <= crate::MAX_PUSH, "{}: push constants", dispatch.label);
        let names = kernel.spec.iter().map(String::as_str);
        let grid = match dispatch.grid {
            Grid::Fixed(grid) => grid,
            Grid::Indirect { address } => {
                let words = self.memory.words(address, 3);
                [words[0], words[1], words[2]]
            }
        };
        let launch = Launch {
            variant,
            spec: names.zip(dispatch.spec.0.iter().copied()).collect(),
            push: &dispatch.push,
            n_addresses: n_addresses(variant.family),
            grid,
        };
        run(&launch, &mut self.memory);
        self.memory.end_launch(&dispatch.label);
        self.counts.launches += 1;
    }

    /// Runs the oldest submission.
    fn step(&mut self) -> bool {
        let Some((value, work)) = self.queue.pop_front() else { return false };
        self.memory.barrier();
        match work {
            Work::Recording(list) => {
                for (dispatch, waits) in list.dispatches.iter().zip(&list.barriers) {
                    if *waits {
                        self.memory.barrier();
                    }
                    self.launch(dispatch);
                }
            }
            Work::Copies(copies) => {
                for c in copies {
                    let from = self.memory.bytes(c.from.address + c.from_offset, c.bytes as usize);
                    let data = from.to_vec();
                    let to = c.to.address + c.to_offset;
                    self.memory.bytes_mut(to, data.len()).copy_from_slice(&data);
                }
            }
        }
        self.reached = value;
        true
    }

    fn finish(&mut self) {
        while self.step() {}
    }
}

impl Api for FakeApi {
    type Buffer = FakeBuffer;
    type Recording = DispatchList;

    fn profile(&self) -> &DeviceProfile {
        &self.profile
    }

    fn free_memory(&self) -> u64 {
        1 << 30
    }

    fn allocate(
        &mut self,
        _: &str,
        kind: MemoryKind,
        bytes: u64,
    ) -> Result<FakeBuffer, BackendError> {
        Ok(FakeBuffer { address: self.memory.allocate(bytes), bytes, kind })
    }

    fn free(&mut self, buffer: FakeBuffer) {
        self.memory.free(buffer.address);
    }

    fn address(&self, buffer: &FakeBuffer) -> u64 {
        buffer.address
    }

    fn write(&mut self, buffer: &FakeBuffer, offset: u64, bytes: &[u8]) {
        assert_eq!(buffer.kind, MemoryKind::Upload, "not mapped for writing");
        assert!(offset + bytes.len() as u64 <= buffer.bytes);
        self.memory.bytes_mut(buffer.address + offset, bytes.len()).copy_from_slice(bytes);
    }

    fn read(&self, buffer: &FakeBuffer, offset: u64, out: &mut [u8]) {
        assert_eq!(buffer.kind, MemoryKind::Readback, "not mapped for reading");
        out.copy_from_slice(self.memory.bytes(buffer.address + offset, out.len()));
    }

    fn upload(
        &mut self,
        buffer: &FakeBuffer,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), BackendError> {
        assert_eq!(buffer.kind, MemoryKind::Device, "filled through staging");
        self.finish();
        self.memory.bytes_mut(buffer.address + offset, bytes.len()).copy_from_slice(bytes);
        Ok(())
    }

    fn download(
        &mut self,
        buffer: &FakeBuffer,
        offset: u64,
        out: &mut [u8],
    ) -> Result<(), BackendError> {
        self.finish();
        out.copy_from_slice(self.memory.bytes(buffer.address + offset, out.len()));
        Ok(())
    }

    fn record(&mut self, list: &DispatchList) -> Result<DispatchList, BackendError> {
        self.counts.recorded += 1;
        Ok(list.clone())
    }

    fn destroy(&mut self, _: DispatchList) {}

    fn submit(&mut self, recording: &DispatchList, value: u64) -> Result<(), BackendError> {
        self.counts.submitted += 1;
        self.queue.push_back((value, Work::Recording(recording.clone())));
        Ok(())
    }

    fn copy(&mut self, copies: &[Copy<FakeBuffer>], value: u64) -> Result<(), BackendError> {
        self.counts.submitted += 1;
        self.queue.push_back((value, Work::Copies(copies.to_vec())));
        Ok(())
    }

    fn reached(&mut self) -> Result<u64, BackendError> {
        self.step();
        Ok(self.reached)
    }

    fn wait(&mut self, value: u64) -> Result<(), BackendError> {
        if self.reached < value {
            self.counts.waits += 1;
        }
        while self.reached < value && self.step() {}
        Ok(())
    }
}
