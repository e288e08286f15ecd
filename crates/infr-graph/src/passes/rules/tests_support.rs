//! What the rules' tests share.

use infr_tensor::{DType, Shape, TensorDesc};

use crate::passes::{FusionSupport, ShapeClass, optimise};
use crate::{
    BatchField, Builder, Fused, Graph, Op, Output, Phase, Program, ValueId, WeightDecl, WeightFrom,
    WeightId, WeightRole, print,
};

/// A builder with a source of rows.
pub(crate) struct Rows {
    pub(crate) b: Builder,
    carried: u8,
}

impl Rows {
    pub(crate) fn new() -> Rows {
        Rows { b: Builder::new(), carried: 0 }
    }

    pub(crate) fn rows(&mut self, width: u32) -> ValueId {
        let field = BatchField::Carried { index: self.carried, width };
        self.carried += 1;
        self.b.node(Op::Input(field), &[], &[], None)[0]
    }

    fn weight(&mut self, name: &str, dtype: DType, dims: &[u32]) -> WeightId {
        self.b.weight(WeightDecl {
            name: name.into(),
            desc: TensorDesc { dtype, shape: Shape::fixed(dims) },
            source: WeightFrom::Tensor(name.into()),
            role: WeightRole::Dense,
            layer: None,
        })
    }

    pub(crate) fn vector(&mut self, name: &str, len: u32) -> WeightId {
        self.weight(name, DType::F32, &[len])
    }

    pub(crate) fn matrix(&mut self, name: &str, dtype: DType, out: u32, inner: u32) -> WeightId {
        self.weight(name, dtype, &[out, inner])
    }

    pub(crate) fn finish(mut self, out: ValueId) -> Program {
        self.b.output(Output::Hidden, out);
        self.b.end_graph(Phase::Forward);
        self.b.finish().unwrap()
    }
}

struct All;

impl FusionSupport for All {
    fn accepts(&self, _: &Fused, _: &Program, _: ShapeClass) -> bool {
        true
    }
}

/// The optimised graph of a program, with the program for its names.
pub(crate) fn fused(program: &Program) -> (Graph, Program) {
    let class = ShapeClass { rows: 1, seqs: 1, out_rows: 1 };
    let graph = optimise(program.graph(Phase::Forward).unwrap(), program, class, &All).unwrap();
    (graph, program.clone())
}

pub(crate) fn text((graph, program): &(Graph, Program)) -> String {
    print::print(graph, program)
}
