//! Attention over pages: single rows with the context split over workgroups, or tiles of rows.

use infr_graph::{AttnSpec, Node, Op, ShapeClass};
use infr_kernels::{KernelFamily, Selector};

use super::{Job, Lower, Lowered};
use crate::dispatch::Push;

/// How the attention of a plan runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Each row alone, its context in parts.
    Decode {
        /// Parts.
        splits: u32,
    },
    /// Tiles of rows of one sequence.
    Prefill,
}

fn form(spec: &AttnSpec, class: ShapeClass, selector: &Selector, strict: bool) -> Form {
    let tuning = &selector.tuning.attention;
    if strict {
        return Form::Decode { splits: tuning.strict_splits };
    }
    // Many sequences of one row each are decoded, however many they are.
    if class.rows >= tuning.prefill_rows && class.rows >= 2 * class.seqs {
        return Form::Prefill;
    }
    let groups = (spec.kv_heads * class.rows).max(1);
    let splits = (selector.profile.parallel_groups / groups).max(1).next_power_of_two();
    Form::Decode { splits: splits.min(tuning.max_splits) }
}

/// Bytes of scratch that a node needs: the partial sums of split attention.
pub(crate) fn scratch_bytes(
    node: &Node,
    class: ShapeClass,
    selector: &Selector,
    strict: bool,
) -> u64 {
    let Op::Attention(spec) = &node.op else { return 0 };
    match form(spec, class, selector, strict) {
        Form::Decode { splits: 1 } | Form::Prefill => 0,
        Form::Decode { splits } => {
            let parts = u64::from(class.rows) * u64::from(spec.heads) * u64::from(splits);
            parts * u64::from(spec.value_dim + 2) * 4
        }
    }
}

impl Lower<'_> {
    pub(super) fn attention(&mut self, index: usize, node: &Node, spec: &AttnSpec) -> Lowered {
        match form(spec, self.site.class, self.ground.selector, self.ground.strict) {
            Form::Decode { splits } => self.attn_decode(index, node, spec, splits),
            Form::Prefill => self.attn_prefill(node, spec),
        }
    }

    fn attn_decode(&mut self, index: usize, node: &Node, spec: &AttnSpec, splits: u32) -> Lowered {
        let pick = self.kernel(KernelFamily::AttnDecode, None)?;
        let (pool, states, batch) = (self.pool(node), self.ground.states, self.site.batch);
        let table = states.tables[pool.group];
        let (q, y) = (node.inputs[0], node.outputs[0]);
        let sinks = self.vector(node, 0);
        let out = if splits == 1 { self.value(y) } else { self.site.scratch[index].clone() };
        let push = Push::addresses(&[
            batch.counts,
            self.address(q),
            pool.keys.start,
            pool.values.start,
            table.address,
            batch.row_slots,
            batch.visible[pool.group],
            out.start,
            sinks,
        ])
        .u32(spec.heads)
        .u32(spec.kv_heads)
        .u32(table.stride)
        .pair(states.page_shift, splits)
        .f32(spec.scale)
        .f32(spec.softcap.unwrap_or(0.0));
        let job = Job {
            label: &self.label(node),
            spec: &[("kv", pool.kv), ("key_dim", spec.key_dim), ("value_dim", spec.value_dim)],
            push,
            grid: [spec.kv_heads, self.n_rows(q), splits],
            reads: vec![self.value(q), pool.keys.clone(), pool.values.clone()],
            writes: vec![out.clone()],
        };
        self.push(&pick, job)?;
        if splits == 1 {
            return Ok(());
        }
        let pick = self.kernel(KernelFamily::AttnCombine, None)?;
        let push = Push::addresses(&[batch.counts, out.start, self.address(y), sinks])
            .u32(spec.heads)
            .u32(spec.value_dim)
            .u32(splits);
        let job = Job {
            label: &format!("{} combine", self.label(node)),
            spec: &[],
            push,
            grid: [spec.heads, self.n_rows(q), 1],
            reads: vec![out],
            writes: vec![self.value(y)],
        };
        self.push(&pick, job)
    }

    fn attn_prefill(&mut self, node: &Node, spec: &AttnSpec) -> Lowered {
        let pick = self.kernel(KernelFamily::AttnPrefill, None)?;
        let q_tile = pick.tuned("q_tile").map_err(super::no_kernel)?;
        let (pool, states, batch) = (self.pool(node), self.ground.states, self.site.batch);
        let table = states.tables[pool.group];
        let (q, y) = (node.inputs[0], node.outputs[0]);
        let push = Push::addresses(&[
            batch.counts,
            self.address(q),
            pool.keys.start,
            pool.values.start,
            table.address,
            batch.row_slots,
            batch.visible[pool.group],
            batch.tiles,
            self.address(y),
            self.vector(node, 0),
        ])
        .u32(spec.heads)
        .u32(spec.kv_heads)
        .u32(table.stride)
        .pair(states.page_shift, 0)
        .f32(spec.scale)
        .f32(spec.softcap.unwrap_or(0.0));
        // Every sequence may end in a tile that is not full.
        let class = self.site.class;
        let tiles = (class.rows / q_tile + class.seqs).min(class.rows);
        let job = Job {
            label: &self.label(node),
            spec: &[("kv", pool.kv), ("key_dim", spec.key_dim), ("value_dim", spec.value_dim)],
            push,
            grid: [spec.heads, tiles, 1],
            reads: vec![self.value(q), pool.keys.clone(), pool.values.clone()],
            writes: vec![self.value(y)],
        };
        self.push(&pick, job)
    }
}
