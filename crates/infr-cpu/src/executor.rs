//! A program opened on the processor. A step runs inside `submit`; `collect` hands its results out.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use infr_backend::sample::log_sum_exp;
use infr_backend::{
    BackendError, Batch, Contract, Executor, MemoryReport, Placement, StateOp, StepOutput, Ticket,
    TokenIn, Want, WeightSource,
};
use infr_graph::{Phase, Program};

use crate::arena::{Arena, Rows, Values};
use crate::fast::SimdLevel;
use crate::kernels::Kernels;
use crate::ops::{self, Context, Step};
use crate::outputs;
use crate::plan::Plan;
use crate::profile::Profile;
use crate::state::States;
use crate::threads::ThreadPool;
use crate::weights::{self, Weight};

/// Steps that may wait for collection.
const MAX_OPEN: usize = 2;

/// What the executors of a backend share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) pool: Arc<ThreadPool>,
    /// Instruction set, `None` for the reference.
    pub(crate) level: Option<SimdLevel>,
    pub(crate) profile: Option<Arc<Profile>>,
}

/// Runs a program on the processor.
#[derive(Debug)]
pub struct CpuExecutor {
    plans: Vec<Plan>,
    weights: Vec<Weight>,
    /// SIMD kernels; without them the reference computes everything.
    kernels: Option<Kernels>,
    states: States,
    arena: Arena,
    shared: Shared,
    max_rows: u32,
    next_ticket: u64,
    done: VecDeque<(Ticket, StepOutput)>,
    /// Outputs handed out before, for their memory.
    spare: Vec<StepOutput>,
    rows: RowBuffers,
}

/// Per-row facts of the step, kept for their memory.
#[derive(Debug, Default)]
struct RowBuffers {
    tokens: Vec<i32>,
    positions: Vec<i32>,
    out_rows: Vec<u32>,
}

impl RowBuffers {
    fn fill(&mut self, batch: &Batch, states: &States) {
        self.tokens.clear();
        self.positions.clear();
        self.out_rows.clear();
        for (index, row) in batch.rows.iter().enumerate() {
            self.tokens.push(match row.token {
                TokenIn::Id(id) => id as i32,
                TokenIn::LastOf(slot) => states.last_token(slot).unwrap_or(0) as i32,
                TokenIn::Carried(_) => 0,
            });
            self.positions.push(row.position as i32);
            if row.output != Want::Nothing {
                self.out_rows.push(index as u32);
            }
        }
    }
}

impl CpuExecutor {
    /// Loads a program.
    ///
    /// # Errors
    /// When a weight cannot be had or memory does not suffice.
    pub(crate) fn open(
        program: &Program,
        source: &dyn WeightSource,
        placement: &Placement,
        shared: Shared,
    ) -> Result<CpuExecutor, BackendError> {
        let plan = |(phase, graph): &(Phase, _)| Plan::new(*phase, graph, program);
        let plans: Vec<Plan> = program.graphs.iter().map(plan).collect();
        let uses = weights::uses(&plans, program.weights.len());
        let mut weights = weights::load_all(program, source, &uses)?;
        let kernels =
            shared.level.map(|level| Kernels::new(level, &shared.pool, &mut weights, &uses));
        let states = States::new(program, placement)?;
        let mut arena = Arena::default();
        plans.iter().for_each(|p| arena.fit(p));
        Ok(CpuExecutor {
            plans,
            weights,
            kernels,
            states,
            arena,
            shared,
            max_rows: placement.max_rows,
            next_ticket: 0,
            done: VecDeque::new(),
            spare: Vec::new(),
            rows: RowBuffers::default(),
        })
    }

    /// Runs a step and gives its results.
    fn run(&mut self, phase: Phase, batch: &Batch) -> Result<StepOutput, BackendError> {
        let plan = self.plans.iter().find(|p| p.phase == phase);
        let plan = plan.ok_or_else(|| {
            BackendError::Unsupported(format!("the program has no {phase:?} graph"))
        })?;
        let carried: Vec<(u8, u32)> = plan.carried().collect();
        Contract {
            hidden: plan.hidden.is_some(),
            logits: plan.logits.is_some(),
            vocab: plan.vocab.map(|v| v as u32),
            carried: &carried,
            carried_tokens: true,
            pages: self.states.pages(),
            page_len: self.states.page_len(),
            slots: self.states.n_slots() as u32,
            sampled: &|slot| self.states.last_token(slot).is_some(),
            max_rows: self.max_rows,
        }
        .check(batch)?;
        self.rows.fill(batch, &self.states);
        let step = Step {
            batch,
            tokens: &self.rows.tokens,
            positions: &self.rows.positions,
            out_rows: &self.rows.out_rows,
        };
        let rows = Rows { batch: batch.rows.len(), out: step.out_rows.len() };
        if let Some(kernels) = &mut self.kernels {
            kernels.begin_step();
        }
        for node in &plan.nodes {
            let start = self.shared.profile.as_ref().map(|p| (p, Instant::now()));
            let mut taken = self.arena.take(plan, rows, &node.outputs);
            let values = Values { plan, arena: &self.arena, rows };
            let cx = Context { step, weights: &self.weights, values, pool: &self.shared.pool };
            let states = &mut self.states;
            let done = match &mut self.kernels {
                Some(kernels) => kernels.run(&cx, node, states, &mut taken),
                None => false,
            };
            if !done {
                ops::run(&cx, node, states, &mut taken);
            }
            self.arena.put(taken);
            if let Some((profile, start)) = start {
                profile.add(node.op.name(), start);
            }
        }
        let values = Values { plan, arena: &self.arena, rows };
        let mut out = self.spare.pop().unwrap_or_default();
        let start = self.shared.profile.as_ref().map(|p| (p, Instant::now()));
        let (kernels, pool) = (&mut self.kernels, &self.shared.pool);
        let mut log_sum_exp = |logits: &[f32]| match kernels {
            Some(kernels) => kernels.log_sum_exp(pool, logits),
            None => log_sum_exp(logits),
        };
        outputs::collect(&step, values, &mut log_sum_exp, &mut out);
        if let Some((profile, start)) = start {
            profile.add("outputs", start);
        }
        for (row_idx, row_out) in step.out_rows.iter().zip(&out.rows) {
            if let Some(token) = row_out.token {
                let seq = batch.rows[*row_idx as usize].seq;
                self.states.set_last_token(batch.seqs[usize::from(seq)].slot, token);
            }
        }
        Ok(out)
    }

    /// Every graph output of the step that ran last, as `f32` rows.
    pub(crate) fn last_values(&self, phase: Phase, batch: &Batch) -> Vec<Vec<f32>> {
        let Some(plan) = self.plans.iter().find(|p| p.phase == phase) else { return Vec::new() };
        let rows = Rows { batch: batch.rows.len(), out: batch.out_rows().len() };
        let values = Values { plan, arena: &self.arena, rows };
        plan.outputs.iter().map(|(_, value)| values.as_floats(*value)).collect()
    }
}

impl Executor for CpuExecutor {
    fn submit(&mut self, phase: Phase, batch: &Batch) -> Result<Ticket, BackendError> {
        if self.done.len() >= MAX_OPEN {
            return Err(BackendError::InvalidBatch(format!("{MAX_OPEN} steps are not collected")));
        }
        let out = self.run(phase, batch)?;
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.done.push_back((ticket, out));
        Ok(ticket)
    }

    fn collect(&mut self, ticket: Ticket, out: &mut StepOutput) -> Result<(), BackendError> {
        match self.done.front() {
            Some((oldest, _)) if *oldest == ticket => {}
            other => {
                let oldest = other.map(|(t, _)| t.0);
                return Err(BackendError::InvalidBatch(format!(
                    "ticket {} is not the oldest open one, which is {oldest:?}",
                    ticket.0
                )));
            }
        }
        if let Some((_, mut result)) = self.done.pop_front() {
            std::mem::swap(out, &mut result);
            self.spare.push(result);
            self.spare.truncate(MAX_OPEN);
        }
        Ok(())
    }

    fn state(&mut self, ops: &mut [StateOp<'_>]) -> Result<(), BackendError> {
        ops.iter_mut().try_for_each(|op| self.states.apply(op))
    }

    fn memory(&self) -> MemoryReport {
        let (pages, slots) = self.states.size();
        let packed = self.kernels.as_ref().map_or(0, Kernels::size);
        let weights = packed + self.weights.iter().map(Weight::size).sum::<u64>();
        MemoryReport { weights, pages, slots, scratch: self.arena.size() }
    }
}
