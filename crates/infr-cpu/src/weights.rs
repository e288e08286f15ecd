//! A program's weights as the executor holds them.

use infr_backend::{BackendError, WeightBytes, WeightSource};
use infr_graph::{Op, Program, WeightDecl, WeightFrom};
use infr_tensor::{DType, Dim, quant};

use crate::fast::WeightView;
use crate::plan::Plan;

/// One weight: its blocks as in the file, or its values when ops read it as a plain vector.
#[derive(Debug)]
pub(crate) struct Weight {
    pub(crate) dtype: DType,
    /// Sizes, slowest first.
    pub(crate) dims: Vec<usize>,
    bytes: WeightBytes,
    /// All values, for weights that are small and read whole (norms, biases, filters).
    values: Vec<f32>,
}

impl Weight {
    /// Elements of one row (the fastest dimension).
    pub(crate) fn row_len(&self) -> usize {
        self.dims.last().copied().unwrap_or(1)
    }

    /// Rows, all slower dimensions flattened.
    pub(crate) fn n_rows(&self) -> usize {
        self.dims.iter().rev().skip(1).product()
    }

    /// Expands one row of a matrix.
    pub(crate) fn decode_row(&self, row: usize, out: &mut [f32]) {
        let len = self.bytes.len() / self.n_rows();
        let known = quant::decode_row(self.dtype, &self.bytes[row * len..][..len], out);
        assert!(known, "{} was checked when the program was opened", self.dtype);
    }

    /// The blocks as kernels take them.
    pub(crate) fn view(&self) -> WeightView<'_> {
        WeightView {
            dtype: self.dtype,
            bytes: &self.bytes,
            outer: self.n_rows(),
            inner: self.row_len(),
        }
    }

    /// The blocks as in the file.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// All values of a vector weight.
    pub(crate) fn values(&self) -> &[f32] {
        &self.values
    }

    /// Bytes held.
    pub(crate) fn size(&self) -> u64 {
        self.bytes.len() as u64 + 4 * self.values.len() as u64
    }

    /// Lets go of the blocks, after another form of them was made.
    pub(crate) fn drop_bytes(&mut self) {
        self.bytes = WeightBytes::owned(Vec::new());
    }
}

/// How the graphs of a program read a weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Uses {
    /// By matrix products.
    pub(crate) product: bool,
    /// Row by row, by number (embeddings, transposed products).
    pub(crate) rows: bool,
    /// Whole, as a vector.
    pub(crate) vector: bool,
}

/// How each weight is read by the plans' nodes.
pub(crate) fn uses(plans: &[Plan], n_weights: usize) -> Vec<Uses> {
    let mut uses = vec![Uses::default(); n_weights];
    for node in plans.iter().flat_map(|p| &p.nodes) {
        for (place, weight) in node.weights.iter().enumerate() {
            let entry = &mut uses[weight.index()];
            match (place, &node.op) {
                (0, Op::Linear(_) | Op::HeadLinear { .. } | Op::ExpertLinear(_)) => {
                    entry.product = true;
                }
                (0, Op::Embed | Op::LinearTransposed) => entry.rows = true,
                _ => entry.vector = true,
            }
        }
    }
    uses
}

/// Loads all weights of a program.
pub(crate) fn load_all(
    program: &Program,
    source: &dyn WeightSource,
    uses: &[Uses],
) -> Result<Vec<Weight>, BackendError> {
    program.weights.iter().zip(uses).map(|(decl, uses)| load(decl, source, *uses)).collect()
}

fn load(decl: &WeightDecl, source: &dyn WeightSource, uses: Uses) -> Result<Weight, BackendError> {
    let fail = |what: String| BackendError::Weight { name: decl.name.clone(), what };
    let dtype = decl.desc.dtype;
    let mut dims = Vec::new();
    for dim in &decl.desc.shape.0 {
        match dim {
            Dim::Fixed(n) => dims.push(*n as usize),
            Dim::Rows | Dim::OutRows => return Err(fail("has a symbolic size".into())),
        }
    }
    let row_len = dims.last().copied().unwrap_or(1);
    let elements = decl.desc.shape.elements().ok_or_else(|| fail("is too large".into()))?;
    let wanted = dtype.bytes_for(elements).filter(|_| row_len.is_multiple_of(dtype.block_len()));
    let wanted =
        wanted.ok_or_else(|| fail(format!("rows of {row_len} are no whole {dtype} blocks")))?;
    if quant::codec(dtype).is_none() {
        return Err(BackendError::Unsupported(format!("{} of type {dtype}", decl.name)));
    }
    let mut bytes = match &decl.source {
        WeightFrom::Const(values) => WeightBytes::owned(bytemuck::cast_slice(values).to_vec()),
        WeightFrom::Tensor(_) | WeightFrom::Concat(_) => source.load(decl)?,
    };
    if bytes.len() as u64 != wanted {
        return Err(fail(format!("has {} bytes, wants {wanted}", bytes.len())));
    }
    let mut values = Vec::new();
    if uses.vector {
        values.resize(elements as usize, 0.0);
        let known = quant::decode_row(dtype, &bytes, &mut values);
        assert!(known, "the codec was found above");
        if !uses.product && !uses.rows {
            bytes = WeightBytes::owned(Vec::new());
        }
    }
    Ok(Weight { dtype, dims, bytes, values })
}
