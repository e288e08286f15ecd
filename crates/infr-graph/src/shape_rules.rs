//! What each op needs of its inputs and weights, and the shapes it makes of them.
//!
//! The builder derives shapes with [`infer`]; the verifier derives them again and compares.

use infr_tensor::{DType, Dim, Shape, TensorDesc};

use crate::decl::StateKind;
use crate::op::{AttnSpec, BatchField, DeltaSpec, ExpertSpec, LinearSpec, Op, RopeSpec, RouteSpec};

/// What a node stands on.
#[derive(Debug, Clone)]
pub struct Operands<'a> {
    /// Descriptions of the inputs.
    pub inputs: Vec<&'a TensorDesc>,
    /// Descriptions of the weights.
    pub weights: Vec<&'a TensorDesc>,
    /// The node's state.
    pub state: Option<StateKind>,
}

type Rule = Result<Vec<TensorDesc>, String>;

/// The output descriptions of `op` over `operands`, or what does not fit.
pub fn infer(op: &Op, operands: &Operands<'_>) -> Rule {
    match op {
        Op::Input(field) => input(*field, operands),
        Op::Embed => embed(operands),
        Op::Linear(spec) => linear(*spec, operands),
        Op::LinearTransposed => linear_transposed(operands),
        Op::HeadLinear { heads } => head_linear(*heads, operands),
        Op::ExpertLinear(spec) => expert_linear(*spec, operands),
        Op::RmsNorm(spec) => norm(spec.groups, operands),
        Op::L2Norm { groups, .. } => norm(*groups, operands),
        Op::Rope(spec) => rope(spec, operands),
        Op::PositionScale(_) => same_as_first(operands, 2, 0),
        Op::KvWrite => kv_write(operands),
        Op::Attention(spec) => attention(spec, operands),
        Op::Route(spec) => route(spec, operands),
        Op::Combine => combine(operands),
        Op::Spread => spread(operands),
        Op::GatedAct(_) => gated(operands),
        Op::Unary(_) | Op::Scale { .. } | Op::Softcap { .. } | Op::Softmax => {
            same_as_first(operands, 1, 0)
        }
        Op::Entropy => {
            operands.count(1, 0)?;
            operands.like_first(1)
        }
        Op::Add | Op::Mul => broadcast(operands),
        Op::AddWeight | Op::MulWeight => repeated_weight(operands),
        Op::Slice(spec) => {
            let width = operands.width(0)?;
            let part = divide(width, spec.groups, "row", "groups")?;
            check(spec.start.checked_add(spec.len).is_some_and(|end| end <= part), || {
                format!("slice {}+{} of parts of {part}", spec.start, spec.len)
            })?;
            operands.like_first(spec.groups * spec.len)
        }
        Op::Concat { groups } => {
            let (a, b) = (operands.width(0)?, operands.width(1)?);
            divide(a, *groups, "first row", "groups")?;
            divide(b, *groups, "second row", "groups")?;
            operands.like_first(a + b)
        }
        Op::Conv1d(spec) => {
            operands.count(1, 1)?;
            operands.expect_width(0, spec.channels)?;
            operands.expect_weight(0, &[spec.channels, spec.taps])?;
            operands.expect_slot((spec.taps - 1) * spec.channels)?;
            operands.like_first(spec.channels)
        }
        Op::DeltaNet(spec) => delta_net(spec, operands),
        Op::GatherOut => {
            operands.count(1, 0)?;
            Ok(vec![TensorDesc { dtype: DType::F32, shape: Shape::out_rows(operands.width(0)?) }])
        }
        Op::Sample => {
            operands.count(1, 0)?;
            Ok(vec![TensorDesc { dtype: DType::I32, shape: Shape::out_rows(1) }])
        }
        // The verifier checks a fused node through its body.
        Op::Fused(_) => Ok(Vec::new()),
    }
}

impl Operands<'_> {
    fn count(&self, inputs: usize, weights: usize) -> Result<(), String> {
        check(self.inputs.len() == inputs && self.weights.len() == weights, || {
            format!(
                "wants {inputs} inputs and {weights} weights, has {} and {}",
                self.inputs.len(),
                self.weights.len()
            )
        })
    }

    fn width(&self, input: usize) -> Result<u32, String> {
        let desc = self.inputs.get(input).ok_or_else(|| format!("input {input} is missing"))?;
        desc.shape.width().ok_or_else(|| format!("input {input} has no fixed width"))
    }

    fn expect_width(&self, input: usize, width: u32) -> Result<(), String> {
        let found = self.width(input)?;
        check(found == width, || format!("input {input} has width {found}, wants {width}"))
    }

    fn weight_dims(&self, index: usize) -> Result<Vec<u32>, String> {
        let desc = self.weights.get(index).ok_or_else(|| format!("weight {index} is missing"))?;
        desc.shape
            .0
            .iter()
            .map(|d| match d {
                Dim::Fixed(n) => Ok(*n),
                Dim::Rows | Dim::OutRows => Err(format!("weight {index} has a symbolic size")),
            })
            .collect()
    }

    fn expect_weight(&self, index: usize, dims: &[u32]) -> Result<(), String> {
        let found = self.weight_dims(index)?;
        check(found == dims, || format!("weight {index} has shape {found:?}, wants {dims:?}"))
    }

    fn expect_slot(&self, width: u32) -> Result<(), String> {
        match self.state {
            Some(StateKind::Slot { width: found }) if found == width => Ok(()),
            other => Err(format!("wants a slot of {width} elements, has {other:?}")),
        }
    }

    fn like_first(&self, width: u32) -> Rule {
        let first = self.inputs.first().ok_or("has no input")?;
        let mut shape = first.shape.clone();
        match shape.0.last_mut() {
            Some(last) => *last = Dim::Fixed(width),
            None => return Err("first input is a scalar".into()),
        }
        Ok(vec![TensorDesc { dtype: DType::F32, shape }])
    }
}

fn check(ok: bool, message: impl FnOnce() -> String) -> Result<(), String> {
    if ok { Ok(()) } else { Err(message()) }
}

fn divide(whole: u32, part: u32, what: &str, by: &str) -> Result<u32, String> {
    check(part != 0 && whole.is_multiple_of(part), || {
        format!("{what} of {whole} does not divide into {part} {by}")
    })?;
    Ok(whole / part)
}

fn same_as_first(o: &Operands<'_>, inputs: usize, weights: usize) -> Rule {
    o.count(inputs, weights)?;
    o.like_first(o.width(0)?)
}

fn input(field: BatchField, o: &Operands<'_>) -> Rule {
    o.count(0, 0)?;
    Ok(vec![match field {
        BatchField::Tokens | BatchField::Positions => {
            TensorDesc { dtype: DType::I32, shape: Shape::rows(1) }
        }
        BatchField::Carried { width, .. } => {
            TensorDesc { dtype: DType::F32, shape: Shape::rows(width) }
        }
    }])
}

fn embed(o: &Operands<'_>) -> Rule {
    o.count(1, 1)?;
    match o.weight_dims(0)?[..] {
        [_, width] => o.like_first(width),
        ref dims => Err(format!("embedding table has shape {dims:?}")),
    }
}

fn linear(spec: LinearSpec, o: &Operands<'_>) -> Rule {
    o.count(1, 1 + usize::from(spec.bias) + usize::from(spec.scale))?;
    let (out, inner) = matrix(o)?;
    o.expect_width(0, inner)?;
    if spec.bias {
        o.expect_weight(1, &[out])?;
    }
    if spec.scale {
        o.expect_weight(1 + usize::from(spec.bias), &[1])?;
    }
    o.like_first(out)
}

fn matrix(o: &Operands<'_>) -> Result<(u32, u32), String> {
    match o.weight_dims(0)?[..] {
        [out, inner] => Ok((out, inner)),
        ref dims => Err(format!("matrix has shape {dims:?}")),
    }
}

fn linear_transposed(o: &Operands<'_>) -> Rule {
    o.count(1, 1)?;
    let (out, inner) = matrix(o)?;
    o.expect_width(0, out)?;
    o.like_first(inner)
}

fn head_linear(heads: u32, o: &Operands<'_>) -> Rule {
    o.count(1, 1)?;
    match o.weight_dims(0)?[..] {
        [h, out, inner] if h == heads => {
            o.expect_width(0, heads * inner)?;
            o.like_first(heads * out)
        }
        ref dims => Err(format!("matrices of {heads} heads have shape {dims:?}")),
    }
}

fn expert_linear(spec: ExpertSpec, o: &Operands<'_>) -> Rule {
    o.count(2, 1 + usize::from(spec.bias) + usize::from(spec.scale))?;
    o.expect_width(1, spec.used)?;
    let dims = o.weight_dims(0)?;
    let [experts, out, inner] = dims[..] else {
        return Err(format!("expert bank has shape {dims:?}"));
    };
    let width = o.width(0)?;
    check(width == inner || width == spec.used * inner, || {
        format!("input has width {width}, wants {inner} or {}", spec.used * inner)
    })?;
    if spec.bias {
        o.expect_weight(1, &[experts, out])?;
    }
    if spec.scale {
        o.expect_weight(1 + usize::from(spec.bias), &[experts])?;
    }
    o.like_first(spec.used * out)
}

fn norm(groups: u32, o: &Operands<'_>) -> Rule {
    let width = o.width(0)?;
    let part = divide(width, groups, "row", "groups")?;
    if !o.weights.is_empty() {
        o.expect_weight(0, &[part])?;
    }
    o.count(1, o.weights.len().min(1))?;
    o.like_first(width)
}

fn rope(spec: &RopeSpec, o: &Operands<'_>) -> Rule {
    o.count(2, o.weights.len().min(1))?;
    o.expect_width(0, spec.heads * spec.head_dim)?;
    check(spec.n_rot.is_multiple_of(2) && spec.start + spec.n_rot <= spec.head_dim, || {
        format!("rotates {}+{} of a head of {}", spec.start, spec.n_rot, spec.head_dim)
    })?;
    if !o.weights.is_empty() {
        o.expect_weight(0, &[spec.n_rot / 2])?;
    }
    o.like_first(spec.heads * spec.head_dim)
}

fn paged(o: &Operands<'_>) -> Result<(u32, u32), String> {
    match o.state {
        Some(StateKind::Paged { key_width, value_width, .. }) => Ok((key_width, value_width)),
        other => Err(format!("wants a paged state, has {other:?}")),
    }
}

fn kv_write(o: &Operands<'_>) -> Rule {
    let (key, value) = paged(o)?;
    o.count(if value == 0 { 1 } else { 2 }, 0)?;
    o.expect_width(0, key)?;
    if value != 0 {
        o.expect_width(1, value)?;
    }
    Ok(Vec::new())
}

fn attention(spec: &AttnSpec, o: &Operands<'_>) -> Rule {
    let (key, value) = paged(o)?;
    o.count(1, usize::from(spec.sinks))?;
    divide(spec.heads, spec.kv_heads, "query heads", "KV heads")?;
    o.expect_width(0, spec.heads * spec.key_dim)?;
    check(key == spec.kv_heads * spec.key_dim, || {
        format!("cache keys have width {key}, heads want {}", spec.kv_heads * spec.key_dim)
    })?;
    let aliased = value == 0 && spec.kv_heads == 1 && spec.value_dim <= spec.key_dim;
    check(aliased || value == spec.kv_heads * spec.value_dim, || {
        format!("cache values have width {value}, heads want {}", spec.kv_heads * spec.value_dim)
    })?;
    if spec.sinks {
        o.expect_weight(0, &[spec.heads])?;
    }
    o.like_first(spec.heads * spec.value_dim)
}

fn route(spec: &RouteSpec, o: &Operands<'_>) -> Rule {
    o.count(1, usize::from(spec.bias))?;
    o.expect_width(0, spec.experts)?;
    check(spec.used >= 1 && spec.used <= spec.experts, || {
        format!("chooses {} of {} experts", spec.used, spec.experts)
    })?;
    divide(spec.experts, spec.groups, "experts", "groups")?;
    if spec.bias {
        o.expect_weight(0, &[spec.experts])?;
    }
    let weights = o.like_first(spec.used)?;
    let ids = TensorDesc { dtype: DType::I32, shape: weights[0].shape.clone() };
    Ok([vec![ids], weights].concat())
}

fn combine(o: &Operands<'_>) -> Rule {
    o.count(2, 0)?;
    let width = divide(o.width(0)?, o.width(1)?, "row", "experts")?;
    o.like_first(width)
}

fn spread(o: &Operands<'_>) -> Rule {
    o.count(2, 0)?;
    o.like_first(o.width(0)? * o.width(1)?)
}

fn gated(o: &Operands<'_>) -> Rule {
    o.count(2, 0)?;
    o.expect_width(1, o.width(0)?)?;
    o.like_first(o.width(0)?)
}

fn broadcast(o: &Operands<'_>) -> Rule {
    o.count(2, 0)?;
    let (a, b) = (o.width(0)?, o.width(1)?);
    divide(a, b, "row", "broadcast parts")?;
    o.like_first(a)
}

fn repeated_weight(o: &Operands<'_>) -> Rule {
    o.count(1, 1)?;
    match o.weight_dims(0)?[..] {
        [n] => {
            divide(o.width(0)?, n, "row", "weight elements")?;
            o.like_first(o.width(0)?)
        }
        ref dims => Err(format!("vector weight has shape {dims:?}")),
    }
}

fn delta_net(spec: &DeltaSpec, o: &Operands<'_>) -> Rule {
    o.count(5, 0)?;
    o.expect_width(0, spec.k_heads * spec.key_dim)?;
    o.expect_width(1, spec.k_heads * spec.key_dim)?;
    o.expect_width(2, spec.v_heads * spec.value_dim)?;
    o.expect_width(3, spec.v_heads)?;
    o.expect_width(4, spec.v_heads)?;
    divide(spec.v_heads, spec.k_heads, "value heads", "key heads")?;
    o.expect_slot(spec.v_heads * spec.key_dim * spec.value_dim)?;
    o.like_first(spec.v_heads * spec.value_dim)
}
