//! From what a finished step wrote to what each row asked for.

use infr_backend::sample::{apply_mask, draw, edit_logits, log_sum_exp, top_logprobs, uniform};
use infr_backend::{HostRows, Row, RowOut, SampleParams, Slot, StepOutput, TokenMask, Want};
use infr_graph::Output;

use crate::api::Api;
use crate::lower::RowKind;
use crate::plan::BackValue;

/// An output row of a step in flight.
#[derive(Debug, Clone)]
pub(crate) struct Pending {
    want: Want,
    position: u32,
    /// The slot of its sequence.
    pub(crate) slot: Slot,
    /// Set when the host draws the token: by parameters and mask.
    host: Option<Box<(SampleParams, Option<TokenMask>)>>,
}

impl Pending {
    /// What is needed of a row once its step has finished. The host draws where the device cannot: under
    /// masks and biases, and in graphs that do not sample.
    pub(crate) fn new(
        row: &Row,
        slot: Slot,
        params: &SampleParams,
        graph_samples: bool,
    ) -> Pending {
        let samples = matches!(row.output, Want::Token | Want::Logprobs { .. });
        let on_host = row.mask.is_some() || params.edits_logits() || !graph_samples;
        let host = (samples && on_host).then(|| Box::new((params.clone(), row.mask.clone())));
        Pending { want: row.output, position: row.position, slot, host }
    }

    /// Whether the host draws this row's token.
    pub(crate) fn on_host(&self) -> bool {
        self.host.is_some()
    }

    /// Whether a token is drawn for it at all.
    pub(crate) fn samples(&self) -> bool {
        matches!(self.want, Want::Token | Want::Logprobs { .. })
    }

    /// Whether its logits go to the host.
    pub(crate) fn needs_logits(&self) -> bool {
        self.on_host() || matches!(self.want, Want::Logits | Want::Logprobs { .. })
    }

    /// Whether its hidden row goes to the host.
    pub(crate) fn needs_hidden(&self) -> bool {
        self.want == Want::Hidden
    }
}

/// The host-visible memory that a step wrote.
pub(crate) struct Written<'a, A: Api> {
    pub(crate) api: &'a A,
    pub(crate) results: &'a A::Buffer,
    /// What went back, and the buffer that it lies in.
    pub(crate) back: &'a [BackValue],
    pub(crate) buffer: Option<&'a A::Buffer>,
    pub(crate) n_rows: usize,
}

impl<A: Api> Written<'_, A> {
    fn floats(&self, value: &BackValue, first: usize, n_rows: usize) -> Vec<f32> {
        let Some(buffer) = self.buffer else { return Vec::new() };
        let mut floats = vec![0.0f32; n_rows * value.width as usize];
        let offset = value.offset + 4 * u64::from(value.width) * first as u64;
        self.api.read(buffer, offset, bytemuck::cast_slice_mut(&mut floats));
        floats
    }

    fn row(&self, kind: Output, out_idx: usize) -> Vec<f32> {
        let value = self.back.iter().find(|v| v.kind == kind);
        value.map_or_else(Vec::new, |v| self.floats(v, out_idx, 1))
    }

    fn carried(&self, n_out: usize, out: &mut Vec<HostRows>) {
        out.clear();
        for value in self.back {
            let Output::Carried(index) = value.kind else { continue };
            let index = usize::from(index);
            if out.len() <= index {
                out.resize_with(index + 1, HostRows::default);
            }
            let n_rows = match value.rows {
                RowKind::Batch => self.n_rows,
                RowKind::Out => n_out,
            };
            out[index] = HostRows { width: value.width, data: self.floats(value, 0, n_rows) };
        }
    }

    /// Fills `out`; gives the tokens that the host drew and that are the last ones of their slots.
    pub(crate) fn collect(&self, rows: &[Pending], out: &mut StepOutput) -> Vec<(Slot, u32)> {
        let mut results = vec![[0u32; 2]; rows.len()];
        self.api.read(self.results, 0, bytemuck::cast_slice_mut(&mut results));
        let mut drawn = Vec::new();
        self.carried(rows.len(), &mut out.carried);
        out.rows.clear();
        for (out_idx, (row, result)) in rows.iter().zip(results).enumerate() {
            let logits = match row.needs_logits() {
                true => self.row(Output::Logits, out_idx),
                false => Vec::new(),
            };
            let mut filled = match row.want {
                Want::Nothing => RowOut::default(),
                Want::Token | Want::Logprobs { .. } => {
                    let (token, logprob) = match &row.host {
                        None => (result[0], f32::from_bits(result[1])),
                        Some(host) => {
                            let token = draw_on_host(host, row.position, &logits);
                            let later = &rows[out_idx + 1..];
                            if !later.iter().any(|r| r.samples() && r.slot == row.slot) {
                                drawn.push((row.slot, token));
                            }
                            let logit = f64::from(logits[token as usize]);
                            (token, (logit - log_sum_exp(&logits)) as f32)
                        }
                    };
                    RowOut { token: Some(token), logprob: Some(logprob), ..RowOut::default() }
                }
                Want::Logits => RowOut { logits: logits.clone(), ..RowOut::default() },
                Want::Hidden => {
                    RowOut { hidden: self.row(Output::Hidden, out_idx), ..RowOut::default() }
                }
            };
            if let Want::Logprobs { top } = row.want {
                filled.top = top_logprobs(&logits, usize::from(top));
            }
            out.rows.push(filled);
        }
        drawn
    }
}

/// A token by the definition, whatever the device can do.
pub(crate) fn draw_on_host(
    (params, mask): &(SampleParams, Option<TokenMask>),
    position: u32,
    logits: &[f32],
) -> u32 {
    let mut edited = logits.to_vec();
    if let Some(mask) = mask {
        apply_mask(&mut edited, mask);
    }
    edit_logits(&mut edited, params, &[]);
    draw(&edited, params, uniform(params.seed, position))
}
