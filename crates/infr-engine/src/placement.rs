//! How memory is divided, decided before anything is loaded.

use infr_backend::{ExpertPlacement, Placement};
use infr_graph::{CacheGroup, Graph, Phase, Program, Reach, StateKind, WeightDecl};
use infr_tensor::Dim;

use crate::engine::{EngineOptions, EngineSource};

/// One line of the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanRow {
    /// What the memory is for.
    pub what: String,
    /// How the size comes about.
    pub detail: String,
    /// Bytes.
    pub bytes: u64,
}

/// Memory divided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// What the executor is opened with.
    pub placement: Placement,
    /// Tokens that one sequence may have.
    pub context: u32,
    /// Whether rows see only what stands before them.
    pub causal: bool,
    /// Bytes of snapshots of recurrent states, in host memory.
    pub snapshot_bytes: u64,
    /// Bytes that may be used; `None` when unlimited.
    pub budget: Option<u64>,
    /// What goes where.
    pub rows: Vec<PlanRow>,
}

/// A plan that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Memory does not suffice.
    #[error(
        "the model needs {needed} bytes with a context of {context}, {budget} are free: \
         {short} bytes are missing"
    )]
    TooSmall {
        /// Bytes needed.
        needed: u64,
        /// Bytes free.
        budget: u64,
        /// Bytes missing.
        short: u64,
        /// The context that was planned for.
        context: u32,
    },
    /// An option has a value that cannot work.
    #[error("{0}")]
    Option(String),
}

/// What a plan depends on beside program and options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes that may be used; `None` when unlimited.
    pub memory: Option<u64>,
    /// Positions the model was trained for.
    pub context: u32,
    /// Whether rows see only what stands before them.
    pub causal: bool,
    /// New tokens come in blocks of this many rows, each in one step; 1 for most models.
    pub block: u32,
}

impl Plan {
    /// Divides the memory of the source's first device.
    ///
    /// # Errors
    /// See [`Plan::new`].
    pub fn for_source(source: &EngineSource, options: &EngineOptions) -> Result<Plan, PlanError> {
        let free = source.backend.devices().first().map(|d| d.free).filter(|&free| free > 0);
        let limits = Limits {
            memory: options.memory.or(free),
            context: source.context,
            causal: source.causal,
            block: source.diffusion.map_or(1, |d| d.canvas),
        };
        Plan::new(&source.program, options, limits)
    }

    /// Divides memory. Without a wanted context, the model's is taken, or the largest that fits.
    ///
    /// # Errors
    /// When memory does not suffice or an option cannot work.
    pub fn new(
        program: &Program,
        options: &EngineOptions,
        limits: Limits,
    ) -> Result<Plan, PlanError> {
        check(program, options)?;
        let wanted = options.context.unwrap_or(limits.context).max(1);
        let plan = sized(program, options, limits, wanted);
        let Some(short) = plan.shortfall() else { return Ok(plan) };
        let too_small = PlanError::TooSmall {
            needed: plan.bytes(),
            budget: plan.budget.unwrap_or(u64::MAX),
            short,
            context: wanted,
        };
        if options.context.is_some() {
            return Err(too_small);
        }
        // Memory grows with the context, so the largest that fits is found by bisection over pages.
        let fits = |pages: u32| {
            let plan = sized(program, options, limits, pages * options.page_len);
            plan.shortfall().is_none().then_some(plan)
        };
        let mut best = None;
        let (mut low, mut high) = (0, wanted.div_ceil(options.page_len));
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            match fits(middle) {
                Some(plan) => {
                    best = Some(plan);
                    low = middle;
                }
                None => high = middle,
            }
        }
        best.ok_or(too_small)
    }

    /// Bytes of everything on the device.
    pub fn bytes(&self) -> u64 {
        self.rows.iter().map(|row| row.bytes).sum()
    }

    /// Bytes that are missing, if any.
    fn shortfall(&self) -> Option<u64> {
        self.bytes().checked_sub(self.budget?).filter(|&short| short > 0)
    }
}

fn check(program: &Program, options: &EngineOptions) -> Result<(), PlanError> {
    let positive = [
        ("parallel", options.parallel),
        ("ubatch", options.ubatch),
        ("page_len", options.page_len),
        ("queue", options.queue),
        ("steps_in_flight", options.steps_in_flight),
        ("output_rows", options.output_rows),
    ];
    if let Some((name, _)) = positive.iter().find(|(_, value)| *value == 0) {
        return Err(PlanError::Option(format!("{name} must be at least 1")));
    }
    if options.parallel > options.ubatch || options.parallel > u32::from(u16::MAX) {
        let (parallel, ubatch) = (options.parallel, options.ubatch);
        let what = format!("parallel is {parallel}; ubatch ({ubatch}) and 65535 are its limits");
        return Err(PlanError::Option(what));
    }
    if options.steps_in_flight > 2 {
        return Err(PlanError::Option("steps_in_flight must be 1 or 2".to_owned()));
    }
    let groups = program.cache_groups().len();
    if groups > infr_backend::GroupRanges::MAX {
        let most = infr_backend::GroupRanges::MAX;
        return Err(PlanError::Option(format!("the program has {groups} cache groups of {most}")));
    }
    Ok(())
}

/// The plan for one context, whether it fits or not.
fn sized(program: &Program, options: &EngineOptions, limits: Limits, context: u32) -> Plan {
    let groups = program.cache_groups();
    let max_rows = options.ubatch.max(limits.block);
    let mut rows = vec![weights_row(program)];
    let mut pages = Vec::new();
    for (index, group) in groups.iter().enumerate() {
        let count = pool_pages(group.reach, options, context, max_rows);
        rows.push(pages_row(index, group, count, options.page_len));
        pages.push(count);
    }
    let slot = slot_bytes(program);
    if slot > 0 {
        rows.push(PlanRow {
            what: "recurrent states".to_owned(),
            detail: format!("{} slots of {slot} bytes", options.parallel),
            bytes: slot * u64::from(options.parallel),
        });
    }
    let out_rows = options.parallel.max(options.output_rows).min(max_rows);
    let drawn = options.parallel.saturating_mul(limits.block).min(max_rows);
    let scratch = |(phase, graph): &(Phase, Graph)| match phase {
        Phase::Denoise => peak(graph, max_rows, drawn),
        Phase::Forward | Phase::Draft => peak(graph, max_rows, out_rows),
    };
    rows.push(PlanRow {
        what: "scratch".to_owned(),
        detail: format!("estimate for {max_rows} rows, {} with outputs", out_rows.max(drawn)),
        bytes: program.graphs.iter().map(scratch).max().unwrap_or(0),
    });
    let twentieth = limits.memory.unwrap_or(1 << 34) / 20;
    let snapshot_bytes = match slot {
        0 => 0,
        _ => options.snapshot_bytes.unwrap_or(twentieth),
    };
    let placement = Placement {
        homes: Vec::new(),
        experts: ExpertPlacement::Resident,
        pages,
        page_len: options.page_len,
        slots: options.parallel,
        max_rows,
    };
    let causal = limits.causal;
    Plan { placement, context, causal, snapshot_bytes, budget: limits.memory, rows }
}

fn weights_row(program: &Program) -> PlanRow {
    let bytes = program.weights.iter().map(desc_bytes).sum();
    let detail = format!("{} tensors", program.weights.len());
    PlanRow { what: "weights".to_owned(), detail, bytes }
}

fn desc_bytes(weight: &WeightDecl) -> u64 {
    let desc = &weight.desc;
    desc.shape.elements().and_then(|n| desc.dtype.bytes_for(n)).unwrap_or(0)
}

fn pages_row(index: usize, group: &CacheGroup, count: u32, page_len: u32) -> PlanRow {
    let reach = match group.reach {
        Reach::Full => "full".to_owned(),
        Reach::Window(n) => format!("window {n}"),
        Reach::Chunk(n) => format!("chunk {n}"),
        Reach::Symmetric(n) => format!("symmetric {n}"),
    };
    let layers = group.states.len();
    PlanRow {
        what: format!("cache {index}"),
        detail: format!("{count} pages of {page_len} rows, {layers} layers, {reach}"),
        bytes: group.page_bytes(page_len) * u64::from(count),
    }
}

/// Pages that one sequence of `rows` rows holds at most, computed in steps of `step` rows.
pub(crate) fn worst_pages(reach: Reach, rows: u32, step: u32, page_len: u32) -> u32 {
    let all = rows.div_ceil(page_len);
    let span = match reach {
        Reach::Full | Reach::Symmetric(_) => return all,
        Reach::Window(n) => n.saturating_sub(1),
        Reach::Chunk(n) => n,
    };
    // A span that begins and ends inside pages touches two more than it fills.
    all.min(span.saturating_add(step) / page_len + 2)
}

fn pool_pages(reach: Reach, options: &EngineOptions, context: u32, step: u32) -> u32 {
    let one = worst_pages(reach, context, step, options.page_len);
    let full = context.div_ceil(options.page_len);
    let all = match options.cache_rows {
        Some(rows) => rows.div_ceil(options.page_len).max(full),
        None => full.saturating_mul(options.parallel),
    };
    // Windowed groups get as many pages again as they need, so that the windows of finished
    // sequences stay for the next turn.
    all.min(one.saturating_mul(options.parallel).saturating_mul(2)).max(one)
}

fn slot_bytes(program: &Program) -> u64 {
    let width = |state: &infr_graph::StateDecl| match state.kind {
        StateKind::Slot { width } => u64::from(width) * 4,
        StateKind::Paged { .. } => 0,
    };
    program.states.iter().map(width).sum()
}

/// The most bytes of values that live at one time when each is freed after its last use.
fn peak(graph: &Graph, rows: u32, out_rows: u32) -> u64 {
    let bytes = |index: usize| {
        let desc = &graph.values[index];
        let size = |dim: &Dim| match dim {
            Dim::Fixed(n) => u64::from(*n),
            Dim::Rows => u64::from(rows),
            Dim::OutRows => u64::from(out_rows),
        };
        desc.shape.0.iter().map(size).product::<u64>() * 4
    };
    let last = graph.last_uses();
    let mut dying = vec![Vec::new(); graph.nodes.len()];
    for (value, &node) in last.iter().enumerate() {
        if let Some(list) = dying.get_mut(node) {
            list.push(value);
        }
    }
    let (mut live, mut most) = (0u64, 0u64);
    for (index, node) in graph.nodes.iter().enumerate() {
        live += node.outputs.iter().map(|v| bytes(v.index())).sum::<u64>();
        most = most.max(live);
        live = live.saturating_sub(dying[index].iter().map(|&v| bytes(v)).sum());
    }
    most
}

impl std::fmt::Display for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let wide = |get: fn(&PlanRow) -> usize| self.rows.iter().map(get).max().unwrap_or(0);
        let (what, detail) = (wide(|r| r.what.len()), wide(|r| r.detail.len()));
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        for row in &self.rows {
            let size = mib(row.bytes);
            writeln!(f, "{:what$}  {:detail$}  {size:>10.1} MiB", row.what, row.detail)?;
        }
        let of = match self.budget {
            Some(budget) => format!("of {:.1} MiB", mib(budget)),
            None => "without limit".to_owned(),
        };
        writeln!(f, "{:what$}  {of:detail$}  {:>10.1} MiB", "all", mib(self.bytes()))?;
        if self.snapshot_bytes > 0 {
            let size = mib(self.snapshot_bytes);
            writeln!(f, "{:what$}  {:detail$}  {size:>10.1} MiB", "snapshots", "in host memory")?;
        }
        write!(f, "context {} tokens, {} at once", self.context, self.placement.slots)
    }
}
