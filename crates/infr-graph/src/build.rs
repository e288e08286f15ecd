//! The builder that model files write graphs with.
//!
//! One builder makes a whole [`Program`]: weights and states are declared once and shared by its
//! graphs. A mistake in the use of an op is kept and reported by [`Builder::finish`], so that model
//! code reads as a straight line.

use infr_tensor::TensorDesc;

use crate::decl::{StateDecl, StateKind, WeightDecl};
use crate::graph::{Graph, GraphError, Node, Output};
use crate::ids::{StateId, ValueId, WeightId};
use crate::op::{
    AttnSpec, BatchField, ConvSpec, DeltaSpec, ExpertSpec, GateAct, LinearSpec, NormSpec, Op,
    PositionScale, RopeSpec, RouteSpec, SliceSpec, Unary,
};
use crate::program::{Phase, Program};
use crate::shape_rules::infer;
use crate::verify::{operands, verify_program};

/// A matrix with its optional companions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinearWeights {
    /// The matrix `[out, in]`, or a bank `[X, out, in]`.
    pub matrix: WeightId,
    /// Added to the product.
    pub bias: Option<WeightId>,
    /// Multiplies the product.
    pub scale: Option<WeightId>,
}

impl From<WeightId> for LinearWeights {
    fn from(matrix: WeightId) -> LinearWeights {
        LinearWeights { matrix, bias: None, scale: None }
    }
}

impl LinearWeights {
    fn ids(self) -> Vec<WeightId> {
        [Some(self.matrix), self.bias, self.scale].into_iter().flatten().collect()
    }
}

/// Builds a program node by node.
#[derive(Debug, Default)]
pub struct Builder {
    program: Program,
    graph: Graph,
    layer: Option<u16>,
    error: Option<GraphError>,
}

impl Builder {
    /// An empty program with an empty current graph.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Declares a weight.
    pub fn weight(&mut self, decl: WeightDecl) -> WeightId {
        self.program.weights.push(decl);
        WeightId(self.program.weights.len() as u32 - 1)
    }

    /// Type and shape of a declared weight.
    pub fn weight_desc(&self, id: WeightId) -> &TensorDesc {
        &self.program.weights[id.index()].desc
    }

    /// Declares a state of `layer`.
    pub fn state(&mut self, layer: u16, kind: StateKind) -> StateId {
        self.program.states.push(StateDecl { layer, kind });
        StateId(self.program.states.len() as u32 - 1)
    }

    /// Sets the layer of the nodes that follow.
    pub fn set_layer(&mut self, layer: Option<u16>) {
        self.layer = layer;
    }

    /// Width of a value's rows.
    pub fn width(&self, value: ValueId) -> u32 {
        self.graph.value(value).shape.width().unwrap_or(1)
    }

    /// Names a value that leaves the graph.
    pub fn output(&mut self, kind: Output, value: ValueId) {
        self.graph.outputs.push((kind, value));
    }

    /// Closes the current graph as the graph of `phase` and starts the next one.
    pub fn end_graph(&mut self, phase: Phase) {
        let graph = std::mem::take(&mut self.graph);
        self.program.graphs.push((phase, graph));
        self.layer = None;
    }

    /// The finished program, verified.
    ///
    /// # Errors
    /// The first misuse of an op, or what the verifier finds.
    pub fn finish(self) -> Result<Program, GraphError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        verify_program(&self.program)?;
        Ok(self.program)
    }

    /// Adds any node; the named methods below are shorthands for it.
    pub fn node(
        &mut self,
        op: Op,
        inputs: &[ValueId],
        weights: &[WeightId],
        state: Option<StateId>,
    ) -> Vec<ValueId> {
        let mut node = Node {
            op,
            inputs: inputs.to_vec(),
            weights: weights.to_vec(),
            state,
            outputs: Vec::new(),
            layer: self.layer,
        };
        let descs = operands(&node, &self.graph, &self.program)
            .and_then(|found| infer(&node.op, &found))
            .unwrap_or_else(|what| {
                let index = self.graph.nodes.len();
                let op = node.op.name();
                self.error.get_or_insert(GraphError::Node { index, op, what });
                // A placeholder keeps the rest of the model's code running; `finish` reports.
                vec![
                    TensorDesc {
                        dtype: infr_tensor::DType::F32,
                        shape: infr_tensor::Shape::rows(1)
                    };
                    2
                ]
            });
        for desc in descs {
            node.outputs.push(ValueId(self.graph.values.len() as u32));
            self.graph.values.push(desc);
        }
        let outputs = node.outputs.clone();
        self.graph.nodes.push(node);
        outputs
    }

    fn single(&mut self, op: Op, inputs: &[ValueId], weights: &[WeightId]) -> ValueId {
        self.node(op, inputs, weights, None)[0]
    }

    /// The batch's token ids.
    pub fn tokens(&mut self) -> ValueId {
        self.single(Op::Input(BatchField::Tokens), &[], &[])
    }

    /// The batch's positions.
    pub fn positions(&mut self) -> ValueId {
        self.single(Op::Input(BatchField::Positions), &[], &[])
    }

    /// [`Op::Embed`].
    pub fn embed(&mut self, tokens: ValueId, table: WeightId) -> ValueId {
        self.single(Op::Embed, &[tokens], &[table])
    }

    /// [`Op::Linear`].
    pub fn linear(&mut self, x: ValueId, w: impl Into<LinearWeights>) -> ValueId {
        let w = w.into();
        let spec = LinearSpec { bias: w.bias.is_some(), scale: w.scale.is_some() };
        self.single(Op::Linear(spec), &[x], &w.ids())
    }

    /// [`Op::LinearTransposed`].
    pub fn linear_transposed(&mut self, x: ValueId, matrix: WeightId) -> ValueId {
        self.single(Op::LinearTransposed, &[x], &[matrix])
    }

    /// [`Op::HeadLinear`].
    pub fn head_linear(&mut self, x: ValueId, matrices: WeightId, heads: u32) -> ValueId {
        self.single(Op::HeadLinear { heads }, &[x], &[matrices])
    }

    /// [`Op::ExpertLinear`]; `used` is the width of `ids`.
    pub fn expert_linear(
        &mut self,
        x: ValueId,
        ids: ValueId,
        bank: impl Into<LinearWeights>,
    ) -> ValueId {
        let w = bank.into();
        let used = self.width(ids);
        let spec = ExpertSpec { used, bias: w.bias.is_some(), scale: w.scale.is_some() };
        self.single(Op::ExpertLinear(spec), &[x, ids], &w.ids())
    }

    /// [`Op::RmsNorm`] over the whole row.
    pub fn rms_norm(&mut self, x: ValueId, weight: Option<WeightId>, eps: f32) -> ValueId {
        self.rms_norm_groups(x, weight, NormSpec { eps, groups: 1 })
    }

    /// [`Op::RmsNorm`] over each part of the row.
    pub fn rms_norm_groups(
        &mut self,
        x: ValueId,
        weight: Option<WeightId>,
        spec: NormSpec,
    ) -> ValueId {
        let weights: Vec<WeightId> = weight.into_iter().collect();
        self.single(Op::RmsNorm(spec), &[x], &weights)
    }

    /// [`Op::L2Norm`].
    pub fn l2_norm(&mut self, x: ValueId, groups: u32, eps: f32) -> ValueId {
        self.single(Op::L2Norm { eps, groups }, &[x], &[])
    }

    /// [`Op::Rope`].
    pub fn rope(
        &mut self,
        x: ValueId,
        positions: ValueId,
        spec: RopeSpec,
        factors: Option<WeightId>,
    ) -> ValueId {
        let weights: Vec<WeightId> = factors.into_iter().collect();
        self.single(Op::Rope(spec), &[x, positions], &weights)
    }

    /// [`Op::PositionScale`].
    pub fn position_scale(
        &mut self,
        x: ValueId,
        positions: ValueId,
        spec: PositionScale,
    ) -> ValueId {
        self.single(Op::PositionScale(spec), &[x, positions], &[])
    }

    /// [`Op::KvWrite`] of a key row and, unless values alias keys, a value row.
    pub fn kv_write(&mut self, state: StateId, key: ValueId, value: Option<ValueId>) {
        let inputs: Vec<ValueId> = [Some(key), value].into_iter().flatten().collect();
        self.node(Op::KvWrite, &inputs, &[], Some(state));
    }

    /// [`Op::Attention`].
    pub fn attention(
        &mut self,
        state: StateId,
        q: ValueId,
        spec: AttnSpec,
        sinks: Option<WeightId>,
    ) -> ValueId {
        let weights: Vec<WeightId> = sinks.into_iter().collect();
        self.node(Op::Attention(spec), &[q], &weights, Some(state))[0]
    }

    /// [`Op::Route`]: ids and weights.
    pub fn route(
        &mut self,
        logits: ValueId,
        spec: RouteSpec,
        bias: Option<WeightId>,
    ) -> (ValueId, ValueId) {
        let weights: Vec<WeightId> = bias.into_iter().collect();
        let out = self.node(Op::Route(spec), &[logits], &weights, None);
        (out[0], out[1])
    }

    /// [`Op::Combine`].
    pub fn combine(&mut self, x: ValueId, weights: ValueId) -> ValueId {
        self.single(Op::Combine, &[x, weights], &[])
    }

    /// [`Op::Spread`].
    pub fn spread(&mut self, x: ValueId, weights: ValueId) -> ValueId {
        self.single(Op::Spread, &[x, weights], &[])
    }

    /// [`Op::GatedAct`].
    pub fn gated(&mut self, act: GateAct, gate: ValueId, up: ValueId) -> ValueId {
        self.single(Op::GatedAct(act), &[gate, up], &[])
    }

    /// [`Op::Unary`].
    pub fn unary(&mut self, function: Unary, x: ValueId) -> ValueId {
        self.single(Op::Unary(function), &[x], &[])
    }

    /// [`Op::Add`].
    pub fn add(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.single(Op::Add, &[a, b], &[])
    }

    /// [`Op::Mul`].
    pub fn mul(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.single(Op::Mul, &[a, b], &[])
    }

    /// [`Op::AddWeight`].
    pub fn add_weight(&mut self, x: ValueId, weight: WeightId) -> ValueId {
        self.single(Op::AddWeight, &[x], &[weight])
    }

    /// [`Op::MulWeight`].
    pub fn mul_weight(&mut self, x: ValueId, weight: WeightId) -> ValueId {
        self.single(Op::MulWeight, &[x], &[weight])
    }

    /// [`Op::Scale`].
    pub fn scale(&mut self, x: ValueId, by: f32) -> ValueId {
        self.single(Op::Scale { by }, &[x], &[])
    }

    /// [`Op::Softcap`].
    pub fn softcap(&mut self, x: ValueId, cap: f32) -> ValueId {
        self.single(Op::Softcap { cap }, &[x], &[])
    }

    /// [`Op::Slice`].
    pub fn slice(&mut self, x: ValueId, spec: SliceSpec) -> ValueId {
        self.single(Op::Slice(spec), &[x], &[])
    }

    /// [`Op::Concat`].
    pub fn concat(&mut self, a: ValueId, b: ValueId, groups: u32) -> ValueId {
        self.single(Op::Concat { groups }, &[a, b], &[])
    }

    /// [`Op::Conv1d`].
    pub fn conv1d(
        &mut self,
        state: StateId,
        x: ValueId,
        filter: WeightId,
        spec: ConvSpec,
    ) -> ValueId {
        self.node(Op::Conv1d(spec), &[x], &[filter], Some(state))[0]
    }

    /// [`Op::DeltaNet`] over `[q, k, v, g, beta]`.
    pub fn delta_net(&mut self, state: StateId, inputs: [ValueId; 5], spec: DeltaSpec) -> ValueId {
        self.node(Op::DeltaNet(spec), &inputs, &[], Some(state))[0]
    }

    /// [`Op::GatherOut`].
    pub fn gather_out(&mut self, x: ValueId) -> ValueId {
        self.single(Op::GatherOut, &[x], &[])
    }

    /// [`Op::Softmax`].
    pub fn softmax(&mut self, logits: ValueId) -> ValueId {
        self.single(Op::Softmax, &[logits], &[])
    }

    /// [`Op::Entropy`].
    pub fn entropy(&mut self, probabilities: ValueId) -> ValueId {
        self.single(Op::Entropy, &[probabilities], &[])
    }

    /// [`Op::Sample`].
    pub fn sample(&mut self, logits: ValueId) -> ValueId {
        self.single(Op::Sample, &[logits], &[])
    }
}
