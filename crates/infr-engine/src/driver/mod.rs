//! How a sequence advances: what it computes next, and what it makes of the results.
//!
//! A driver knows one sequence and no pages, slots or batches. The scheduler calls `next` when the
//! sequence may have rows in the coming step, possibly while earlier rows are in flight, and
//! `absorb` with the results in order. After being put back into the queue a sequence starts anew
//! with all its known tokens, and `restart` tells its driver.

mod autoregressive;

use infr_backend::{RowOut, TokenIn, TokenMask, Want};
use infr_graph::Phase;

pub(crate) use autoregressive::{Autoregressive, device_params};

use crate::error::EngineError;
use crate::event::{Event, Finish};
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
}

/// The results of a sequence's rows of one step.
pub(crate) struct SeqOutput<'a> {
    /// Positions of the rows that give something back.
    pub(crate) positions: &'a [u32],
    /// One per position.
    pub(crate) rows: &'a mut [RowOut],
    /// One behind the last position of the step.
    pub(crate) end: u32,
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
    /// At most `budget` rows to compute next; `None` when there are none now.
    fn next(&mut self, seq: &mut Sequence, budget: u32) -> Result<Option<Work>, EngineError>;

    /// Whether the next rows depend on results that were not absorbed.
    fn waits(&self, seq: &Sequence) -> bool;

    /// Takes the results of one step.
    fn absorb(&mut self, seq: &mut Sequence, out: SeqOutput<'_>) -> Absorbed;

    /// The sequence starts anew.
    fn restart(&mut self);
}
