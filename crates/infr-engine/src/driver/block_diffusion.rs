//! Blocks of tokens that are denoised together: the prompt, then for each block a canvas of random
//! tokens, steps over it, and once it is done its rows again, causally.
//!
//! Rows of a canvas are written behind the sequence's rows and stay for one step only. What the
//! request says of temperatures and filters does not count: the model's own schedule rules. Canvas
//! and samples depend on seed, step and position alone, so that a block that is begun anew after
//! being put back into the queue is the same.

use infr_backend::{HostRows, SampleParams, TokenIn, Want};
use infr_graph::Phase;
use infr_models::Diffusion;

use super::entropy_bound::{Canvas, Cut, Noise, RowSays, cut, temperature};
use super::{Absorbed, Driver, End, Sees, SeqOutput, Work, WorkRow};
use crate::error::EngineError;
use crate::event::{Event, Finish, TokenOut};
use crate::sequence::Sequence;

/// Carried rows of the graph: what a step says to the next, and the entropy of each row.
const SOFT: usize = 0;
const ENTROPY: usize = 1;

/// The driver of block diffusion models.
#[derive(Debug)]
pub(crate) struct BlockDiffusion {
    rule: Diffusion,
    /// Width of a soft row.
    width: u32,
    vocab: u32,
    /// The block that is being denoised.
    block: Option<Block>,
}

#[derive(Debug)]
struct Block {
    canvas: Canvas,
    /// Soft rows of the step before; zeros, which say nothing, for the first.
    soft: Vec<f32>,
    in_flight: bool,
}

impl BlockDiffusion {
    pub(crate) fn new(rule: Diffusion, width: u32, vocab: u32) -> BlockDiffusion {
        BlockDiffusion { rule, width, vocab, block: None }
    }

    fn noise(&self, seq: &Sequence) -> Noise {
        let (seed, vocab) = (seq.job.request.sample.seed, self.vocab);
        Noise { seed, start: seq.job.tokens.len() as u32, vocab }
    }

    /// Known rows that the device lacks: of the prompt, or of the last block.
    fn known(seq: &Sequence, budget: u32) -> Work {
        let (start, all) = (seq.submitted, seq.job.tokens.len() as u32);
        let row = |position: u32| WorkRow {
            token: TokenIn::Id(seq.job.tokens[position as usize]),
            position,
            sees: Sees::Causal,
            output: Want::Nothing,
            mask: None,
        };
        Work::forward((start..all.min(start + budget)).map(row).collect())
    }

    /// A step over the canvas.
    fn step(&mut self, seq: &Sequence) -> Option<Work> {
        let noise = self.noise(seq);
        let (rows, width) = (self.rule.canvas, self.width);
        let block = self.block.get_or_insert_with(|| Block {
            canvas: Canvas::new(rows, noise),
            soft: vec![0.0; rows as usize * width as usize],
            in_flight: false,
        });
        if std::mem::replace(&mut block.in_flight, true) {
            return None;
        }
        let (anchor, end) = (noise.start, noise.start + rows);
        let top = seq.job.request.logprobs.unwrap_or(0).max(1);
        let row = |(position, &token): (u32, &u32)| WorkRow {
            token: TokenIn::Id(token),
            position,
            sees: Sees::Block { anchor, end },
            output: Want::Logprobs { top },
            mask: None,
        };
        let step = block.canvas.steps;
        let sample = SampleParams {
            temperature: temperature(&self.rule, step),
            seed: noise.sample_seed(step),
            ..SampleParams::default()
        };
        Some(Work {
            phase: Phase::Denoise,
            rows: (anchor..end).zip(&block.canvas.tokens).map(row).collect(),
            commit: false,
            mark: false,
            sample: Some(sample),
            carried: vec![HostRows { width, data: std::mem::take(&mut block.soft) }],
        })
    }

    /// Takes the results of a step over the canvas.
    fn denoised(&mut self, seq: &mut Sequence, out: &SeqOutput<'_>) -> Result<Absorbed, End> {
        let mut absorbed = Absorbed::default();
        let Some(block) = &mut self.block else { return Ok(absorbed) };
        block.in_flight = false;
        let says = says(out).filter(|says| says.len() == block.canvas.tokens.len());
        let soft = out.carried.get(SOFT);
        let missing = says.is_none() || soft.len() != out.rows.len() * self.width as usize;
        let Some(says) = says.filter(|_| !missing) else {
            return Err(End::Failed(EngineError::NoOutput("denoised rows")));
        };
        block.soft = soft.to_vec();
        let step = block.canvas.steps;
        let done = block.canvas.advance(&self.rule, &says);
        let tokens = block.canvas.best.clone();
        absorbed.events.push(Event::Draft { step, tokens });
        if done {
            let Some(block) = self.block.take() else { return Ok(absorbed) };
            finish_block(seq, &block.canvas.best, out, &mut absorbed);
        }
        Ok(absorbed)
    }
}

/// Rows of a step; `None` when something is missing.
fn says(out: &SeqOutput<'_>) -> Option<Vec<RowSays>> {
    let entropies = out.carried.get(ENTROPY);
    let row = |(row, &entropy): (&infr_backend::RowOut, &f32)| {
        Some(RowSays { best: row.top.first()?.0, sample: row.token?, entropy })
    };
    let says = out.rows.iter().zip(entropies).map(row);
    (entropies.len() == out.rows.len()).then(|| says.collect()).flatten()
}

/// Delivers a block that is done.
fn finish_block(seq: &mut Sequence, best: &[u32], out: &SeqOutput<'_>, absorbed: &mut Absorbed) {
    let job = &mut seq.job;
    let ends = cut(best, &job.request.stop_tokens);
    let (len, reason) = match ends {
        Cut::None => (best.len(), None),
        Cut::Stop(at) => (at + 1, Some(Finish::Stop)),
        Cut::Loop(at) => (at, Some(Finish::Stop)),
    };
    let room = job.limit as usize - job.tokens.len();
    let reason = reason.filter(|_| len <= room);
    let top = usize::from(job.request.logprobs.unwrap_or(0));
    let token = |(&id, row): (&u32, &infr_backend::RowOut)| TokenOut {
        id,
        logprob: row.top.first().map(|&(_, logprob)| logprob),
        top: row.top.iter().take(top).copied().collect(),
    };
    let tokens: Vec<TokenOut> =
        best.iter().zip(&*out.rows).map(token).take(len.min(room)).collect();
    job.tokens.extend(tokens.iter().map(|token| token.id));
    job.note_token();
    if !tokens.is_empty() {
        absorbed.events.push(Event::Tokens(tokens));
    }
    let complete = job.is_complete().then(|| job.completion());
    absorbed.end = reason.or(complete).map(End::Finished);
}

/// What the request asks for that a block cannot give.
fn refusal(seq: &Sequence) -> Option<&'static str> {
    let request = &seq.job.request;
    if request.constraint.is_some() {
        return Some("constraint");
    }
    if request.sample.needs_history() {
        return Some("penalties");
    }
    (!request.sample.logit_bias.is_empty()).then_some("bias of logits")
}

impl Driver for BlockDiffusion {
    fn phase(&self, seq: &Sequence) -> Phase {
        match seq.submitted < seq.job.tokens.len() as u32 {
            true => Phase::Forward,
            false => Phase::Denoise,
        }
    }

    fn next(&mut self, seq: &mut Sequence, budget: u32) -> Result<Option<Work>, EngineError> {
        if seq.ended() || budget == 0 {
            return Ok(None);
        }
        if let Some(what) = refusal(seq) {
            return Err(EngineError::InBlocks(what));
        }
        if seq.submitted < seq.job.tokens.len() as u32 {
            return Ok(Some(BlockDiffusion::known(seq, budget)));
        }
        if seq.job.is_complete() || budget < self.rule.canvas {
            return Ok(None);
        }
        Ok(self.step(seq))
    }

    fn waits(&self, seq: &Sequence) -> bool {
        !seq.ended() && self.block.as_ref().is_some_and(|block| block.in_flight)
    }

    fn absorb(&mut self, seq: &mut Sequence, out: SeqOutput<'_>) -> Absorbed {
        if !out.positions.is_empty() {
            let failed = |end| Absorbed { end: Some(end), ..Absorbed::default() };
            return self.denoised(seq, &out).unwrap_or_else(failed);
        }
        let mut absorbed = Absorbed::default();
        seq.job.note_prefill(out.end.min(seq.known_at_start));
        if out.end == seq.known_at_start {
            seq.job.note_answer();
            let complete = seq.job.is_complete().then(|| seq.job.completion());
            absorbed.end = complete.map(End::Finished);
        }
        absorbed
    }

    fn restart(&mut self) {
        self.block = None;
    }
}
