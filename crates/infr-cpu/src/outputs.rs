//! From a step's values to what each row asked for.

use infr_backend::sample::top_logprobs;
use infr_backend::{HostRows, RowOut, StepOutput, Want};
use infr_graph::Output;

use crate::arena::Values;
use crate::ops::Step;
use crate::ops::sample::draw_row;

/// Fills `out` from the values of a finished step.
///
/// `log_sum_exp` normalises the logits of a row.
pub(crate) fn collect(
    step: &Step<'_>,
    values: Values<'_>,
    log_sum_exp: &mut dyn FnMut(&[f32]) -> f64,
    out: &mut StepOutput,
) {
    out.rows.clear();
    for (out_idx, row_idx) in step.out_rows.iter().enumerate() {
        let want = step.batch.rows[*row_idx as usize].output;
        out.rows.push(row_out(step, values, (out_idx, want), log_sum_exp));
    }
    out.carried.clear();
    for (kind, value) in &values.plan.outputs {
        let Output::Carried(index) = kind else { continue };
        let index = usize::from(*index);
        if out.carried.len() <= index {
            out.carried.resize_with(index + 1, HostRows::default);
        }
        let (width, data) = (values.width(*value) as u32, values.floats(*value).to_vec());
        out.carried[index] = HostRows { width, data };
    }
}

fn row_out(
    step: &Step<'_>,
    values: Values<'_>,
    (out_idx, want): (usize, Want),
    log_sum_exp: &mut dyn FnMut(&[f32]) -> f64,
) -> RowOut {
    let row_of = |value: Option<_>| {
        value.map_or(&[][..], |v| &values.floats(v)[out_idx * values.width(v)..][..values.width(v)])
    };
    let logits = row_of(values.plan.logits);
    let token = || match values.plan.sampled {
        Some(sampled) => values.ids(sampled)[out_idx] as u32,
        None => draw_row(step, out_idx, logits),
    };
    let mut chosen = |token: u32| RowOut {
        token: Some(token),
        logprob: Some((f64::from(logits[token as usize]) - log_sum_exp(logits)) as f32),
        ..RowOut::default()
    };
    match want {
        Want::Nothing => RowOut::default(),
        Want::Token => chosen(token()),
        Want::Logprobs { top } => {
            RowOut { top: top_logprobs(logits, usize::from(top)), ..chosen(token()) }
        }
        Want::Logits => RowOut { logits: logits.to_vec(), ..RowOut::default() },
        Want::Hidden => RowOut { hidden: row_of(values.plan.hidden).to_vec(), ..RowOut::default() },
    }
}
