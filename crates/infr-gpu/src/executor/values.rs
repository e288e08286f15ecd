//! The values that leave a graph, for `eval`.

use infr_backend::{BackendError, Batch};
use infr_graph::Output;

use super::GpuExecutor;
use crate::api::Api;
use crate::lower::RowKind;
use crate::outputs::draw_on_host;
use crate::plan::Leaving;

impl<A: Api> GpuExecutor<A> {
    /// Every graph output of the step submitted last, as `f32` rows: for `eval`.
    pub(crate) fn last_values(&mut self, batch: &Batch) -> Result<Vec<Vec<f32>>, BackendError> {
        let Some(recorded) = self.last.and_then(|key| self.recorded.get(&key)) else {
            return Ok(Vec::new());
        };
        let (out_rows, mut out) = (batch.out_rows(), Vec::new());
        let leaving: Vec<Leaving> = recorded.leaving.iter().flatten().cloned().collect();
        let mut logits = None;
        for value in &leaving {
            let n_rows = match value.rows {
                RowKind::Batch => batch.rows.len(),
                RowKind::Out => out_rows.len(),
            };
            let mut words = vec![0u32; n_rows * value.width as usize];
            let bytes = bytemuck::cast_slice_mut(&mut words);
            self.api.download(&self.arena, value.offset, bytes)?;
            let float = |w: u32| if value.is_ids { w as i32 as f32 } else { f32::from_bits(w) };
            out.push(words.into_iter().map(float).collect::<Vec<f32>>());
            if value.kind == Output::Logits {
                logits = Some((out.len() - 1, value.width as usize));
            }
        }
        // Where the device cannot draw, the host has the last word on tokens.
        let tokens = leaving.iter().position(|v| v.kind == Output::Tokens);
        if let (Some(tokens), Some((logits, vocab))) = (tokens, logits) {
            for (out_idx, row_idx) in out_rows.iter().enumerate() {
                let row = &batch.rows[*row_idx as usize];
                let params = &batch.seqs[usize::from(row.seq)].sample;
                if row.mask.is_some() || params.edits_logits() {
                    let logits = &out[logits][out_idx * vocab..][..vocab];
                    let host = (params.clone(), row.mask.clone());
                    out[tokens][out_idx] = draw_on_host(&host, row.position, logits) as f32;
                }
            }
        }
        Ok(out)
    }
}
