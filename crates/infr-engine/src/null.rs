//! An executor without a model: it computes nothing, but checks every batch against the contract of
//! the seam and gives tokens that depend on exactly what the batch makes visible.
//!
//! It stores tokens where a real one stores keys and values, and follows the page tables to find
//! them again, each with a hash of everything that its row saw: like real keys, an entry depends on
//! all that came before it. With [`NullExecutor::new`] the logits of a row are a hash of all entries
//! that it sees in every cache group and of the recurrent state in its slot: a wrong page, a stale
//! row, equal tokens after another beginning or a wrong snapshot change the answer. With
//! [`NullExecutor::scripted`] a function of the visible tokens names the next one. Of no use but for tests and for measuring the engine itself.
//!
//! Beyond what a real executor can know it checks that rows are read only where they were written,
//! that no page of a batch is written by one sequence and visible to
//! another, that visible ranges are those of causal rows, and that a recurrent state is advanced
//! row by row.

use std::collections::VecDeque;
use std::sync::Arc;

use infr_backend::{
    Backend, BackendError, Batch, DeviceInfo, DeviceKind, EvalCase, EvalResult, Executor,
    MemoryReport, PageTable, Placement, Row, RowOut, SeqRows, Slot, StateOp, StepOutput, Ticket,
    TokenIn, Want, WeightBytes, WeightSource, sample,
};
use infr_graph::{Phase, Program, Reach, StateKind, WeightDecl};

/// What a row sees.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// The row's position.
    pub position: u32,
    /// Visible tokens of each cache group, the row's own last.
    pub groups: &'a [Vec<u32>],
    /// Hash of all tokens that went through the recurrent state; 0 without one.
    pub state: u64,
}

/// Names the next token.
pub type Script = Arc<dyn Fn(&Seen<'_>) -> u32 + Send + Sync>;

/// Failures to be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Faults {
    /// The submission with this number, counted from 0, loses the device.
    pub lose_at: Option<u64>,
    /// The submission with this number is refused.
    pub refuse_at: Option<u64>,
}

/// A row of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cell {
    token: u32,
    index: u32,
    /// Hash of what its row saw.
    value: u64,
}

/// The recurrent state of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct State {
    hash: u64,
    rows: u64,
}

/// An executor without a model.
pub struct NullExecutor {
    vocab: u32,
    script: Option<Script>,
    reaches: Vec<Reach>,
    page_len: u32,
    max_rows: u32,
    recurrent: bool,
    causal: bool,
    /// Pages of each group.
    pages: Vec<Vec<Vec<Option<Cell>>>>,
    states: Vec<State>,
    last: Vec<Option<u32>>,
    /// Steps that were submitted and not computed yet.
    open: VecDeque<(Ticket, Batch)>,
    /// Steps that were computed and not collected yet.
    done: VecDeque<(Ticket, StepOutput)>,
    submitted: u64,
    /// Steps are computed when they are collected, not when they are submitted.
    lazy: bool,
    faults: Faults,
}

impl NullExecutor {
    /// The pseudo-model: the next token is a hash of everything visible.
    pub fn new(program: &Program, placement: &Placement, vocab: u32) -> NullExecutor {
        let groups = program.cache_groups();
        let page = vec![None; placement.page_len as usize];
        let pages = placement.pages.iter().map(|&n| vec![page.clone(); n as usize]).collect();
        let slot = |s: &infr_graph::StateDecl| matches!(s.kind, StateKind::Slot { .. });
        NullExecutor {
            vocab,
            script: None,
            reaches: groups.iter().map(|g| g.reach).collect(),
            page_len: placement.page_len,
            max_rows: placement.max_rows,
            recurrent: program.states.iter().any(slot),
            causal: !groups.iter().any(|g| matches!(g.reach, Reach::Symmetric(_))),
            pages,
            states: vec![State::default(); placement.slots as usize],
            last: vec![None; placement.slots as usize],
            open: VecDeque::new(),
            done: VecDeque::new(),
            submitted: 0,
            lazy: false,
            faults: Faults::default(),
        }
    }

    /// The next token is what `script` says; all others are far less likely.
    pub fn scripted(
        program: &Program,
        placement: &Placement,
        vocab: u32,
        script: Script,
    ) -> NullExecutor {
        NullExecutor { script: Some(script), ..NullExecutor::new(program, placement, vocab) }
    }

    /// Computes a step when it is collected: results are known as late as possible.
    #[must_use]
    pub fn lazy(self) -> NullExecutor {
        NullExecutor { lazy: true, ..self }
    }

    /// Fails as told.
    #[must_use]
    pub fn with_faults(self, faults: Faults) -> NullExecutor {
        NullExecutor { faults, ..self }
    }

    fn compute_open(&mut self) -> Result<(), BackendError> {
        while let Some((ticket, batch)) = self.open.pop_front() {
            let output = self.compute(&batch)?;
            self.done.push_back((ticket, output));
        }
        Ok(())
    }

    fn compute(&mut self, batch: &Batch) -> Result<StepOutput, BackendError> {
        // All rows are written before any is read, as in a real layer.
        let mut tokens = Vec::with_capacity(batch.rows.len());
        for row in &batch.rows {
            let token = self.token(row)?;
            let value = mix(u64::from(token), u64::from(row.position));
            self.write(row, &batch.seqs[usize::from(row.seq)], Cell { token, index: 0, value })?;
            tokens.push(token);
        }
        let mut output = StepOutput::default();
        for (row, &token) in batch.rows.iter().zip(&tokens) {
            let seq = &batch.seqs[usize::from(row.seq)];
            let state = self.advance(row, seq.slot, token)?;
            let mut groups = Vec::with_capacity(self.reaches.len());
            let mut value = mix(state, u64::from(token));
            for group in 0..self.reaches.len() {
                let cells = self.visible_cells(row, seq, group)?;
                value = cells.iter().fold(mix(value, 1), |hash, cell| mix(hash, cell.value));
                groups.push(cells.iter().map(|cell| cell.token).collect());
            }
            if self.causal {
                self.write(row, seq, Cell { token, index: 0, value })?;
            }
            if row.output != Want::Nothing {
                let seen = Seen { position: row.position, groups: &groups, state };
                output.rows.push(self.output(row, seq, &seen, value));
            }
        }
        Ok(output)
    }

    fn token(&self, row: &Row) -> Result<u32, BackendError> {
        match row.token {
            TokenIn::Id(id) if id < self.vocab => Ok(id),
            TokenIn::Id(id) => Err(invalid(format!("token {id} of {}", self.vocab))),
            TokenIn::LastOf(slot) => self.last[slot.0 as usize]
                .ok_or_else(|| invalid(format!("slot {} has no sampled token", slot.0))),
            TokenIn::Carried(_) => Err(BackendError::Unsupported("carried rows".to_owned())),
        }
    }

    fn write(&mut self, row: &Row, seq: &SeqRows, cell: Cell) -> Result<(), BackendError> {
        let Some(index) = row.write else { return Ok(()) };
        for group in 0..self.reaches.len() {
            let page = self.page(seq, group, index)?;
            let cell = Cell { index, ..cell };
            self.pages[group][page][(index % self.page_len) as usize] = Some(cell);
        }
        Ok(())
    }

    /// The physical page of a logical row.
    fn page(&self, seq: &SeqRows, group: usize, index: u32) -> Result<usize, BackendError> {
        let page = seq.pages[group].0.get((index / self.page_len) as usize).copied();
        match page {
            Some(page) if (page as usize) < self.pages[group].len() => Ok(page as usize),
            Some(PageTable::NONE) | None => {
                Err(invalid(format!("row {index} has no page in group {group}")))
            }
            Some(page) => Err(invalid(format!("group {group} has no page {page}"))),
        }
    }

    fn advance(&mut self, row: &Row, slot: Slot, token: u32) -> Result<u64, BackendError> {
        if !self.recurrent {
            return Ok(0);
        }
        let state = &mut self.states[slot.0 as usize];
        if state.rows != u64::from(row.position) {
            let (slot, at, position) = (slot.0, state.rows, row.position);
            return Err(invalid(format!("slot {slot} is at row {at}, the row at {position}")));
        }
        *state = State { hash: mix(state.hash, u64::from(token)), rows: state.rows + 1 };
        Ok(state.hash)
    }

    fn visible_cells(
        &self,
        row: &Row,
        seq: &SeqRows,
        group: usize,
    ) -> Result<Vec<Cell>, BackendError> {
        let visible = row.visible.as_slice()[group];
        let mut cells = Vec::with_capacity((visible.hi - visible.lo) as usize);
        for index in visible.lo..visible.hi {
            let page = self.page(seq, group, index)?;
            let cell = self.pages[group][page][(index % self.page_len) as usize];
            match cell {
                Some(cell) if cell.index == index => cells.push(cell),
                other => {
                    let what = format!("page {page} of group {group} holds {other:?} as {index}");
                    return Err(invalid(what));
                }
            }
        }
        Ok(cells)
    }

    fn output(&mut self, row: &Row, seq: &SeqRows, seen: &Seen<'_>, value: u64) -> RowOut {
        let logits = self.logits(seen, value);
        let mut out = RowOut::default();
        let top = match row.output {
            Want::Nothing => return out,
            Want::Logits => {
                out.logits = logits;
                return out;
            }
            Want::Hidden => {
                out.hidden = logits;
                return out;
            }
            Want::Token => 0,
            Want::Logprobs { top } => top,
        };
        let mut allowed = logits.clone();
        if let Some(mask) = &row.mask {
            sample::apply_mask(&mut allowed, mask);
        }
        let uniform = sample::uniform(seq.sample.seed, row.position);
        let token = sample::draw(&allowed, &seq.sample, uniform);
        self.last[seq.slot.0 as usize] = Some(token);
        let total = sample::log_sum_exp(&logits);
        out.logprob = Some((f64::from(logits[token as usize]) - total) as f32);
        out.top = sample::top_logprobs(&logits, usize::from(top));
        out.token = Some(token);
        out
    }

    fn logits(&self, seen: &Seen<'_>, hash: u64) -> Vec<f32> {
        if let Some(script) = &self.script {
            let next = script(seen);
            return (0..self.vocab).map(|id| if id == next { 20.0 } else { 0.0 }).collect();
        }
        let value = |id: u32| (mix(hash, u64::from(id)) >> 44) as f32 / (1 << 18) as f32;
        (0..self.vocab).map(value).collect()
    }

    /// What the contract says of a batch as a whole.
    fn check(&self, batch: &Batch) -> Result<(), BackendError> {
        let rows = batch.rows.len() as u32;
        if rows == 0 || rows > self.max_rows {
            return Err(invalid(format!("{rows} rows of at most {}", self.max_rows)));
        }
        let mut next = 0;
        let mut slots: Vec<Slot> = Vec::new();
        for (index, seq) in batch.seqs.iter().enumerate() {
            if seq.rows.start != next || seq.rows.is_empty() || seq.rows.end > rows {
                return Err(invalid(format!("sequence {index} has rows {:?}", seq.rows)));
            }
            next = seq.rows.end;
            if seq.slot.0 as usize >= self.last.len() || slots.contains(&seq.slot) {
                return Err(invalid(format!("sequence {index} cannot have slot {}", seq.slot.0)));
            }
            slots.push(seq.slot);
            if seq.pages.len() != self.reaches.len() {
                return Err(invalid(format!("sequence {index} has {} tables", seq.pages.len())));
            }
            self.check_rows(batch, index, seq)?;
        }
        if next != rows {
            return Err(invalid(format!("{rows} rows, sequences have {next}")));
        }
        self.check_sharing(batch)
    }

    fn check_rows(&self, batch: &Batch, index: usize, seq: &SeqRows) -> Result<(), BackendError> {
        let rows = &batch.rows[seq.rows.start as usize..seq.rows.end as usize];
        let ascending = rows.windows(2).all(|w| w[0].position + 1 == w[1].position);
        if !ascending || rows.iter().any(|r| usize::from(r.seq) != index) {
            return Err(invalid(format!("rows of sequence {index} are out of order")));
        }
        for row in rows {
            let visible = row.visible.as_slice();
            if visible.len() != self.reaches.len() || row.write != Some(row.position) {
                return Err(invalid(format!("row at {} is incomplete", row.position)));
            }
            for (range, &reach) in visible.iter().zip(&self.reaches) {
                let lo = lowest(reach, row.position);
                let hi = row.position + 1;
                let causal = range.lo == lo && range.hi == hi;
                if self.causal && !causal || range.lo > lo || range.hi < hi {
                    let position = row.position;
                    return Err(invalid(format!("row {position} sees {range:?} of {reach:?}")));
                }
            }
        }
        Ok(())
    }

    /// No page that one sequence writes is in the table of another.
    fn check_sharing(&self, batch: &Batch) -> Result<(), BackendError> {
        for group in 0..self.reaches.len() {
            let mut writer = vec![None; self.pages[group].len()];
            for row in &batch.rows {
                let seq = &batch.seqs[usize::from(row.seq)];
                if let Some(index) = row.write {
                    let page = self.page(seq, group, index)?;
                    writer[page] = Some(row.seq);
                }
            }
            for (index, seq) in batch.seqs.iter().enumerate() {
                for &page in seq.pages[group].0.iter().filter(|&&p| p != PageTable::NONE) {
                    let other = writer.get(page as usize).copied().flatten();
                    if other.is_some_and(|w| usize::from(w) != index) {
                        return Err(invalid(format!("sequences share written page {page}")));
                    }
                }
            }
        }
        Ok(())
    }

    fn state_op(&mut self, op: &mut StateOp<'_>) -> Result<(), BackendError> {
        match op {
            StateOp::CopyPage { group, from, to } => {
                let pages = self.pages.get_mut(usize::from(*group));
                let missing = || invalid(format!("no page to copy from {from} to {to}"));
                let pages = pages.ok_or_else(missing)?;
                let cells = pages.get(*from as usize).cloned().ok_or_else(missing)?;
                *pages.get_mut(*to as usize).ok_or_else(missing)? = cells;
            }
            StateOp::Clear(slot) => *self.slot(*slot)? = State::default(),
            StateOp::ReadSlot { slot, out } => {
                let state = *self.slot(*slot)?;
                out.clear();
                out.extend_from_slice(&state.hash.to_le_bytes());
                out.extend_from_slice(&state.rows.to_le_bytes());
            }
            StateOp::WriteSlot { slot, data } => {
                let (hash, rows) = data
                    .split_first_chunk()
                    .and_then(|(hash, rest)| Some((*hash, *rest.first_chunk()?)))
                    .ok_or_else(|| invalid("a snapshot is too short".to_owned()))?;
                let state =
                    State { hash: u64::from_le_bytes(hash), rows: u64::from_le_bytes(rows) };
                *self.slot(*slot)? = state;
            }
            StateOp::ReadPage { .. } | StateOp::WritePage { .. } => {
                return Err(BackendError::Unsupported("pages through the host".to_owned()));
            }
        }
        Ok(())
    }

    fn slot(&mut self, slot: Slot) -> Result<&mut State, BackendError> {
        let missing = || invalid(format!("no slot {}", slot.0));
        self.states.get_mut(slot.0 as usize).ok_or_else(missing)
    }
}

impl Executor for NullExecutor {
    fn submit(&mut self, phase: Phase, batch: &Batch) -> Result<Ticket, BackendError> {
        let number = self.submitted;
        self.submitted += 1;
        if self.faults.lose_at == Some(number) {
            return Err(BackendError::DeviceLost);
        }
        if self.faults.refuse_at == Some(number) {
            return Err(BackendError::Unsupported("as told".to_owned()));
        }
        if phase != Phase::Forward {
            return Err(BackendError::Unsupported(format!("{phase:?}")));
        }
        if self.open.len() + self.done.len() >= 2 {
            return Err(invalid("more than two steps are open".to_owned()));
        }
        self.check(batch)?;
        let ticket = Ticket(number);
        self.open.push_back((ticket, batch.clone()));
        if !self.lazy {
            self.compute_open()?;
        }
        Ok(ticket)
    }

    fn collect(&mut self, ticket: Ticket, out: &mut StepOutput) -> Result<(), BackendError> {
        self.compute_open()?;
        match self.done.pop_front() {
            Some((oldest, output)) if oldest == ticket => {
                *out = output;
                Ok(())
            }
            _ => Err(invalid(format!("ticket {} is not the oldest", ticket.0))),
        }
    }

    fn state(&mut self, ops: &mut [StateOp<'_>]) -> Result<(), BackendError> {
        self.compute_open()?;
        ops.iter_mut().try_for_each(|op| self.state_op(op))
    }

    fn memory(&self) -> MemoryReport {
        MemoryReport::default()
    }
}

fn invalid(what: String) -> BackendError {
    BackendError::InvalidBatch(what)
}

/// The lowest row that a row at `position` sees; on purpose not the engine's own function.
fn lowest(reach: Reach, position: u32) -> u32 {
    match reach {
        Reach::Full => 0,
        Reach::Window(n) if position < n => 0,
        Reach::Window(n) => position - n + 1,
        Reach::Chunk(n) => position / n * n,
        Reach::Symmetric(n) => position - position.min(n / 2),
    }
}

/// One round of SplitMix64's finaliser over a running hash.
fn mix(hash: u64, value: u64) -> u64 {
    let mut z = (hash ^ value.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_add(0x51_7c_c1_b7);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Opens null executors; the first one may fail as told.
pub struct NullBackend {
    devices: [DeviceInfo; 1],
    vocab: u32,
    script: Option<Script>,
    first: std::sync::Mutex<Option<Faults>>,
}

impl NullBackend {
    /// A backend of the pseudo-model, or of a script.
    pub fn new(vocab: u32, script: Option<Script>, first: Faults) -> NullBackend {
        let device = DeviceInfo {
            id: "null".to_owned(),
            name: "nothing".to_owned(),
            kind: DeviceKind::Software,
            driver: "none".to_owned(),
            memory: 0,
            free: 0,
        };
        NullBackend { devices: [device], vocab, script, first: std::sync::Mutex::new(Some(first)) }
    }
}

impl Backend for NullBackend {
    fn devices(&self) -> &[DeviceInfo] {
        &self.devices
    }

    fn open(
        &self,
        program: &Program,
        _weights: &dyn WeightSource,
        placement: &Placement,
    ) -> Result<Box<dyn Executor>, BackendError> {
        let first = self.first.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        let executor = NullExecutor::new(program, placement, self.vocab);
        let script = self.script.clone();
        let faults = first.unwrap_or_default();
        Ok(Box::new(NullExecutor { script, faults, ..executor }))
    }

    fn eval(&self, _case: &EvalCase) -> Result<EvalResult, BackendError> {
        Err(BackendError::Unsupported("evaluation".to_owned()))
    }
}

/// Gives no bytes: null executors load none.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoWeights;

impl WeightSource for NoWeights {
    fn load(&self, _weight: &WeightDecl) -> Result<WeightBytes, BackendError> {
        Ok(WeightBytes::owned(Vec::new()))
    }
}
