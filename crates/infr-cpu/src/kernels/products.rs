//! Matrix products: weights packed at opening, activations put in kernel layout once per value.

use std::ops::Range;

use infr_graph::{ExpertSpec, LinearSpec, Node, ValueId};

use crate::fast::{
    self, Acts, ActsKind, Output, PackError, PackedWeight, RowChoice, Runner, WeightArena,
};
use crate::ops::Context;
use crate::ops::expert_linear::by_expert;
use crate::par::for_parts;
use crate::threads::ThreadPool;
use crate::weights::{Uses, Weight};

/// How a weight's products are computed.
#[derive(Debug)]
enum Matrix {
    /// From a packed copy.
    Packed(PackedWeight),
    /// From the file's bytes, packed piece by piece in every step: for weights that fit no second time.
    File(ActsKind),
    /// By the reference.
    Reference,
}

/// The products of a program.
#[derive(Debug)]
pub(super) struct Products {
    matrices: Vec<Matrix>,
    acts: ActsCache,
    /// Activations of the rows that chose one expert, and their products.
    expert_acts: Acts,
    expert_out: Vec<f32>,
    picked: Vec<u32>,
}

/// Rows in kernel layout, found by the value that they were made of: several products read one value.
#[derive(Debug, Default)]
struct ActsCache {
    entries: [(Option<(ValueId, ActsKind)>, Acts); 4],
    next: usize,
}

impl ActsCache {
    /// The rows of `value`, made from `x` unless an entry holds them.
    fn get(
        &mut self,
        run: Runner<'_>,
        (value, kind): (ValueId, ActsKind),
        (x, width): (&[f32], usize),
    ) -> &Acts {
        let key = Some((value, kind));
        let found = self.entries.iter().position(|(k, _)| *k == key);
        let index = found.unwrap_or_else(|| {
            let index = self.next;
            self.next = (index + 1) % self.entries.len();
            let rows = RowChoice::First(x.len() / width);
            self.entries[index].1.fill(run, kind, x, width, rows);
            self.entries[index].0 = key;
            index
        });
        &self.entries[index].1
    }

    fn forget(&mut self) {
        self.entries.iter_mut().for_each(|(key, _)| *key = None);
    }
}

impl Products {
    /// Packs the weights of products, as far as memory allows.
    pub(super) fn new(pool: &ThreadPool, weights: &mut [Weight], uses: &[Uses]) -> Products {
        // Some memory stays for activations and for everything else on the machine.
        let mut budget = match crate::device::free_memory() {
            0 => u64::MAX,
            free => free / 10 * 9,
        };
        let arena = WeightArena::new();
        let matrices = weights.iter_mut().zip(uses);
        let matrices = matrices.map(|(w, u)| prepare((pool, &arena), w, *u, &mut budget)).collect();
        Products {
            matrices,
            acts: ActsCache::default(),
            expert_acts: Acts::new(),
            expert_out: Vec::new(),
            picked: Vec::new(),
        }
    }

    /// Bytes of packed weights.
    pub(super) fn size(&self) -> u64 {
        let of = |m: &Matrix| match m {
            Matrix::Packed(p) => p.packed_bytes() as u64,
            Matrix::File(_) | Matrix::Reference => 0,
        };
        self.matrices.iter().map(of).sum()
    }

    /// Forgets the values of the step before.
    pub(super) fn begin_step(&mut self) {
        self.acts.forget();
    }

    /// [`infr_graph::Op::Linear`]; `false` when the reference has to.
    pub(super) fn linear(
        &mut self,
        (cx, run): (&Context<'_>, Runner<'_>),
        node: &Node,
        spec: LinearSpec,
        out: &mut [f32],
    ) -> bool {
        let weight = cx.weight(node, 0);
        let matrix = &self.matrices[node.weights[0].index()];
        let Some(kind) = matrix.acts_kind() else { return false };
        let acts =
            self.acts.get(run, (node.inputs[0], kind), (cx.input(node, 0), weight.row_len()));
        let stride = weight.n_rows();
        product(run, (matrix, weight), 0..stride, acts, Output { data: out, stride });
        let bias = spec.bias.then(|| cx.vector(node, 1)).flatten();
        let scale = spec.scale.then(|| cx.vector(node, 1 + usize::from(spec.bias))).flatten();
        if bias.is_some() || scale.is_some() {
            let scale = scale.map_or(1.0, |s| s[0]);
            for_parts(cx.pool, out, stride, |_, out| finish(out, scale, bias));
        }
        true
    }

    /// [`infr_graph::Op::HeadLinear`]; `false` when the reference has to.
    pub(super) fn head_linear(
        &mut self,
        (cx, run): (&Context<'_>, Runner<'_>),
        node: &Node,
        heads: usize,
        out: &mut [f32],
    ) -> bool {
        let weight = cx.weight(node, 0);
        let matrix = &self.matrices[node.weights[0].index()];
        let Some(kind) = matrix.acts_kind() else { return false };
        let (inner, n_out) = (weight.row_len(), weight.n_rows() / heads);
        let n_rows = out.len() / (heads * n_out);
        for head in 0..heads {
            self.picked.clear();
            self.picked.extend((0..n_rows).map(|row| (row * heads + head) as u32));
            let rows = RowChoice::Picked(&self.picked);
            self.expert_acts.fill(run, kind, cx.input(node, 0), inner, rows);
            let out = Output { data: &mut out[head * n_out..], stride: heads * n_out };
            let rows = head * n_out..(head + 1) * n_out;
            product(run, (matrix, weight), rows, &self.expert_acts, out);
        }
        true
    }

    /// [`infr_graph::Op::ExpertLinear`]; `false` when the reference has to.
    pub(super) fn expert_linear(
        &mut self,
        (cx, run): (&Context<'_>, Runner<'_>),
        node: &Node,
        spec: ExpertSpec,
        out: &mut [f32],
    ) -> bool {
        let bank = cx.weight(node, 0);
        let matrix = &self.matrices[node.weights[0].index()];
        let Some(kind) = matrix.acts_kind() else { return false };
        let bias = spec.bias.then(|| cx.vector(node, 1)).flatten();
        let scale = spec.scale.then(|| cx.vector(node, 1 + usize::from(spec.bias))).flatten();
        let (used, inner, n_out) = (spec.used as usize, bank.row_len(), bank.dims[1]);
        let (x, width) = (cx.input(node, 0), cx.width(node, 0));
        let shared = width == inner;
        for (expert, choices) in by_expert(cx.ids(node, 1)) {
            let rows = expert * n_out..(expert + 1) * n_out;
            // A single row is in kernel layout already, the same for all of its experts.
            let acts = if shared && x.len() == width {
                self.acts.get(run, (node.inputs[0], kind), (x, width))
            } else {
                self.picked.clear();
                let row_of = |c: &usize| (if shared { c / used } else { *c }) as u32;
                self.picked.extend(choices.iter().map(row_of));
                let picked = RowChoice::Picked(&self.picked);
                self.expert_acts.fill(run, kind, x, inner, picked);
                &self.expert_acts
            };
            let scale = scale.map_or(1.0, |s| s[expert]);
            let bias = bias.map(|b| &b[rows.clone()]);
            if let [choice] = choices[..] {
                let out = &mut out[choice * n_out..][..n_out];
                product(run, (matrix, bank), rows, acts, Output { data: out, stride: n_out });
                finish(out, scale, bias);
                continue;
            }
            self.expert_out.resize(self.expert_out.len().max(choices.len() * n_out), 0.0);
            let data = &mut self.expert_out[..choices.len() * n_out];
            product(run, (matrix, bank), rows, acts, Output { data, stride: n_out });
            for (choice, y) in choices.iter().zip(self.expert_out.chunks(n_out)) {
                let out = &mut out[choice * n_out..][..n_out];
                out.copy_from_slice(y);
                finish(out, scale, bias);
            }
        }
        true
    }
}

impl Matrix {
    fn acts_kind(&self) -> Option<ActsKind> {
        match self {
            Matrix::Packed(packed) => Some(packed.acts_kind()),
            Matrix::File(kind) => Some(*kind),
            Matrix::Reference => None,
        }
    }
}

/// Chooses how a weight's products are computed, and packs it where that pays and fits.
fn prepare(
    (pool, arena): (&ThreadPool, &WeightArena),
    weight: &mut Weight,
    uses: Uses,
    budget: &mut u64,
) -> Matrix {
    // Kernels start at multiples of 16 weight rows; a bank's matrices start at multiples of their rows.
    let in_bank = weight.dims.len() > 2;
    let starts = if in_bank { weight.dims[weight.dims.len() - 2] } else { 16 };
    if !uses.product || !starts.is_multiple_of(16) {
        return Matrix::Reference;
    }
    let Ok(kind) = fast::acts_kind_of(weight.view()) else { return Matrix::Reference };
    if kind == ActsKind::Q8 && !weight.row_len().is_multiple_of(32) {
        return Matrix::Reference;
    }
    let wanted = weight.bytes().len() as u64;
    if wanted > *budget {
        return Matrix::File(kind);
    }
    match PackedWeight::pack_in(pool, arena, weight.view()) {
        Ok(packed) => {
            *budget -= wanted;
            if !uses.rows {
                weight.drop_bytes();
            }
            Matrix::Packed(packed)
        }
        Err(PackError::OutOfMemory { .. }) => Matrix::File(kind),
        Err(PackError::NotAWeight(_) | PackError::Ragged { .. } | PackError::Size { .. }) => {
            Matrix::Reference
        }
    }
}

fn product(
    run: Runner<'_>,
    (matrix, weight): (&Matrix, &Weight),
    rows: Range<usize>,
    acts: &Acts,
    out: Output<'_>,
) {
    match matrix {
        Matrix::Packed(packed) => fast::linear(run, packed, rows, acts, out),
        Matrix::File(_) => {
            let done = fast::linear_unpacked(run, weight.view(), rows, acts, out);
            done.expect("the weight was checked when the program was opened");
        }
        Matrix::Reference => unreachable!("products of such weights run in the reference"),
    }
}

fn finish(out: &mut [f32], scale: f32, bias: Option<&[f32]>) {
    match bias {
        Some(bias) => out.iter_mut().zip(bias).for_each(|(y, b)| *y = *y * scale + b),
        None if scale != 1.0 => out.iter_mut().for_each(|y| *y *= scale),
        None => {}
    }
}
