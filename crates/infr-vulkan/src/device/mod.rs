//! The device layer: what is there, and raw access to it.

pub(crate) mod instance;
pub(crate) mod logical;
pub(crate) mod memory;
pub(crate) mod physical;
pub(crate) mod transfer;

pub(crate) use instance::Instance;
pub(crate) use logical::{Device, Timeline};
pub(crate) use memory::Memory;
pub(crate) use physical::Physical;
pub(crate) use transfer::Transfer;
