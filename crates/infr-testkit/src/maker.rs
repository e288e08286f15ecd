//! Builds one-op programs with random data.

use std::sync::Arc;

use infr_backend::{
    Batch, EvalCase, GroupRanges, HostRows, HostTensor, PageTable, Row, SampleParams, SeqRows,
    Slot, TokenIn, Visible, Want,
};
use infr_graph::StateId;
use infr_graph::{
    BatchField, Builder, Op, Output, Phase, Program, Reach, StateKind, ValueId, WeightDecl,
    WeightFrom, WeightId, WeightRole,
};
use infr_tensor::DType;

use crate::blocks;
use crate::rng::Rng;
use crate::tolerance::Tolerance;

/// A batch of one program with what its results are compared by.
#[derive(Debug, Clone)]
pub struct Case {
    /// Op, type and shape.
    pub name: String,
    /// Program, weights and batch.
    pub eval: EvalCase,
    /// How close a backend must come.
    pub tolerance: Tolerance,
}

/// Collects what an evaluation needs while a program is built.
#[derive(Debug)]
pub struct Maker {
    /// Adds nodes.
    pub builder: Builder,
    /// Draws values.
    pub rng: Rng,
    weights: Vec<HostTensor>,
    carried: Vec<HostRows>,
    lengths: Vec<u32>,
    /// First position of every sequence.
    pub first_position: u32,
    /// Rows per page.
    pub page_len: u32,
    /// What every row gives back; all rows are output rows unless this is `Want::Nothing`.
    pub want: Want,
    /// Token ids are below this.
    pub vocab: u32,
}

impl Maker {
    /// A batch of sequences of these many rows.
    pub fn new(seed: u64, lengths: &[u32]) -> Maker {
        Maker {
            builder: Builder::new(),
            rng: Rng::new(seed),
            weights: Vec::new(),
            carried: Vec::new(),
            lengths: lengths.to_vec(),
            first_position: 0,
            page_len: 4,
            want: Want::Nothing,
            vocab: 1,
        }
    }

    /// Rows in all.
    pub fn n_rows(&self) -> usize {
        self.lengths.iter().sum::<u32>() as usize
    }

    /// A random input of this width.
    pub fn input(&mut self, width: u32, spread: f32) -> ValueId {
        let data = self.rng.normals(self.n_rows() * width as usize, spread);
        self.input_of(width, data)
    }

    /// An input with these rows.
    pub fn input_of(&mut self, width: u32, data: Vec<f32>) -> ValueId {
        let index = self.carried.len() as u8;
        self.carried.push(HostRows { width, data });
        self.builder.node(Op::Input(BatchField::Carried { index, width }), &[], &[], None)[0]
    }

    /// A random weight, its values about `1/√(row)` in size so that products stay near 1.
    pub fn weight(&mut self, dtype: DType, dims: &[u32]) -> WeightId {
        let row = dims.last().copied().unwrap_or(1) as f32;
        let tensor = blocks::weight(&mut self.rng, dtype, dims, row.sqrt().recip());
        self.weight_of(tensor)
    }

    /// A random `f32` vector around `mean`.
    pub fn vector(&mut self, dims: &[u32], mean: f32, spread: f32) -> WeightId {
        let n = dims.iter().product::<u32>() as usize;
        let values: Vec<f32> = self.rng.normals(n, spread).iter().map(|x| x + mean).collect();
        self.weight_of(blocks::vector(dims, &values))
    }

    /// A given weight.
    pub fn weight_of(&mut self, tensor: HostTensor) -> WeightId {
        let name = format!("w{}", self.weights.len());
        let id = self.builder.weight(WeightDecl {
            name: name.clone(),
            desc: tensor.desc.clone(),
            source: WeightFrom::Tensor(name),
            role: WeightRole::Dense,
            layer: None,
        });
        self.weights.push(tensor);
        id
    }

    /// A paged state.
    pub fn cache(&mut self, widths: (u32, u32), dtype: DType, reach: Reach) -> StateId {
        let (key_width, value_width) = widths;
        self.builder.state(0, StateKind::Paged { key_width, value_width, dtype, reach })
    }

    /// The case that compares these values.
    ///
    /// # Panics
    /// When the program breaks a rule of the IR.
    pub fn finish(mut self, name: String, outputs: &[ValueId], tolerance: Tolerance) -> Case {
        for (index, value) in outputs.iter().enumerate() {
            self.builder.output(Output::Carried(index as u8), *value);
        }
        self.close(name, tolerance)
    }

    /// The case of a program whose outputs are named.
    ///
    /// # Panics
    /// When the program breaks a rule of the IR.
    pub fn close(mut self, name: String, tolerance: Tolerance) -> Case {
        self.builder.end_graph(Phase::Forward);
        let builder = std::mem::take(&mut self.builder);
        let program = builder.finish().unwrap_or_else(|e| panic!("{name}: {e}"));
        let (batch, pages) = self.batch(&program);
        let eval = EvalCase {
            program,
            weights: self.weights,
            batch,
            pages,
            page_len: self.page_len,
            slots: self.lengths.len() as u32 + 1,
            optimise: true,
        };
        Case { name, eval, tolerance }
    }

    /// Rows with random tokens, on pages in random order, seeing what each group's reach says.
    fn batch(&mut self, program: &Program) -> (Batch, Vec<u32>) {
        let groups = program.cache_groups();
        let last = self.lengths.iter().copied().max().unwrap_or(0) + self.first_position;
        let pages_each = last.div_ceil(self.page_len);
        let n_pages = pages_each * self.lengths.len() as u32 + 1;
        let mut free: Vec<Vec<u32>> =
            groups.iter().map(|_| self.rng.permutation(n_pages)).collect();
        let mut batch = Batch { carried: self.carried.clone(), ..Batch::default() };
        for (index, &length) in self.lengths.iter().enumerate() {
            let start = batch.rows.len() as u32;
            for i in 0..length {
                let seen = groups.iter().map(|g| visible(g.reach, i, length));
                batch.rows.push(Row {
                    token: TokenIn::Id(self.rng.below(self.vocab)),
                    position: self.first_position + i,
                    seq: index as u16,
                    write: Some(i),
                    visible: GroupRanges::new(&seen.collect::<Vec<_>>()),
                    output: self.want,
                    mask: None,
                });
            }
            let mut table = |free: &mut Vec<u32>| {
                Arc::new(PageTable(free.split_off(free.len() - pages_each as usize)))
            };
            batch.seqs.push(SeqRows {
                slot: Slot(index as u32 + 1),
                rows: start..start + length,
                pages: free.iter_mut().map(&mut table).collect(),
                sample: SampleParams::default(),
            });
        }
        (batch, vec![n_pages; groups.len()])
    }
}

/// What row `i` of a sequence of `length` rows may see.
pub fn visible(reach: Reach, i: u32, length: u32) -> Visible {
    match reach {
        Reach::Full => Visible { lo: 0, hi: i + 1 },
        Reach::Window(n) => Visible { lo: (i + 1).saturating_sub(n), hi: i + 1 },
        Reach::Chunk(n) => Visible { lo: i / n * n, hi: i + 1 },
        Reach::Symmetric(n) => {
            Visible { lo: i.saturating_sub(n / 2), hi: (i + n / 2 + 1).min(length) }
        }
    }
}
