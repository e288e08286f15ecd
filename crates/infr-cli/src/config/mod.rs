//! Configuration: one typed value from four layers.
//!
//! defaults < configuration file < `INFR_*` environment < flags and `--set path=value`.
//! [`keys`] is the one table of settings; [`resolve`] merges the layers; [`env`] is the only place
//! of the program that reads the environment.

pub(crate) mod env;
pub(crate) mod file;
pub(crate) mod keys;
pub(crate) mod resolve;
pub(crate) mod value;

pub(crate) use keys::Settings;
pub(crate) use resolve::{Layers, Resolved, resolve};
