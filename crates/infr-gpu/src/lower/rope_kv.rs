//! Rotary embeddings and cache writes, together or alone.

use infr_graph::{Fused, Node, Op, RopeSpec, RopeStyle, ValueId};
use infr_kernels::KernelFamily;

use super::{Job, Lower, Lowered};
use crate::dispatch::Push;
use crate::places::PoolPlace;

fn style_number(style: RopeStyle) -> u32 {
    match style {
        RopeStyle::Interleaved => 0,
        RopeStyle::Halves => 1,
    }
}

/// The rotation that makes a value, with the norm before it.
struct Turn<'a> {
    input: ValueId,
    norm: Option<(&'a Node, f32)>,
}

impl<'a> Lower<'a> {
    /// The pools of a node's state.
    pub(super) fn pool(&self, node: &Node) -> &'a PoolPlace {
        let place = node.state.and_then(|s| self.ground.states.pools[s.index()].as_ref());
        place.expect("the verifier checked the state's kind")
    }

    pub(super) fn rope(&mut self, node: &Node, spec: &RopeSpec) -> Lowered {
        let pick = self.kernel(KernelFamily::Rope, None)?;
        let (x, y) = (node.inputs[0], node.outputs[0]);
        let push = Push::addresses(&[
            self.site.batch.counts,
            self.address(node.inputs[1]),
            self.ground.ropes.address(spec, node),
            self.address(x),
            self.address(y),
        ])
        .u32(spec.heads)
        .u32(spec.head_dim)
        .pair(spec.start, spec.n_rot)
        .f32(spec.magnitude);
        let job = Job {
            label: &self.label(node),
            spec: &[("style", style_number(spec.style))],
            push,
            grid: [spec.heads, self.n_rows(x), 1],
            reads: vec![self.value(x)],
            writes: vec![self.value(y)],
        };
        self.push(&pick, job)
    }

    pub(super) fn kv_write(&mut self, node: &Node) -> Lowered {
        let pick = self.kernel(KernelFamily::KvWrite, None)?;
        let wg = pick.tuned("wg").map_err(super::no_kernel)?;
        let pool = self.pool(node);
        let (k, v) = (node.inputs[0], node.inputs[1]);
        let push = Push::addresses(&[
            self.site.batch.counts,
            self.site.batch.write_rows[pool.group],
            self.address(k),
            self.address(v),
            pool.keys.start,
            pool.values.start,
        ])
        .u32(pool.key_width)
        .u32(pool.value_width);
        let job = Job {
            label: &self.label(node),
            spec: &[("kv", pool.kv)],
            push,
            grid: [(pool.key_width + pool.value_width).div_ceil(wg), self.n_rows(k), 1],
            reads: vec![self.value(k), self.value(v)],
            writes: vec![pool.keys.clone(), pool.values.clone()],
        };
        self.push(&pick, job)
    }

    /// The body: norms of queries and keys where there are any, both rotations, the cache write.
    pub(super) fn rope_kv(&mut self, node: &Node, fused: &Fused) -> Lowered {
        let write = fused.body.last().expect("what the rule builds");
        let (key, value) = (write.inputs[0], write.inputs[1]);
        let ropes = || fused.body.iter().filter(|n| matches!(n.op, Op::Rope(_)));
        let k_rope = ropes().find(|n| n.outputs[0] == key).expect("what the rule builds");
        let q_rope = ropes().find(|n| n.outputs[0] != key).expect("what the rule builds");
        let (Op::Rope(q_spec), Op::Rope(k_spec)) = (&q_rope.op, &k_rope.op) else {
            unreachable!("found as such")
        };
        let (q, k) = (turn(fused, q_rope), turn(fused, k_rope));
        let eps = q.norm.or(k.norm).map_or(0.0, |(_, eps)| eps);
        let norm = |turn: &Turn<'_>| turn.norm.map_or(0, |(norm, _)| self.vector(norm, 0));
        let pick = self.kernel(KernelFamily::RopeKv, None)?;
        let pool = self.pool(node);
        let q_out = q_rope.outputs[0];
        let push = Push::addresses(&[
            self.site.batch.counts,
            self.address(q_rope.inputs[1]),
            self.ground.ropes.address(q_spec, q_rope),
            self.address(q.input),
            self.address(k.input),
            self.address(value),
            self.address(q_out),
            norm(&q),
            norm(&k),
            self.site.batch.write_rows[pool.group],
            pool.keys.start,
            pool.values.start,
        ])
        .pair(q_spec.heads, k_spec.heads)
        .pair(q_spec.head_dim, pool.value_width / k_spec.heads)
        .pair(q_spec.start, q_spec.n_rot)
        .f32(q_spec.magnitude)
        .f32(eps);
        let job = Job {
            label: &self.label(node),
            spec: &[("kv", pool.kv), ("style", style_number(q_spec.style))],
            push,
            grid: [q_spec.heads + 2 * k_spec.heads, self.n_rows(q.input), 1],
            reads: vec![self.value(q.input), self.value(k.input), self.value(value)],
            writes: vec![self.value(q_out), pool.keys.clone(), pool.values.clone()],
        };
        self.push(&pick, job)
    }
}

fn turn<'a>(fused: &'a Fused, rope: &Node) -> Turn<'a> {
    let before = rope.inputs[0];
    for node in &fused.body {
        if let Op::RmsNorm(spec) = &node.op
            && node.outputs[0] == before
        {
            return Turn { input: node.inputs[0], norm: Some((node, spec.eps)) };
        }
    }
    Turn { input: before, norm: None }
}
