//! The fusion rules, in the order in which they are tried.

mod add_norm;
mod gate_up_act;
mod rope_kv;
#[cfg(test)]
pub(crate) mod tests_support;

use super::fuse::Rule;

/// All rules.
pub const RULES: &[Rule] = &[rope_kv::RULE, gate_up_act::RULE, add_norm::RULE];
