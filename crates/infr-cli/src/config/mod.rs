//! Configuration: one typed value from four layers.
//!
//! defaults < configuration file < `INFR_*` environment < flags and `--set path=value`.
//! [`keys`] is the one table of settings; [`resolve`] merges the layers; [`env`] is the only place
//! of the program that reads the environment.

pub mod env;
pub mod file;
pub mod keys;
pub mod resolve;
pub mod value;

pub use keys::Settings;
pub use resolve::{Layers, Resolved, resolve};
