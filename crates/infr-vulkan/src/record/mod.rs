//! Command buffers: replayable recordings of dispatches, and copies.

pub(crate) mod commands;
pub(crate) mod encoder;
