//! How a sequence advances: what it computes next, and what it makes of the results.
//!
//! A driver knows one sequence and no pages, slots or batches. The scheduler calls `next` when the
//! sequence may have rows in the coming step, possibly while earlier rows are in flight, and
//! `absorb` with the results in order. After being put back into the queue a sequence starts anew
//! with all its known tokens, and `restart` tells its driver.

mod autoregressive;
mod block_diffusion;
mod entropy_bound;

use std::ops::Range;

use infr_backend::{HostRows, RowOut, SampleParams, TokenIn, TokenMask, Want};
use infr_graph::{BatchField, Op, Phase};
use infr_models::Diffusion;

pub(crate) use autoregressive::{Autoregressive, device_params};
use block_diffusion::BlockDiffusion;

use crate::engine::EngineSource;

use crate::error::EngineError;
use crate::event::{Event, Finish};
use crate::request::Wanted;
use crate::sequence::Sequence;

/// What a row sees of its own sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sees {
    /// What the group's reach says, up to itself.
    Causal,
    /// What the group's reach says of row `anchor`, up to `end`: all rows of a block alike.
    Block { anchor: u32, end: u32 },
}

/// A row that a driver asks for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct WorkRow {
    pub(crate) token: TokenIn,
    pub(crate) position: u32,
    pub(crate) sees: Sees,
    pub(crate) output: Want,
    pub(crate) mask: Option<TokenMask>,
}

/// What a sequence computes in one step.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Work {
    pub(crate) phase: Phase,
    pub(crate) rows: Vec<WorkRow>,
    /// The rows' keys and values stay; without it the next step writes over them.
    pub(crate) commit: bool,
    /// A later request will probably go on from the end of these rows.
    pub(crate) mark: bool,
    /// How tokens are drawn, when not as the request says.
    pub(crate) sample: Option<SampleParams>,
    /// Rows for the graph's carried values, as many in each as there are rows.
    pub(crate) carried: Vec<HostRows>,
}

impl Work {
    /// Rows that stay.
    pub(crate) fn forward(rows: Vec<WorkRow>) -> Work {
        let phase = Phase::Forward;
        Work { phase, rows, commit: true, mark: false, sample: None, carried: Vec::new() }
    }
}

/// The results of a sequence's rows of one step.
pub(crate) struct SeqOutput<'a> {
    /// Positions of the rows that give something back.
    pub(crate) positions: &'a [u32],
    /// One per position.
    pub(crate) rows: &'a mut [RowOut],
    /// What the graph carries out, of these rows.
    pub(crate) carried: Carried<'a>,
    /// One behind the last position of the step.
    pub(crate) end: u32,
}

/// A sequence's part of what a step carries out.
#[derive(Debug, Clone)]
pub(crate) struct Carried<'a> {
    pub(crate) values: &'a [HostRows],
    /// The sequence's rows among all that give something back.
    pub(crate) rows: Range<usize>,
}

impl<'a> Carried<'a> {
    /// The sequence's rows of carried value `index`; empty when there is no such value.
    pub(crate) fn get(&self, index: usize) -> &'a [f32] {
        let Some(value) = self.values.get(index) else { return &[] };
        let width = value.width as usize;
        value.data.get(self.rows.start * width..self.rows.end * width).unwrap_or(&[])
    }
}

/// How a sequence ends by itself.
pub(crate) enum End {
    Finished(Finish),
    Failed(EngineError),
}

/// What a driver makes of results.
#[derive(Default)]
pub(crate) struct Absorbed {
    pub(crate) events: Vec<Event>,
    pub(crate) end: Option<End>,
}

/// How a sequence advances.
pub(crate) trait Driver: Send {
    /// The phase of the rows that come next.
    fn phase(&self, seq: &Sequence) -> Phase;

    /// At most `budget` rows to compute next; `None` when there are none now.
    fn next(&mut self, seq: &mut Sequence, budget: u32) -> Result<Option<Work>, EngineError>;

    /// Whether the next rows depend on results that were not absorbed.
    fn waits(&self, seq: &Sequence) -> bool;

    /// Takes the results of one step.
    fn absorb(&mut self, seq: &mut Sequence, out: SeqOutput<'_>) -> Absorbed;

    /// The sequence starts anew.
    fn restart(&mut self);
}

/// How a model makes tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Style {
    /// One after another.
    Autoregressive,
    /// In blocks that are denoised.
    Blocks {
        rule: Diffusion,
        /// Width of the rows that a denoising step takes from the one before.
        width: u32,
    },
}

/// What all drivers of an engine share.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Drivers {
    pub(crate) style: Style,
    /// Rows see only what stands before them.
    pub(crate) causal: bool,
    /// Rows per step that go to the caller.
    pub(crate) output_rows: u32,
    pub(crate) vocab: u32,
}

impl Style {
    /// The style of a source's model.
    ///
    /// # Errors
    /// When its program lacks the graph for it.
    pub(crate) fn of_source(source: &EngineSource) -> Result<Style, EngineError> {
        let Some(rule) = source.diffusion else { return Ok(Style::Autoregressive) };
        let width = source.program.graph(Phase::Denoise).and_then(|graph| {
            graph.nodes.iter().find_map(|node| match node.op {
                Op::Input(BatchField::Carried { index: 0, width }) => Some(width),
                _ => None,
            })
        });
        let width = width.ok_or(EngineError::NoGraph("denoising steps"))?;
        Ok(Style::Blocks { rule, width })
    }

    /// New tokens come in blocks of this many rows.
    pub(crate) fn block(&self) -> u32 {
        match self {
            Style::Autoregressive => 1,
            Style::Blocks { rule, .. } => rule.canvas,
        }
    }
}

impl Drivers {
    /// The driver of a request.
    pub(crate) fn for_request(&self, want: Wanted) -> Box<dyn Driver> {
        match (self.style, want) {
            (Style::Blocks { rule, width }, Wanted::Generate) => {
                Box::new(BlockDiffusion::new(rule, width, self.vocab))
            }
            _ => Box::new(Autoregressive::new(self.causal, self.output_rows, self.vocab)),
        }
    }
}
