//! A step's output: what each row asked for, and nothing else.

use crate::batch::HostRows;

/// The result of one output row; the fields that its `Want` names are filled.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RowOut {
    /// The sampled token.
    pub token: Option<u32>,
    /// Its log-probability under the unmodified logits.
    pub logprob: Option<f32>,
    /// The most likely tokens, descending, with log-probabilities.
    pub top: Vec<(u32, f32)>,
    /// All logits.
    pub logits: Vec<f32>,
    /// The hidden row.
    pub hidden: Vec<f32>,
}

/// The results of one step.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StepOutput {
    /// One per output row, in row order.
    pub rows: Vec<RowOut>,
    /// Rows for another device.
    pub carried: Vec<HostRows>,
}
