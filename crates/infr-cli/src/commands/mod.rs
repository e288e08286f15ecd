//! One file per command.

pub(crate) mod bench;
pub(crate) mod config;
pub(crate) mod debug;
pub(crate) mod devices;
pub(crate) mod inspect;
pub(crate) mod run;
pub(crate) mod synth;
