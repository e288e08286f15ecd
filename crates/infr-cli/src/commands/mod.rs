//! One file per command.

pub mod bench;
pub mod config;
pub mod debug;
pub mod devices;
pub mod inspect;
pub mod run;
pub mod synth;
