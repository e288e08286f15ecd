//! What almost every family file uses.

pub(crate) use infr_gguf::Gguf;
pub(crate) use infr_graph::{Program, Reach, RopeStyle};

pub(crate) use crate::blocks::attention::{self, Heads, Scores, SelfAttention};
pub(crate) use crate::blocks::head::{self, Head, OutputMatrix};
pub(crate) use crate::blocks::moe::{self, Experts};
pub(crate) use crate::blocks::{embed, ffn, norm};
pub(crate) use crate::common::Common;
pub(crate) use crate::error::ModelError;
pub(crate) use crate::family::{Family, Model, ModelInfo};
pub(crate) use crate::hparams::Hparams;
pub(crate) use crate::net::Net;
pub(crate) use crate::options::BuildOptions;
pub(crate) use crate::rope::{Rope, Rotation};
pub(crate) use crate::sampling;
pub(crate) use crate::synth::recipe::Recipe;
pub(crate) use crate::table::TensorTable;
