//! A program opened on its devices.

use infr_graph::Phase;

use crate::batch::{Batch, Slot};
use crate::error::BackendError;
use crate::output::StepOutput;

/// A submitted step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// An operation on pages and slots between steps.
#[derive(Debug)]
pub enum StateOp<'a> {
    /// Copies a page of a cache group.
    CopyPage {
        /// Cache group.
        group: u16,
        /// Source page.
        from: u32,
        /// Destination page.
        to: u32,
    },
    /// Reads a page of every state of a group.
    ReadPage {
        /// Cache group.
        group: u16,
        /// The page.
        page: u32,
        /// Receives the bytes.
        out: &'a mut Vec<u8>,
    },
    /// Writes a page that [`StateOp::ReadPage`] gave.
    WritePage {
        /// Cache group.
        group: u16,
        /// The page.
        page: u32,
        /// The bytes.
        data: &'a [u8],
    },
    /// Zeroes the recurrent states of a slot.
    Clear(Slot),
    /// Reads the recurrent states of a slot.
    ReadSlot {
        /// The slot.
        slot: Slot,
        /// Receives the bytes.
        out: &'a mut Vec<u8>,
    },
    /// Writes recurrent states that [`StateOp::ReadSlot`] gave.
    WriteSlot {
        /// The slot.
        slot: Slot,
        /// The bytes.
        data: &'a [u8],
    },
}

/// Bytes that an executor holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryReport {
    /// Weights, mapped or copied.
    pub weights: u64,
    /// Page pools.
    pub pages: u64,
    /// Recurrent slots.
    pub slots: u64,
    /// Scratch for activations.
    pub scratch: u64,
}

/// Runs steps of one program.
pub trait Executor: Send {
    /// Starts a step.
    ///
    /// # Errors
    /// When the batch breaks the contract, or the device fails.
    fn submit(&mut self, phase: Phase, batch: &Batch) -> Result<Ticket, BackendError>;

    /// Waits for a step and takes its results; tickets are collected in order.
    ///
    /// # Errors
    /// When the device fails, or the ticket is not the oldest open one.
    fn collect(&mut self, ticket: Ticket, out: &mut StepOutput) -> Result<(), BackendError>;

    /// Runs state operations, after every step submitted before.
    ///
    /// # Errors
    /// When a page or slot does not exist, or the device fails.
    fn state(&mut self, ops: &mut [StateOp<'_>]) -> Result<(), BackendError>;

    /// What it holds.
    fn memory(&self) -> MemoryReport;
}
