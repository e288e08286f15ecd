//! A graph with fused nodes computes what the graph without them computes.

use infr_backend::Backend;
use infr_cpu::{CpuBackend, CpuOptions};
use infr_graph::passes::{FusionSupport, ShapeClass, optimise};
use infr_graph::{Fused, FusedKind, Op, Program};
use infr_testkit::cases::cases;

/// Accepts every fusion.
struct All;

impl FusionSupport for All {
    fn accepts(&self, _fused: &Fused, _program: &Program, _class: ShapeClass) -> bool {
        true
    }
}

#[test]
fn fused_nodes_run_as_their_bodies() {
    let mut seen = Vec::new();
    for simd in [false, true] {
        let backend = CpuBackend::new(CpuOptions { simd, ..CpuOptions::default() });
        for case in cases().into_iter().filter(|c| c.name.starts_with("fused")) {
            let mut fused = case.eval.clone();
            let class = ShapeClass { rows: 64, seqs: 4, out_rows: 64 };
            for (_, graph) in &mut fused.program.graphs {
                *graph = optimise(graph, &case.eval.program, class, &All).expect("a valid graph");
                seen.extend(graph.nodes.iter().filter_map(|n| match &n.op {
                    Op::Fused(fused) => Some(fused.kind),
                    _ => None,
                }));
            }
            let plain = backend.eval(&case.eval).expect("a valid case");
            let found = backend.eval(&fused).expect("a valid case");
            assert_eq!(plain, found, "{}", case.name);
        }
    }
    for kind in [FusedKind::AddNorm, FusedKind::GateUpAct, FusedKind::RopeKv] {
        assert!(seen.contains(&kind), "no case is fused to {kind:?}");
    }
}
