//! Residual add, then RMS norm of the sum.

use crate::op::{FusedKind, Op};
use crate::passes::fuse::{Rule, View};

pub(super) const RULE: Rule = Rule { name: "add_norm", kind: FusedKind::AddNorm, find };

fn find(view: &View<'_>, last: usize) -> Option<Vec<usize>> {
    let norm = view.node(last);
    let Op::RmsNorm(spec) = &norm.op else { return None };
    let (add, node) = view.definition(norm.inputs[0]);
    let same_width = |a: usize, b: usize| {
        let width = |i: usize| view.graph.value(node.inputs[i]).shape.width();
        width(a) == width(b)
    };
    (node.op == Op::Add && spec.groups == 1 && same_width(0, 1)).then(|| vec![add, last])
}

#[cfg(test)]
mod tests {
    use crate::passes::rules::tests_support::{Rows, fused, text};

    #[test]
    fn the_sum_stays_an_output_when_it_is_read_again() {
        let mut r = Rows::new();
        let (x, y) = (r.rows(8), r.rows(8));
        let w = r.vector("w", 8);
        let sum = r.b.add(x, y);
        let h = r.b.rms_norm(sum, Some(w), 1e-5);
        let out = r.b.add(sum, h);
        let program = r.finish(out);
        assert_eq!(
            text(&fused(&program)),
            "%0 = input : F32 [rows, 8]\n\
             %1 = input : F32 [rows, 8]\n\
             %2, %3 = fused.add_norm %0, %1, w : F32 [rows, 8] : F32 [rows, 8]\n    \
             %2 = add %0, %1 : F32 [rows, 8]\n    \
             %3 = rms_norm %2, w : F32 [rows, 8]\n\
             %4 = add %2, %3 : F32 [rows, 8]\n\
             output Hidden = %4\n"
        );
    }

    #[test]
    fn norms_of_parts_stay_alone() {
        let mut r = Rows::new();
        let (x, y) = (r.rows(8), r.rows(8));
        let sum = r.b.add(x, y);
        let h = r.b.rms_norm_groups(sum, None, crate::NormSpec { eps: 1e-5, groups: 2 });
        let program = r.finish(h);
        assert!(!text(&fused(&program)).contains("fused"));
    }

    #[test]
    fn a_reader_between_forbids_it() {
        let mut r = Rows::new();
        let (x, y) = (r.rows(8), r.rows(8));
        let sum = r.b.add(x, y);
        let between = r.b.scale(sum, 2.0);
        let h = r.b.rms_norm(sum, None, 1e-5);
        let out = r.b.add(between, h);
        let program = r.finish(out);
        assert!(!text(&fused(&program)).contains("fused"));
    }
}
