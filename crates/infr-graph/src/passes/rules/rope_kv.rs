//! Rotary embedding of queries and keys, with a norm per head before it where there is one, and the
//! cache write of keys and values.

use crate::graph::Node;
use crate::ids::ValueId;
use crate::op::{FusedKind, Op, RopeSpec};
use crate::passes::fuse::{Rule, View};

pub(super) const RULE: Rule = Rule { name: "rope_kv", kind: FusedKind::RopeKv, find };

/// The rotation that makes a value, with the norm before it.
struct Turn<'a> {
    rope: (usize, &'a Node),
    spec: &'a RopeSpec,
    norm: Option<(usize, f32)>,
}

fn find(view: &View<'_>, last: usize) -> Option<Vec<usize>> {
    let write = view.node(last);
    let Op::KvWrite = write.op else { return None };
    let &[key, _value] = &write.inputs[..] else { return None };
    let reads = |n: &&Node| matches!(n.op, Op::Attention(_)) && n.state == write.state;
    let attention = view.graph.nodes[last..].iter().find(reads)?;
    let (q, k) = (turn(view, attention.inputs[0])?, turn(view, key)?);
    let q_like_k = RopeSpec { heads: k.spec.heads, ..*q.spec } == *k.spec;
    let same_operands =
        q.rope.1.inputs[1] == k.rope.1.inputs[1] && q.rope.1.weights == k.rope.1.weights;
    let same_eps = match (q.norm, k.norm) {
        (Some((_, q)), Some((_, k))) => q == k,
        _ => true,
    };
    if !q_like_k || !same_operands || !same_eps || q.rope.0 > last {
        return None;
    }
    let norms = [q.norm, k.norm].into_iter().flatten().map(|(place, _)| place);
    Some(norms.chain([q.rope.0, k.rope.0, last]).collect())
}

fn turn<'a>(view: &View<'a>, value: ValueId) -> Option<Turn<'a>> {
    let rope = view.definition(value);
    let Op::Rope(spec) = &rope.1.op else { return None };
    if !view.has_one_reader(value) {
        return None;
    }
    let before = rope.1.inputs[0];
    let (place, node) = view.definition(before);
    let norm = match &node.op {
        Op::RmsNorm(norm)
            if norm.groups == spec.heads
                && !node.weights.is_empty()
                && view.has_one_reader(before) =>
        {
            Some((place, norm.eps))
        }
        _ => None,
    };
    Some(Turn { rope, spec, norm })
}

#[cfg(test)]
mod tests {
    use infr_tensor::DType;

    use crate::passes::rules::tests_support::{Rows, fused, text};
    use crate::{AttnSpec, NormSpec, Reach, RopeSpec, RopeStyle, StateKind};

    fn program(k_base: f32) -> crate::Program {
        let mut r = Rows::new();
        let (q, k, v) = (r.rows(8), r.rows(4), r.rows(4));
        let positions = r.b.positions();
        let w = r.vector("k_norm", 4);
        let kind = StateKind::Paged {
            key_width: 4,
            value_width: 4,
            dtype: DType::F16,
            reach: Reach::Full,
        };
        let state = r.b.state(0, kind);
        let spec = |heads, base| RopeSpec {
            heads,
            head_dim: 4,
            start: 0,
            n_rot: 4,
            style: RopeStyle::Halves,
            base,
            freq_scale: 1.0,
            yarn: None,
            magnitude: 1.0,
        };
        let k = r.b.rms_norm_groups(k, Some(w), NormSpec { eps: 1e-6, groups: 1 });
        let q = r.b.rope(q, positions, spec(2, 1e4), None);
        let k = r.b.rope(k, positions, spec(1, k_base), None);
        r.b.kv_write(state, k, Some(v));
        let attention = AttnSpec {
            heads: 2,
            kv_heads: 1,
            key_dim: 4,
            value_dim: 4,
            scale: 0.5,
            softcap: None,
            sinks: false,
        };
        let out = r.b.attention(state, q, attention, None);
        r.finish(out)
    }

    #[test]
    fn queries_keys_and_values_join() {
        assert_eq!(
            text(&fused(&program(1e4))),
            "%0 = input : F32 [rows, 8]\n\
             %1 = input : F32 [rows, 4]\n\
             %2 = input : F32 [rows, 4]\n\
             %3 = input : I32 [rows, 1]\n\
             %5 = fused.rope_kv %1, %0, %3, %2, k_norm, state 0 : F32 [rows, 8]\n    \
             %4 = rms_norm %1, k_norm : F32 [rows, 4]\n    \
             %5 = rope %0, %3 : F32 [rows, 8]\n    \
             %6 = rope %4, %3 : F32 [rows, 4]\n     \
             = kv_write %6, %2, state 0\n\
             %7 = attention %5, state 0 : F32 [rows, 8]\n\
             output Hidden = %7\n"
        );
    }

    #[test]
    fn different_rotations_stay_apart() {
        assert!(!text(&fused(&program(1e6))).contains("fused"));
    }
}
