//! Rewrites change no bit: the reference runs the bodies of fused nodes, and gets what it gets from the
//! graph as built.

#![allow(clippy::unwrap_used)]

mod support;

use infr_backend::{TokenIn, Want};
use infr_graph::passes::optimise;
use infr_graph::{Fused, FusionSupport, Op, Output, Phase, Program, ShapeClass};
use infr_models::synth::tiny_recipes;
use infr_tensor::DType;
use infr_testkit::driver::{Driver, Work};
use infr_testkit::ops::reference;
use infr_testkit::{Rng, Subject};

struct All;

impl FusionSupport for All {
    fn accepts(&self, _: &Fused, _: &Program, _: ShapeClass) -> bool {
        true
    }
}

fn optimised(subject: &Subject) -> Subject {
    let class = ShapeClass { rows: 1, seqs: 1, out_rows: 1 };
    let mut program = subject.program.clone();
    for (_, graph) in &mut program.graphs {
        *graph = optimise(graph, &subject.program, class, &All).unwrap();
    }
    Subject { program, ..subject.clone() }
}

fn rows(subject: &Subject) -> Vec<Vec<f32>> {
    let graph = subject.program.graph(Phase::Forward).unwrap();
    let has_logits = graph.output(Output::Logits).is_some();
    let want = if has_logits { Want::Logits } else { Want::Hidden };
    let mut rng = Rng::new(3);
    let reference = reference();
    let mut driver = Driver::new(&reference, subject, 4, 1);
    let mut seq = driver.start();
    let mut out = Vec::new();
    for n in [7, 1] {
        let tokens: Vec<TokenIn> = (0..n).map(|_| TokenIn::Id(rng.below(subject.vocab))).collect();
        let step = driver.step(&mut [Work { seq: &mut seq, tokens: &tokens, want }]);
        out.extend(step.into_iter().map(|r| [r.logits, r.hidden].concat()));
    }
    out
}

#[test]
fn optimised_graphs_compute_the_same_bits() {
    let mut fused = 0;
    for recipe in tiny_recipes("F32") {
        let subject = support::tiny(&recipe.name, "F32", DType::F16);
        let other = optimised(&subject);
        let graph = other.program.graph(Phase::Forward).unwrap();
        let here = graph.nodes.iter().filter(|n| matches!(n.op, Op::Fused(_))).count();
        println!("{}: {here} fused of {} nodes", recipe.name, graph.nodes.len());
        fused += here;
        assert_eq!(rows(&subject), rows(&other), "{}", recipe.name);
    }
    assert!(fused > 100, "only {fused} nodes were fused");
}
