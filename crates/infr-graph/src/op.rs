//! Every op of the IR, with the exact meaning that a backend must give it.
//!
//! Shapes: `R` rows of the batch (or output rows), widths in elements. Activations are `f32` in the
//! reference; ids are `i32`. Formulas follow the models' papers as summarised per op. "Groups" cut a
//! row into equal parts, one per head. Weights stand in the order that each op names.

use crate::graph::Node;

/// One semantic operation.
#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    /// A field of the batch as a value: `[R]` tokens or positions (`i32`), or carried rows.
    Input(BatchField),
    /// Row gather: `tokens[R]`, weight `[V, E]` -> `[R, E]`.
    Embed,
    /// `y[o] = Σ_i W[o, i]·x[i]`; weights `W [out, in]`, then bias `[out]`, then scale `[1]` as the spec says.
    /// The scale multiplies the product, the bias is added after it.
    Linear(LinearSpec),
    /// `y[i] = Σ_o x[o]·W[o, i]`: a weighted sum of the rows of `W [out, in]`.
    LinearTransposed,
    /// One matrix per head: `x [R, heads·in]`, weight `[heads, out, in]` -> `[R, heads·out]`.
    HeadLinear {
        /// Number of heads, each with its own matrix.
        heads: u32,
    },
    /// Expert-indexed linear: inputs `x` and `ids [R, K]`; weights `W [X, out, in]`, then bias `[X, out]`,
    /// then scale `[X]`. `x` is `[R, in]` (the same row for all K) or `[R, K·in]` (one part per choice);
    /// the output is `[R, K·out]`.
    ExpertLinear(ExpertSpec),
    /// `x / sqrt(mean(x²) + eps)·w` over each of `groups` parts of the row; weight of one part's width, or none.
    RmsNorm(NormSpec),
    /// `x / sqrt(Σx² + eps)` over each of `groups` parts of the row.
    L2Norm {
        /// Added to the sum of squares.
        eps: f32,
        /// Equal parts of the row.
        groups: u32,
    },
    /// Rotary embedding of inputs `x` and `positions`; optional weight: frequency factors `[n_rot/2]`.
    Rope(RopeSpec),
    /// Position-dependent scale of inputs `x` and `positions`: `x·(1 + s·ln(1 + floor((p + off)/period)))`.
    PositionScale(PositionScale),
    /// Stores inputs `k` and `v` (or one latent row) of every row at its write index in the node's state.
    KvWrite,
    /// Softmax attention of input `q` over the rows of the node's state that each row's visible range
    /// names; optional weight: sink logits `[heads]`.
    Attention(AttnSpec),
    /// Chooses experts from router `logits [R, X]`; optional weight: selection bias `[X]`.
    /// Outputs: `ids [R, K]` and `weights [R, K]`.
    Route(RouteSpec),
    /// `Σ_k w[k]·x[k]` in selection order: `x [R, K·E]`, `w [R, K]` -> `[R, E]`.
    Combine,
    /// `x [R, E]`, `w [R, K]` -> `[R, K·E]`, part `k` being `w[k]·x` (weights applied before the experts).
    Spread,
    /// `act(gate)·up`, elementwise.
    GatedAct(GateAct),
    /// An elementwise function.
    Unary(Unary),
    /// Sum of two values; the second may have width 1 or one element per group of the first.
    Add,
    /// Product of two values, broadcast like [`Op::Add`].
    Mul,
    /// Adds a weight whose length divides the row's width, repeated.
    AddWeight,
    /// Multiplies by a weight whose length divides the row's width, repeated.
    MulWeight,
    /// Multiplies by a constant.
    Scale {
        /// The factor.
        by: f32,
    },
    /// `cap·tanh(x/cap)`.
    Softcap {
        /// The bound.
        cap: f32,
    },
    /// Takes `len` elements from `start` of each of `groups` equal parts of the row.
    Slice(SliceSpec),
    /// Joins two values part by part: `groups` parts of `[a-part, b-part]`.
    Concat {
        /// Equal parts of both rows.
        groups: u32,
    },
    /// Depthwise causal convolution over a sequence's rows: `y[t, c] = Σ_j w[c, j]·u[t − taps + 1 + j, c]`;
    /// weight `[channels, taps]`; the slot holds the last `taps − 1` input rows, oldest first.
    Conv1d(ConvSpec),
    /// Gated delta rule (Yang et al., "Gated Delta Networks", 2024): inputs `q`, `k`, `v`, `g`, `beta`;
    /// the slot holds `[v_heads, dk, dv]`. Per row and value head: `S *= exp(g)`; `r = Sᵀk`;
    /// `S += k ⊗ β(v − r)`; `o = Sᵀq/√dk`.
    DeltaNet(DeltaSpec),
    /// Keeps the rows whose output is wanted: `[R, W]` -> `[out, W]`.
    GatherOut,
    /// Probabilities of `logits [out, V]`: `softmax(logits/T)`, where `T` is the sampling temperature of the
    /// row's sequence, 1 when that is 0.
    Softmax,
    /// `−Σ p·ln p` of probabilities `[out, V]`, in nats; a probability of 0 adds nothing -> `[out, 1]`.
    Entropy,
    /// Draws one token per output row from `logits [out, V]` by the row's sampling parameters -> `[out, 1]` ids.
    Sample,
    /// A rewrite of several nodes into one kernel; the body is its definition.
    Fused(Box<Fused>),
}

/// A field of the batch that enters a graph as a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BatchField {
    /// Token ids, one per row.
    Tokens,
    /// Positions, one per row.
    Positions,
    /// Rows computed elsewhere (another device, an encoder), `width` elements each.
    Carried {
        /// Which of the batch's carried values.
        index: u8,
        /// Elements per row.
        width: u32,
    },
}

/// Which companions a linear has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinearSpec {
    /// A bias `[out]` follows the matrix.
    pub bias: bool,
    /// A scalar `[1]` that multiplies the product follows.
    pub scale: bool,
}

/// Which companions an expert linear has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpertSpec {
    /// Experts chosen per row (K).
    pub used: u32,
    /// A bias `[X, out]` follows the matrices.
    pub bias: bool,
    /// A factor per expert `[X]` follows.
    pub scale: bool,
}

/// Parameters of an RMS norm.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NormSpec {
    /// Added to the mean square.
    pub eps: f32,
    /// Equal parts of the row, each normalised on its own (1 for a whole row).
    pub groups: u32,
}

/// Which elements form a rotary pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RopeStyle {
    /// Elements `2i` and `2i + 1`.
    Interleaved,
    /// Elements `i` and `i + n_rot/2`.
    Halves,
}

/// Parameters of YaRN (Peng et al., 2023).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Yarn {
    /// Context length of the original training.
    pub original_context: u32,
    /// Rotations above which a dimension is not interpolated.
    pub beta_fast: f32,
    /// Rotations below which a dimension is fully interpolated.
    pub beta_slow: f32,
}

/// Rotary position embedding (Su et al., 2021) over one part of each head.
///
/// For pair `i`: `t = p·base^(−2i/n_rot)/factor_i`, the angle is `freq_scale·t`, or YaRN's mix of both;
/// cosine and sine are multiplied by `magnitude`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RopeSpec {
    /// Heads in the row.
    pub heads: u32,
    /// Elements of one head.
    pub head_dim: u32,
    /// First rotated element of a head.
    pub start: u32,
    /// Rotated elements of a head; the others are copied.
    pub n_rot: u32,
    /// How elements are paired.
    pub style: RopeStyle,
    /// Base of the frequencies.
    pub base: f32,
    /// Multiplies every angle (1/scaling factor).
    pub freq_scale: f32,
    /// Length extrapolation, when the file asks for it.
    pub yarn: Option<Yarn>,
    /// Multiplies cosine and sine.
    pub magnitude: f32,
}

/// Parameters of [`Op::PositionScale`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PositionScale {
    /// Factor of the logarithm.
    pub s: f32,
    /// Added to the position.
    pub offset: u32,
    /// Positions per step of the floor.
    pub period: u32,
}

/// Parameters of attention. Query head `h` reads KV head `h / (heads / kv_heads)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AttnSpec {
    /// Query heads.
    pub heads: u32,
    /// Key/value heads.
    pub kv_heads: u32,
    /// Elements of a query and key head.
    pub key_dim: u32,
    /// Elements of a value head.
    pub value_dim: u32,
    /// Multiplies the scores.
    pub scale: f32,
    /// `c·tanh(score/c)` after the scale.
    pub softcap: Option<f32>,
    /// A weight with one sink logit per head joins the softmax without a value.
    pub sinks: bool,
}

/// How router logits become weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Gating {
    /// Softmax over all experts.
    Softmax,
    /// Sigmoid of each logit.
    Sigmoid,
    /// Selection by raw logits, softmax over the selected.
    SoftmaxSelected,
    /// Square root of softplus.
    SqrtSoftplus,
    /// Selection by raw logits, sigmoid of the selected.
    SigmoidSelected,
}

/// Parameters of expert routing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RouteSpec {
    /// Experts in the layer (X).
    pub experts: u32,
    /// Experts chosen per row (K); ties go to the lower index.
    pub used: u32,
    /// From logits to weights.
    pub gating: Gating,
    /// Divide the chosen weights by their sum, at least 2⁻¹⁴.
    pub normalise: bool,
    /// Multiplies the chosen weights.
    pub scale: f32,
    /// Groups of experts; 1 when routing is not limited by groups.
    pub groups: u32,
    /// Groups that stay in the choice, by the sum of their two best.
    pub groups_used: u32,
    /// A weight `[X]` is added for the selection only.
    pub bias: bool,
}

/// The activation on the gate of a gated product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GateAct {
    /// `x·σ(x)`.
    Silu,
    /// GELU, tanh form.
    Gelu,
    /// `max(x, 0)²`.
    ReluSquared,
    /// `σ(x)`.
    Sigmoid,
    /// gpt-oss: `g = min(gate, 7)`, `u = clamp(up, −7, 7)`, `g·σ(1.702·g)·(u + 1)`.
    OaiClamped,
}

/// An elementwise function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unary {
    /// `x·σ(x)`.
    Silu,
    /// GELU, tanh form.
    Gelu,
    /// `σ(x)`.
    Sigmoid,
    /// Hyperbolic tangent.
    Tanh,
    /// `ln(1 + eˣ)`, `x` itself above 20.
    Softplus,
    /// `eˣ`.
    Exp,
}

/// Which part of each group to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SliceSpec {
    /// Equal parts of the row.
    pub groups: u32,
    /// First element inside a part.
    pub start: u32,
    /// Elements kept of a part.
    pub len: u32,
}

/// Parameters of a depthwise causal convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConvSpec {
    /// Channels (width of the row).
    pub channels: u32,
    /// Taps of each channel's filter.
    pub taps: u32,
}

/// Which key head a value head reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HeadMap {
    /// `h mod k_heads`.
    Modulo,
    /// `h / (v_heads / k_heads)`.
    Divide,
}

/// Parameters of the gated delta rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeltaSpec {
    /// Key (and query) heads.
    pub k_heads: u32,
    /// Value heads.
    pub v_heads: u32,
    /// Elements of a key head.
    pub key_dim: u32,
    /// Elements of a value head.
    pub value_dim: u32,
    /// Pairing of value heads with key heads.
    pub map: HeadMap,
}

/// Several nodes that one kernel computes.
#[derive(Debug, Clone, PartialEq)]
pub struct Fused {
    /// Which kernel.
    pub kind: FusedKind,
    /// What it replaced, in order, over the value ids of the graph.
    pub body: Vec<Node>,
}

/// The kinds of fused kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FusedKind {
    /// Residual add, then RMS norm; both results are outputs.
    AddNorm,
    /// Two linears of one input, then a gated activation.
    GateUpAct,
    /// Norm per head, rotary embedding and cache write of a key, with its value.
    RopeKv,
}

impl Op {
    /// Short name for printing and profiles.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Input(_) => "input",
            Op::Embed => "embed",
            Op::Linear(_) => "linear",
            Op::LinearTransposed => "linear_t",
            Op::HeadLinear { .. } => "head_linear",
            Op::ExpertLinear(_) => "expert_linear",
            Op::RmsNorm(_) => "rms_norm",
            Op::L2Norm { .. } => "l2_norm",
            Op::Rope(_) => "rope",
            Op::PositionScale(_) => "position_scale",
            Op::KvWrite => "kv_write",
            Op::Attention(_) => "attention",
            Op::Route(_) => "route",
            Op::Combine => "combine",
            Op::Spread => "spread",
            Op::GatedAct(_) => "gated_act",
            Op::Unary(_) => "unary",
            Op::Add => "add",
            Op::Mul => "mul",
            Op::AddWeight => "add_weight",
            Op::MulWeight => "mul_weight",
            Op::Scale { .. } => "scale",
            Op::Softcap { .. } => "softcap",
            Op::Slice(_) => "slice",
            Op::Concat { .. } => "concat",
            Op::Conv1d(_) => "conv1d",
            Op::DeltaNet(_) => "delta_net",
            Op::GatherOut => "gather_out",
            Op::Softmax => "softmax",
            Op::Entropy => "entropy",
            Op::Sample => "sample",
            Op::Fused(f) => match f.kind {
                FusedKind::AddNorm => "fused.add_norm",
                FusedKind::GateUpAct => "fused.gate_up_act",
                FusedKind::RopeKv => "fused.rope_kv",
            },
        }
    }
}
