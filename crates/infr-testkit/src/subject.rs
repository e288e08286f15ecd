//! Whole programs to run laws on, built by hand: small enough to read, with every kind of state.

use std::collections::HashMap;
use std::sync::Arc;

use infr_backend::{BackendError, HostTensor, WeightBytes, WeightSource};
use infr_graph::{
    AttnSpec, Builder, ConvSpec, DeltaSpec, GateAct, Gating, HeadMap, NormSpec, Output, Phase,
    Program, Reach, RopeSpec, RopeStyle, RouteSpec, SliceSpec, StateKind, Unary, ValueId,
    WeightDecl, WeightFrom, WeightId, WeightRole,
};
use infr_tensor::DType;

use crate::blocks;
use crate::rng::Rng;

/// A program with its weights.
#[derive(Clone)]
pub struct Subject {
    /// For messages.
    pub name: String,
    /// The program.
    pub program: Program,
    /// Its weights.
    pub weights: Arc<dyn WeightSource + Send + Sync>,
    /// Token ids are below this.
    pub vocab: u32,
}

/// Weights in memory, by name.
struct Held(HashMap<String, HostTensor>);

impl WeightSource for Held {
    fn load(&self, weight: &WeightDecl) -> Result<WeightBytes, BackendError> {
        match self.0.get(&weight.name) {
            Some(tensor) => Ok(WeightBytes::owned(tensor.bytes.clone())),
            None => {
                Err(BackendError::Weight { name: weight.name.clone(), what: "is not held".into() })
            }
        }
    }
}

const VOCAB: u32 = 96;
const WIDTH: u32 = 64;
const HEADS: u32 = 4;
const KV_HEADS: u32 = 2;
const HEAD: u32 = 16;
const FFN: u32 = 128;
const EXPERTS: u32 = 6;
const USED: u32 = 2;

/// The programs that every backend runs the laws on.
pub fn subjects() -> Vec<Subject> {
    vec![dense(), experts(), hybrid()]
}

/// A llama-like decoder: one layer sees all rows, one a window, one a chunk.
pub fn dense() -> Subject {
    let mut net = Net::new(1, DType::Q8_0);
    let mut x = net.begin();
    for (layer, reach) in [Reach::Full, Reach::Window(6), Reach::Chunk(8)].into_iter().enumerate() {
        x = net.attention(x, layer as u16, reach);
        x = net.ffn(x);
    }
    net.finish("dense", x)
}

/// A mixture of experts behind attention.
pub fn experts() -> Subject {
    let mut net = Net::new(2, DType::F16);
    let mut x = net.begin();
    for layer in 0..2 {
        x = net.attention(x, layer, Reach::Full);
        x = net.moe(x);
    }
    net.finish("experts", x)
}

/// A recurrent layer (convolution and gated delta rule), then attention.
pub fn hybrid() -> Subject {
    let mut net = Net::new(3, DType::F32);
    let mut x = net.begin();
    x = net.delta(x, 0);
    x = net.ffn(x);
    x = net.attention(x, 1, Reach::Full);
    x = net.ffn(x);
    net.finish("hybrid", x)
}

struct Net {
    b: Builder,
    rng: Rng,
    held: HashMap<String, HostTensor>,
    dtype: DType,
    positions: ValueId,
    table: WeightId,
}

impl Net {
    fn new(seed: u64, dtype: DType) -> Net {
        let mut b = Builder::new();
        let positions = b.positions();
        let table = WeightId(0);
        Net { b, rng: Rng::new(seed), held: HashMap::new(), dtype, positions, table }
    }

    fn add(&mut self, tensor: HostTensor) -> WeightId {
        let name = format!("w{}", self.held.len());
        let decl = WeightDecl {
            name: name.clone(),
            desc: tensor.desc.clone(),
            source: WeightFrom::Tensor(name.clone()),
            role: WeightRole::Dense,
            layer: None,
        };
        self.held.insert(name, tensor);
        self.b.weight(decl)
    }

    fn matrix(&mut self, dims: &[u32]) -> WeightId {
        let row = dims.last().copied().unwrap_or(1) as f32;
        let tensor = blocks::weight(&mut self.rng, self.dtype, dims, row.sqrt().recip());
        self.add(tensor)
    }

    fn vector(&mut self, n: u32, mean: f32) -> WeightId {
        let values: Vec<f32> = self.rng.normals(n as usize, 0.2).iter().map(|x| x + mean).collect();
        self.add(blocks::vector(&[n], &values))
    }

    fn project(&mut self, x: ValueId, n_out: u32) -> ValueId {
        let w = self.matrix(&[n_out, self.b.width(x)]);
        self.b.linear(x, w)
    }

    fn norm(&mut self, x: ValueId) -> ValueId {
        let w = self.vector(WIDTH, 1.0);
        self.b.rms_norm(x, Some(w), 1e-5)
    }

    fn begin(&mut self) -> ValueId {
        // Rows of spread 1: the head then gives logits that differ clearly.
        let table = blocks::weight(&mut self.rng, self.dtype, &[VOCAB, WIDTH], 1.0);
        self.table = self.add(table);
        let tokens = self.b.tokens();
        self.b.embed(tokens, self.table)
    }

    fn rope(&mut self, x: ValueId, heads: u32) -> ValueId {
        let spec = RopeSpec {
            heads,
            head_dim: HEAD,
            start: 0,
            n_rot: HEAD,
            style: RopeStyle::Halves,
            base: 1000.0,
            freq_scale: 1.0,
            yarn: None,
            magnitude: 1.0,
        };
        self.b.rope(x, self.positions, spec, None)
    }

    fn attention(&mut self, x: ValueId, layer: u16, reach: Reach) -> ValueId {
        let (key_width, value_width) = (KV_HEADS * HEAD, KV_HEADS * HEAD);
        let dtype = DType::F16;
        let cache = self.b.state(layer, StateKind::Paged { key_width, value_width, dtype, reach });
        let h = self.norm(x);
        let (q, k, v) = (
            self.project(h, HEADS * HEAD),
            self.project(h, key_width),
            self.project(h, value_width),
        );
        let (q, k) = (self.rope(q, HEADS), self.rope(k, KV_HEADS));
        self.b.kv_write(cache, k, Some(v));
        let spec = AttnSpec {
            heads: HEADS,
            kv_heads: KV_HEADS,
            key_dim: HEAD,
            value_dim: HEAD,
            scale: 0.5,
            softcap: None,
            sinks: false,
        };
        let o = self.b.attention(cache, q, spec, None);
        let o = self.project(o, WIDTH);
        self.b.add(x, o)
    }

    fn ffn(&mut self, x: ValueId) -> ValueId {
        let h = self.norm(x);
        let (gate, up) = (self.project(h, FFN), self.project(h, FFN));
        let act = self.b.gated(GateAct::Silu, gate, up);
        let down = self.project(act, WIDTH);
        self.b.add(x, down)
    }

    fn moe(&mut self, x: ValueId) -> ValueId {
        let h = self.norm(x);
        let logits = self.project(h, EXPERTS);
        let spec = RouteSpec {
            experts: EXPERTS,
            used: USED,
            gating: Gating::Softmax,
            normalise: true,
            scale: 1.0,
            groups: 1,
            groups_used: 1,
            bias: false,
        };
        let (ids, weights) = self.b.route(logits, spec, None);
        let gate = self.matrix(&[EXPERTS, FFN, WIDTH]);
        let up = self.matrix(&[EXPERTS, FFN, WIDTH]);
        let down = self.matrix(&[EXPERTS, WIDTH, FFN]);
        let (gate, up) = (self.b.expert_linear(h, ids, gate), self.b.expert_linear(h, ids, up));
        let act = self.b.gated(GateAct::Silu, gate, up);
        let y = self.b.expert_linear(act, ids, down);
        let y = self.b.combine(y, weights);
        self.b.add(x, y)
    }

    fn delta(&mut self, x: ValueId, layer: u16) -> ValueId {
        let (k_heads, v_heads, dk, dv) = (2, 4, 16, 16);
        let channels = 2 * k_heads * dk + v_heads * dv;
        let conv = ConvSpec { channels, taps: 4 };
        let history = self.b.state(layer, StateKind::Slot { width: 3 * channels });
        let matrix = self.b.state(layer, StateKind::Slot { width: v_heads * dk * dv });
        let h = self.norm(x);
        let qkv = self.project(h, channels);
        let values = self.rng.normals((channels * 4) as usize, 0.5);
        let filter = self.add(blocks::vector(&[channels, 4], &values));
        let qkv = self.b.conv1d(history, qkv, filter, conv);
        let qkv = self.b.unary(Unary::Silu, qkv);
        let part = |b: &mut Builder, start, len| b.slice(qkv, SliceSpec { groups: 1, start, len });
        let q = part(&mut self.b, 0, k_heads * dk);
        let k = part(&mut self.b, k_heads * dk, k_heads * dk);
        let v = part(&mut self.b, 2 * k_heads * dk, v_heads * dv);
        let (q, k) = (self.b.l2_norm(q, k_heads, 1e-6), self.b.l2_norm(k, k_heads, 1e-6));
        let decay = self.project(h, v_heads);
        let decay = self.b.unary(Unary::Softplus, decay);
        let decay = self.b.scale(decay, -0.5);
        let beta = self.project(h, v_heads);
        let beta = self.b.unary(Unary::Sigmoid, beta);
        let map = HeadMap::Divide;
        let spec = DeltaSpec { k_heads, v_heads, key_dim: dk, value_dim: dv, map };
        let o = self.b.delta_net(matrix, [q, k, v, decay, beta], spec);
        let o = self.b.rms_norm_groups(o, None, NormSpec { eps: 1e-6, groups: v_heads });
        let o = self.project(o, WIDTH);
        self.b.add(x, o)
    }

    fn finish(mut self, name: &str, x: ValueId) -> Subject {
        let x = self.b.gather_out(x);
        let hidden = self.norm(x);
        let logits = self.b.linear(hidden, self.table);
        self.b.output(Output::Hidden, hidden);
        self.b.output(Output::Logits, logits);
        self.b.end_graph(Phase::Forward);
        let program = self.b.finish().unwrap_or_else(|e| panic!("{name}: {e}"));
        let weights = Arc::new(Held(self.held));
        Subject { name: name.into(), program, weights, vocab: VOCAB }
    }
}
