//! The thin trait that a GPU API implements: memory, recordings, a timeline.
//!
//! The contract in prose:
//! - One queue. Everything submitted runs in submission order: a recording and a list of copies start by
//!   waiting (compute and transfer, memory included) for all that was submitted before, and end by making
//!   their writes visible to the host. Inside a recording only `DispatchList::barriers` order launches.
//! - A buffer has a device address that does not change while it lives. Memory kinds differ in who reaches
//!   it: see [`MemoryKind`]. New memory holds garbage.
//! - Host writes through [`Api::write`] are seen by what is submitted afterwards.
//! - Timeline values only grow; the value of a submission is reached when all of it has finished.
//! - A recording can be submitted any number of times, also while an earlier submission of it runs.
//! - Freed buffers and destroyed recordings are not in use by the device any more: the caller has waited.
//! - Dropping an `Api` waits for the device and releases everything.

use infr_backend::BackendError;
use infr_kernels::DeviceProfile;

use crate::dispatch::DispatchList;

/// Who reaches a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MemoryKind {
    /// The device alone: weights, pages, activations. Filled by [`Api::upload`].
    Device,
    /// The host writes, kernels read: device memory that the host sees where the device has it, host
    /// memory otherwise. Mapped while it lives.
    Upload,
    /// Kernels write, the host reads (cached host memory). Mapped while it lives.
    Readback,
}

/// A copy between two buffers on the device's timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copy<B> {
    /// Source.
    pub from: B,
    /// First byte of the source.
    pub from_offset: u64,
    /// Destination; the ranges do not overlap.
    pub to: B,
    /// First byte of the destination.
    pub to_offset: u64,
    /// Number of bytes.
    pub bytes: u64,
}

/// A GPU API on one device.
pub trait Api: Send {
    /// A handle of a buffer.
    type Buffer: Clone + Send + std::fmt::Debug;
    /// A handle of a replayable list of dispatches.
    type Recording: Send + std::fmt::Debug;

    /// Facts of the device.
    fn profile(&self) -> &DeviceProfile;

    /// Bytes of device memory that can still be allocated, by the driver's word.
    fn free_memory(&self) -> u64;

    /// Allocates a buffer whose address is a multiple of 256; `what` names it in errors.
    ///
    /// # Errors
    /// `OutOfMemory`, or `DeviceLost`.
    fn allocate(
        &mut self,
        what: &str,
        kind: MemoryKind,
        bytes: u64,
    ) -> Result<Self::Buffer, BackendError>;

    /// Releases a buffer that the device does not use.
    fn free(&mut self, buffer: Self::Buffer);

    /// Device address of the first byte.
    fn address(&self, buffer: &Self::Buffer) -> u64;

    /// Writes into mapped memory ([`MemoryKind::Upload`]).
    fn write(&mut self, buffer: &Self::Buffer, offset: u64, bytes: &[u8]);

    /// Reads mapped memory ([`MemoryKind::Readback`]) that a finished submission wrote.
    fn read(&self, buffer: &Self::Buffer, offset: u64, out: &mut [u8]);

    /// Fills device memory through staging, ordered between submissions; `bytes` may be reused at once.
    ///
    /// # Errors
    /// When the device fails.
    fn upload(
        &mut self,
        buffer: &Self::Buffer,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), BackendError>;

    /// Reads device memory after everything submitted, blocking.
    ///
    /// # Errors
    /// When the device fails.
    fn download(
        &mut self,
        buffer: &Self::Buffer,
        offset: u64,
        out: &mut [u8],
    ) -> Result<(), BackendError>;

    /// Makes a replayable recording; pipelines are built as needed and kept.
    ///
    /// # Errors
    /// When a kernel does not build or memory is short.
    fn record(&mut self, list: &DispatchList) -> Result<Self::Recording, BackendError>;

    /// Releases a recording that the device does not run.
    fn destroy(&mut self, recording: Self::Recording);

    /// Starts a recording; the timeline reaches `value` when it has finished.
    ///
    /// # Errors
    /// When the device fails.
    fn submit(&mut self, recording: &Self::Recording, value: u64) -> Result<(), BackendError>;

    /// Starts copies that do not depend on each other; the timeline reaches `value` when they have finished.
    ///
    /// # Errors
    /// When the device fails.
    fn copy(&mut self, copies: &[Copy<Self::Buffer>], value: u64) -> Result<(), BackendError>;

    /// The value that the timeline has reached.
    ///
    /// # Errors
    /// When the device fails.
    fn reached(&mut self) -> Result<u64, BackendError>;

    /// Waits until the timeline reaches `value`: spins for a while, then blocks.
    ///
    /// # Errors
    /// When the device fails.
    fn wait(&mut self, value: u64) -> Result<(), BackendError>;
}
