//! Two linears of one input, then a gated activation.

use crate::graph::Node;
use crate::op::{FusedKind, LinearSpec, Op};
use crate::passes::fuse::{Rule, View};

pub(super) const RULE: Rule = Rule { name: "gate_up_act", kind: FusedKind::GateUpAct, find };

fn find(view: &View<'_>, last: usize) -> Option<Vec<usize>> {
    let act = view.node(last);
    let Op::GatedAct(_) = act.op else { return None };
    let part = |input: usize| -> Option<(usize, &Node, LinearSpec)> {
        let value = act.inputs[input];
        let (place, node) = view.definition(value);
        let Op::Linear(spec) = node.op else { return None };
        (view.has_one_reader(value) && !spec.scale).then_some((place, node, spec))
    };
    let (gate, up) = (part(0)?, part(1)?);
    let desc = |node: &Node| &view.program.weights[node.weights[0].index()].desc;
    let alike = gate.1.inputs == up.1.inputs && gate.2 == up.2 && desc(gate.1) == desc(up.1);
    // The kernel computes the gate first: the body's order says which weights are whose.
    (alike && gate.0 < up.0).then(|| vec![gate.0, up.0, last])
}

#[cfg(test)]
mod tests {
    use crate::GateAct;
    use crate::passes::rules::tests_support::{Rows, fused, text};
    use infr_tensor::DType;

    fn program(up_type: DType) -> crate::Program {
        let mut r = Rows::new();
        let x = r.rows(32);
        let (gate, up) = (r.matrix("gate", DType::F32, 4, 32), r.matrix("up", up_type, 4, 32));
        let (gate, up) = (r.b.linear(x, gate), r.b.linear(x, up));
        let y = r.b.gated(GateAct::Silu, gate, up);
        r.finish(y)
    }

    #[test]
    fn equal_types_fuse() {
        assert_eq!(
            text(&fused(&program(DType::F32))),
            "%0 = input : F32 [rows, 32]\n\
             %3 = fused.gate_up_act %0, gate, up : F32 [rows, 4]\n    \
             %1 = linear %0, gate : F32 [rows, 4]\n    \
             %2 = linear %0, up : F32 [rows, 4]\n    \
             %3 = gated_act %1, %2 : F32 [rows, 4]\n\
             output Hidden = %3\n"
        );
    }

    #[test]
    fn different_types_do_not() {
        assert!(!text(&fused(&program(DType::Q8_0))).contains("fused"));
    }
}
