//! A graph builder that takes weights from a table of tensors by their GGUF names.
//!
//! Names inside a layer get the prefix `blk.N.`. A weight that is asked for twice (a tied embedding,
//! a layer that two graphs share) is declared once.

use std::collections::HashMap;

use infr_backend::GroupRanges;
use infr_gguf::TensorType;
use infr_graph::build::LinearWeights;
use infr_graph::{
    Builder, Phase, Program, StateId, StateKind, ValueId, WeightDecl, WeightFrom, WeightId,
    WeightRole,
};
use infr_tensor::{DType, Shape, TensorDesc};

use crate::error::ModelError;
use crate::options::BuildOptions;
use crate::table::{Need, TableEntry, TensorTable};

/// Builds the graphs of one model.
pub(crate) struct Net<'a> {
    /// The graph under construction.
    pub b: Builder,
    /// Epsilon of all norms.
    pub eps: f32,
    tensors: &'a dyn TensorTable,
    options: &'a BuildOptions,
    declared: HashMap<String, WeightId>,
    layer: Option<u32>,
    tokens: Option<ValueId>,
    positions: Option<ValueId>,
}

impl<'a> Net<'a> {
    /// An empty program over `tensors`.
    pub(crate) fn new(
        tensors: &'a dyn TensorTable,
        options: &'a BuildOptions,
        eps: f32,
    ) -> Result<Net<'a>, ModelError> {
        if options.cache_k != options.cache_v {
            let what =
                format!("a cache of {} keys and {} values", options.cache_k, options.cache_v);
            return Err(ModelError::Unsupported { what });
        }
        Ok(Net {
            b: Builder::new(),
            eps,
            tensors,
            options,
            declared: HashMap::new(),
            layer: None,
            tokens: None,
            positions: None,
        })
    }

    /// The choices made for this program.
    pub(crate) fn options(&self) -> &BuildOptions {
        self.options
    }

    /// Goes on with a layer: its names get a prefix from here on.
    pub(crate) fn enter(&mut self, layer: u32) {
        self.layer = Some(layer);
        // Block counts are at most 512.
        self.b.set_layer(Some(layer as u16));
    }

    /// Leaves the layers: names stand for themselves.
    pub(crate) fn leave(&mut self) {
        self.layer = None;
        self.b.set_layer(None);
    }

    /// The batch's tokens.
    pub(crate) fn tokens(&mut self) -> ValueId {
        *self.tokens.get_or_insert_with(|| self.b.tokens())
    }

    /// The batch's positions.
    pub(crate) fn positions(&mut self) -> ValueId {
        *self.positions.get_or_insert_with(|| self.b.positions())
    }

    /// Declares a state of the current layer.
    pub(crate) fn state(&mut self, kind: StateKind) -> StateId {
        self.b.state(self.layer.unwrap_or(0) as u16, kind)
    }

    /// Closes the current graph.
    pub(crate) fn end_graph(&mut self, phase: Phase) {
        self.leave();
        self.tokens = None;
        self.positions = None;
        self.b.end_graph(phase);
    }

    /// The finished program.
    pub(crate) fn finish(self) -> Result<Program, ModelError> {
        let program = self.b.finish()?;
        let groups = program.cache_groups().len();
        if groups > GroupRanges::MAX {
            let what = format!("{groups} kinds of caches, more than {}", GroupRanges::MAX);
            return Err(ModelError::Unsupported { what });
        }
        Ok(program)
    }

    fn full_name(&self, name: &str) -> String {
        match self.layer {
            Some(layer) => format!("blk.{layer}.{name}"),
            None => name.to_owned(),
        }
    }

    /// Whether the file has the tensor, which the model wants with extents `dims` (GGUF order).
    pub(crate) fn has(&self, name: &str, dims: &[u32]) -> bool {
        self.tensors.find(&self.full_name(name), &wide(dims), Need::Optional).is_some()
    }

    fn find(&self, name: &str, dims: &[u32], need: Need) -> Result<Option<TableEntry>, ModelError> {
        let dims = wide(dims);
        let Some(entry) = self.tensors.find(name, &dims, need) else {
            return match need {
                Need::Optional => Ok(None),
                Need::Required => Err(ModelError::MissingTensor {
                    name: name.to_owned(),
                    wanted: format!("{dims:?}"),
                }),
            };
        };
        // Writers drop extents of 1 at the end, or add them.
        let trim = |d: &[u64]| {
            let keep = d.iter().rposition(|&n| n != 1).map_or(1, |at| at + 1);
            d[..keep.min(d.len())].to_vec()
        };
        if trim(&entry.dims) == trim(&dims) {
            return Ok(Some(entry));
        }
        Err(ModelError::TensorShape {
            name: name.to_owned(),
            wanted: format!("{dims:?}"),
            found: format!("{:?}", entry.dims),
        })
    }

    fn declare(&mut self, name: &str, desc: TensorDesc, role: WeightRole) -> WeightId {
        let id = self.b.weight(WeightDecl {
            name: name.to_owned(),
            desc,
            source: WeightFrom::Tensor(name.to_owned()),
            role,
            layer: self.layer.map(|l| l as u16),
        });
        self.declared.insert(name.to_owned(), id);
        id
    }

    /// A vector of `len` elements, as `F32` whatever the file's type.
    pub(crate) fn vector(&mut self, name: &str, len: u32) -> Result<WeightId, ModelError> {
        self.floats(name, &[len], &[len], Need::Required)?.ok_or_else(|| self.absent(name, &[len]))
    }

    /// A vector that may be absent.
    pub(crate) fn vector_opt(
        &mut self,
        name: &str,
        len: u32,
    ) -> Result<Option<WeightId>, ModelError> {
        self.floats(name, &[len], &[len], Need::Optional)
    }

    /// A small tensor as `F32`, whose extents in the file are `dims` and whose shape in the program
    /// is `shape` (slowest first).
    pub(crate) fn floats(
        &mut self,
        name: &str,
        dims: &[u32],
        shape: &[u32],
        need: Need,
    ) -> Result<Option<WeightId>, ModelError> {
        let name = self.full_name(name);
        if let Some(&id) = self.declared.get(&name) {
            return Ok(Some(id));
        }
        if self.find(&name, dims, need)?.is_none() {
            return Ok(None);
        }
        let desc = TensorDesc { dtype: DType::F32, shape: Shape::fixed(shape) };
        Ok(Some(self.declare(&name, desc, WeightRole::Dense)))
    }

    /// A matrix from `inner` to `outer` elements: `name.weight` with its companions.
    pub(crate) fn matrix(
        &mut self,
        name: &str,
        inner: u32,
        outer: u32,
    ) -> Result<LinearWeights, ModelError> {
        self.matrix_opt(name, inner, outer, Need::Required)?
            .ok_or_else(|| self.absent(name, &[inner, outer]))
    }

    /// A matrix that may be absent.
    pub(crate) fn matrix_opt(
        &mut self,
        name: &str,
        inner: u32,
        outer: u32,
        need: Need,
    ) -> Result<Option<LinearWeights>, ModelError> {
        let Some(id) = self.weights(name, &[inner, outer], WeightRole::Dense, need)? else {
            return Ok(None);
        };
        let bias = self.vector_opt(&format!("{name}.bias"), outer)?;
        let scale = match self.i2s_scale(name) {
            Some(scale) => Some(scale),
            None => self.vector_opt(&format!("{name}.scale"), 1)?,
        };
        Ok(Some(LinearWeights { matrix: id, bias, scale }))
    }

    /// A bank of `experts` matrices from `inner` to `outer` elements, with its companions.
    pub(crate) fn bank(
        &mut self,
        name: &str,
        inner: u32,
        outer: u32,
        experts: u32,
    ) -> Result<LinearWeights, ModelError> {
        let dims = [inner, outer, experts];
        let role = WeightRole::Experts { count: experts };
        let id = self
            .weights(name, &dims, role, Need::Required)?
            .ok_or_else(|| self.absent(name, &dims))?;
        let (bias, scale) = (format!("{name}.bias"), format!("{name}.scale"));
        let shape = [experts, outer];
        Ok(LinearWeights {
            matrix: id,
            bias: self.floats(&bias, &[outer, experts], &shape, Need::Optional)?,
            scale: self.vector_opt(&scale, experts)?,
        })
    }

    /// `name.weight` in the file's type; `dims` in GGUF order.
    pub(crate) fn weights(
        &mut self,
        name: &str,
        dims: &[u32],
        role: WeightRole,
        need: Need,
    ) -> Result<Option<WeightId>, ModelError> {
        let name = format!("{}.weight", self.full_name(name));
        if let Some(&id) = self.declared.get(&name) {
            return Ok(Some(id));
        }
        let Some(entry) = self.find(&name, dims, need)? else { return Ok(None) };
        let dtype = match entry.dtype {
            TensorType::Known(DType::F64 | DType::I8 | DType::I16 | DType::I32 | DType::I64) => {
                DType::F32
            }
            TensorType::Known(dtype) => dtype,
            TensorType::I2S => crate::weights::i2s_dtype(dims),
        };
        // GGUF lists the fastest dimension first.
        let shape: Vec<u32> = dims.iter().rev().copied().collect();
        let id = self.declare(&name, TensorDesc { dtype, shape: Shape::fixed(&shape) }, role);
        if let Some(scale) = entry.i2s_scale {
            self.constant(&format!("{name}#scale"), vec![scale]);
        }
        Ok(Some(id))
    }

    /// A table `name.weight` of `rows` rows of `width` elements, in the file's type.
    pub(crate) fn table(
        &mut self,
        name: &str,
        width: u32,
        rows: u32,
    ) -> Result<WeightId, ModelError> {
        let dims = [width, rows];
        self.weights(name, &dims, WeightRole::Dense, Need::Required)?
            .ok_or_else(|| self.absent(name, &dims))
    }

    /// A depthwise filter, `[taps, channels]` in the file, as `F32`.
    pub(crate) fn filter(
        &mut self,
        name: &str,
        taps: u32,
        channels: u32,
    ) -> Result<WeightId, ModelError> {
        let dims = [taps, channels];
        self.floats(name, &dims, &[channels, taps], Need::Required)?
            .ok_or_else(|| self.absent(name, &dims))
    }

    fn i2s_scale(&self, name: &str) -> Option<WeightId> {
        self.declared.get(&format!("{}.weight#scale", self.full_name(name))).copied()
    }

    /// A vector that the model computes; `name` stands for itself.
    fn constant(&mut self, name: &str, values: Vec<f32>) -> WeightId {
        let shape = Shape::fixed(&[values.len() as u32]);
        let id = self.b.weight(WeightDecl {
            name: name.to_owned(),
            desc: TensorDesc { dtype: DType::F32, shape },
            source: WeightFrom::Const(values),
            role: WeightRole::Dense,
            layer: self.layer.map(|l| l as u16),
        });
        self.declared.insert(name.to_owned(), id);
        id
    }

    fn absent(&self, name: &str, dims: &[u32]) -> ModelError {
        ModelError::MissingTensor { name: self.full_name(name), wanted: format!("{dims:?}") }
    }

    /// `y = W·x + b` of a matrix by name.
    pub(crate) fn linear(
        &mut self,
        x: ValueId,
        name: &str,
        outer: u32,
    ) -> Result<ValueId, ModelError> {
        let inner = self.b.width(x);
        let w = self.matrix(name, inner, outer)?;
        Ok(self.b.linear(x, w))
    }
}

fn wide(dims: &[u32]) -> Vec<u64> {
    dims.iter().map(|&d| u64::from(d)).collect()
}
