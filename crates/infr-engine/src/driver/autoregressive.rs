//! One token after another: prompt rows in chunks, then a row per token.
//!
//! A decode row may be submitted before the token it takes is known (`TokenIn::LastOf`), unless the
//! token depends on the host: a constraint's next mask or a penalty's counts.

use std::sync::Arc;

use infr_backend::{HostRows, RowOut, SampleParams, TokenIn, Want};
use infr_graph::Phase;

use super::{Absorbed, Driver, End, Sees, SeqOutput, Work, WorkRow};
use crate::error::EngineError;
use crate::event::{Event, Finish, TokenOut};
use crate::host_sample::{self, Draw};
use crate::request::Wanted;
use crate::sequence::Sequence;

/// The driver of autoregressive models; also of those that only give rows of the prompt.
#[derive(Debug)]
pub(crate) struct Autoregressive {
    /// Rows see only what stands before them.
    causal: bool,
    /// Rows per step that go to the caller.
    output_rows: u32,
    vocab: u32,
}

impl Autoregressive {
    pub(crate) fn new(causal: bool, output_rows: u32, vocab: u32) -> Autoregressive {
        Autoregressive { causal, output_rows, vocab }
    }

    /// Rows that are left of the prompt (or of what is computed again), in one step.
    fn prefill(&self, seq: &mut Sequence, budget: u32) -> Result<Option<Work>, EngineError> {
        let (start, all) = (seq.submitted, seq.known_at_start);
        let mut count = (all - start).min(budget);
        if seq.job.wants_all_rows() {
            count = count.min(self.output_rows);
        }
        if !self.causal {
            if budget < all {
                return Ok(None);
            }
            count = all;
        }
        let marks = &seq.job.request.marks;
        let next_mark = marks.iter().copied().find(|&m| m > start);
        if let Some(mark) = next_mark.filter(|_| seq.snapshots) {
            count = count.min(mark - start);
        }
        let end = start + count;
        let mut rows = Vec::with_capacity(count as usize);
        for position in start..end {
            let sees = match self.causal {
                true => Sees::Causal,
                false => Sees::Block { anchor: position, end: all },
            };
            let token = TokenIn::Id(seq.job.tokens[position as usize]);
            let output = prompt_output(seq, position + 1 == all);
            rows.push(WorkRow { token, position, sees, output, mask: None });
        }
        if end == all && seq.job.request.want == Wanted::Generate && !seq.job.is_complete() {
            self.arm(seq, &mut rows)?;
        }
        let mark = seq.snapshots && (end == all || next_mark == Some(end));
        Ok(Some(Work { mark, ..Work::forward(rows) }))
    }

    /// Makes the last row give the next token.
    fn arm(&self, seq: &mut Sequence, rows: &mut [WorkRow]) -> Result<(), EngineError> {
        let Some(row) = rows.last_mut() else { return Ok(()) };
        let request = &mut seq.job.request;
        let host = request.sample.edits_logits();
        row.output = match (host, request.logprobs.unwrap_or(0)) {
            (true, _) => Want::Logits,
            (false, 0) => Want::Token,
            (false, top) => Want::Logprobs { top },
        };
        if let Some(constraint) = &mut request.constraint {
            let mut bits = vec![0; self.vocab.div_ceil(32) as usize];
            constraint.mask(&mut bits);
            if bits.iter().all(|&word| word == 0) {
                let generated = seq.job.generated();
                return Err(EngineError::ConstraintStuck { generated });
            }
            let mask = Some(Arc::new(bits));
            *if host { &mut seq.mask } else { &mut row.mask } = mask;
        }
        seq.pending += 1;
        Ok(())
    }

    /// Takes one sampled row.
    fn token(&self, seq: &mut Sequence, position: u32, row: &mut RowOut) -> Result<TokenOut, End> {
        let request = &seq.job.request;
        let out = if request.sample.edits_logits() {
            let mask = seq.mask.take();
            let draw = Draw {
                params: &request.sample,
                history: &seq.job.tokens,
                mask: mask.as_ref().map(|m| m.as_slice()),
                position,
                top: request.logprobs.unwrap_or(0),
            };
            host_sample::sample(row, &draw)
        } else {
            let Some(id) = row.token else {
                return Err(End::Failed(EngineError::NoOutput("tokens")));
            };
            TokenOut { id, logprob: row.logprob, top: std::mem::take(&mut row.top) }
        };
        seq.job.tokens.push(out.id);
        seq.job.note_token();
        Ok(out)
    }

    /// Whether the sequence ends with a token that was just drawn.
    fn end(&self, seq: &mut Sequence, token: u32) -> Option<End> {
        if seq.job.request.stop_tokens.contains(&token) {
            return Some(End::Finished(Finish::Stop));
        }
        if let Some(constraint) = &mut seq.job.request.constraint
            && !constraint.accept(token)
        {
            return Some(End::Failed(EngineError::ConstraintRefused { token }));
        }
        seq.job.is_complete().then(|| End::Finished(seq.job.completion()))
    }
}

/// What a prompt row gives back to the caller.
fn prompt_output(seq: &Sequence, last: bool) -> Want {
    match seq.job.request.want {
        Wanted::Logits => Want::Logits,
        Wanted::Hidden => Want::Hidden,
        Wanted::LastHidden if last => Want::Hidden,
        Wanted::LastLogits if last => Want::Logits,
        Wanted::LastHidden | Wanted::LastLogits | Wanted::Generate => Want::Nothing,
    }
}

/// An event with prompt rows from `first` on that were not delivered yet.
fn rows_event(seq: &mut Sequence, out: &SeqOutput<'_>) -> Result<Option<Event>, EngineError> {
    let hidden = matches!(seq.job.request.want, Wanted::Hidden | Wanted::LastHidden);
    let mut first = None;
    let mut data = Vec::new();
    let mut width = 0;
    for (&position, row) in out.positions.iter().zip(&*out.rows) {
        if position < seq.job.told.rows {
            continue;
        }
        let values = if hidden { &row.hidden } else { &row.logits };
        if values.is_empty() {
            return Err(EngineError::NoOutput(if hidden { "hidden rows" } else { "logits" }));
        }
        first.get_or_insert(position);
        width = values.len() as u32;
        data.extend_from_slice(values);
        seq.job.told.rows = position + 1;
    }
    let rows = HostRows { width, data };
    Ok(first.map(|first| match hidden {
        true => Event::Hidden { first, rows },
        false => Event::Logits { first, rows },
    }))
}

impl Driver for Autoregressive {
    fn phase(&self, _seq: &Sequence) -> Phase {
        Phase::Forward
    }

    fn next(&mut self, seq: &mut Sequence, budget: u32) -> Result<Option<Work>, EngineError> {
        if seq.ended() || budget == 0 {
            return Ok(None);
        }
        if seq.in_prefill() {
            return self.prefill(seq, budget);
        }
        let known = seq.job.tokens.len() as u32;
        let generates = seq.job.request.want == Wanted::Generate;
        if !generates || known + seq.pending >= seq.job.limit || self.waits(seq) {
            return Ok(None);
        }
        let position = seq.submitted;
        let token = match seq.job.tokens.get(position as usize) {
            Some(&id) => TokenIn::Id(id),
            None => TokenIn::LastOf(seq.slot),
        };
        let mut rows =
            [WorkRow { token, position, sees: Sees::Causal, output: Want::Nothing, mask: None }];
        self.arm(seq, &mut rows)?;
        let rows = rows.to_vec();
        Ok(Some(Work::forward(rows)))
    }

    fn waits(&self, seq: &Sequence) -> bool {
        let request = &seq.job.request;
        let by_host = request.constraint.is_some() || request.sample.edits_logits();
        let enough = seq.job.tokens.len() as u32 + seq.pending >= seq.job.limit;
        !seq.ended() && !enough && (seq.pending > 1 || by_host && seq.pending > 0)
    }

    fn absorb(&mut self, seq: &mut Sequence, out: SeqOutput<'_>) -> Absorbed {
        let mut absorbed = Absorbed::default();
        seq.job.note_prefill(out.end.min(seq.known_at_start));
        if seq.job.request.want != Wanted::Generate {
            match rows_event(seq, &out) {
                Ok(event) => absorbed.events.extend(event),
                Err(error) => absorbed.end = Some(End::Failed(error)),
            }
            if out.end == seq.known_at_start && absorbed.end.is_none() {
                absorbed.end = Some(End::Finished(Finish::Length));
            }
            return absorbed;
        }
        if out.positions.is_empty() && out.end == seq.known_at_start && seq.job.is_complete() {
            absorbed.end = Some(End::Finished(seq.job.completion()));
            return absorbed;
        }
        let mut tokens = Vec::new();
        for (index, &position) in out.positions.iter().enumerate() {
            seq.pending -= 1;
            match self.token(seq, position, &mut out.rows[index]) {
                Ok(token) => {
                    absorbed.end = self.end(seq, token.id);
                    tokens.push(token);
                }
                Err(end) => absorbed.end = Some(end),
            }
            if absorbed.end.is_some() {
                break;
            }
        }
        if !tokens.is_empty() {
            absorbed.events.push(Event::Tokens(tokens));
        }
        absorbed
    }

    fn restart(&mut self) {}
}

/// What the device has to know to sample.
pub(crate) fn device_params(params: &SampleParams) -> SampleParams {
    // Rows that need bias or penalties give their logits to the host.
    SampleParams { logit_bias: Vec::new(), ..params.clone() }
}
