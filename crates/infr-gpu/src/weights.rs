//! A program's weights on the device.

use infr_backend::{BackendError, WeightBytes, WeightSource};
use infr_graph::{Node, Op, Program, WeightDecl, WeightFrom};
use infr_kernels::{KernelFamily, Selector, Tier, Variant};
use infr_tensor::{DType, Dim, quant};

use crate::api::{Api, MemoryKind};
use crate::places::WeightPlace;

/// The address that stands for a weight while a program is lowered before anything is loaded.
const UNPLACED: u64 = 256;

/// How the graphs read a weight.
#[derive(Debug, Clone, Copy, Default)]
struct Uses {
    product: bool,
    rows: bool,
    vector: bool,
}

/// The weights of an open program.
#[derive(Debug)]
pub(crate) struct Weights<B> {
    pub(crate) places: Vec<WeightPlace>,
    pub(crate) buffers: Vec<B>,
    pub(crate) bytes: u64,
}

fn mark(node: &Node, uses: &mut [Uses]) {
    if let Op::Fused(fused) = &node.op {
        return fused.body.iter().for_each(|inner| mark(inner, uses));
    }
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

/// The forms that each weight is needed in, at a made-up address. A type without kernels becomes `F32`.
///
/// # Errors
/// When a type has neither kernels nor a decoder.
pub(crate) fn forms(
    program: &Program,
    selector: &Selector,
) -> Result<Vec<WeightPlace>, BackendError> {
    let mut uses = vec![Uses::default(); program.weights.len()];
    for node in program.graphs.iter().flat_map(|(_, g)| &g.nodes) {
        mark(node, &mut uses);
    }
    let has_embed = |quant: DType| {
        let variant =
            Variant { family: KernelFamily::Embed, tier: Tier::Scalar, quant: Some(quant) };
        selector.table.find(variant).is_some()
    };
    let form = |(decl, uses): (&WeightDecl, &Uses)| {
        let dtype = decl.desc.dtype;
        let as_stored =
            (!uses.product || selector.has_linear(dtype)) && (!uses.rows || has_embed(dtype));
        let decodes = uses.vector || ((uses.product || uses.rows) && !as_stored);
        if decodes && quant::codec(dtype).is_none() {
            return Err(BackendError::Unsupported(format!("{} of type {dtype}", decl.name)));
        }
        let dtype = if as_stored { dtype } else { DType::F32 };
        Ok(WeightPlace {
            matrix: (uses.product || uses.rows).then_some((UNPLACED, dtype)),
            vector: uses.vector.then_some(UNPLACED),
        })
    };
    program.weights.iter().zip(&uses).map(form).collect()
}

/// Loads all weights in their forms.
///
/// # Errors
/// When a weight cannot be had or memory does not suffice.
pub(crate) fn load<A: Api>(
    api: &mut A,
    program: &Program,
    source: &dyn WeightSource,
    forms: &[WeightPlace],
) -> Result<Weights<A::Buffer>, BackendError> {
    let mut out = Weights { places: Vec::new(), buffers: Vec::new(), bytes: 0 };
    for (decl, form) in program.weights.iter().zip(forms) {
        let bytes = checked_bytes(decl, source)?;
        let mut place = WeightPlace::default();
        if let Some((_, dtype)) = form.matrix {
            let address = match dtype == decl.desc.dtype {
                true => out.store(api, decl, Stored::Blocks(&bytes))?,
                false => out.store(api, decl, Stored::Values(&bytes))?,
            };
            place.matrix = Some((address, dtype));
        }
        if form.vector.is_some() {
            place.vector = Some(match place.matrix {
                Some((address, DType::F32)) => address,
                _ => out.store(api, decl, Stored::Values(&bytes))?,
            });
        }
        out.places.push(place);
    }
    Ok(out)
}

fn checked_bytes(
    decl: &WeightDecl,
    source: &dyn WeightSource,
) -> Result<WeightBytes, BackendError> {
    let fail = |what: String| BackendError::Weight { name: decl.name.clone(), what };
    let dtype = decl.desc.dtype;
    let row_len = match decl.desc.shape.0.last() {
        Some(Dim::Fixed(n)) => *n as usize,
        Some(Dim::Rows | Dim::OutRows) => return Err(fail("has a symbolic size".into())),
        None => 1,
    };
    let elements = decl.desc.shape.elements().ok_or_else(|| fail("is too large".into()))?;
    let wanted = dtype.bytes_for(elements).filter(|_| row_len.is_multiple_of(dtype.block_len()));
    let wanted =
        wanted.ok_or_else(|| fail(format!("rows of {row_len} are no whole {dtype} blocks")))?;
    let bytes = match &decl.source {
        WeightFrom::Const(values) => WeightBytes::owned(bytemuck::cast_slice(values).to_vec()),
        WeightFrom::Tensor(_) | WeightFrom::Concat(_) => source.load(decl)?,
    };
    if bytes.len() as u64 != wanted {
        return Err(fail(format!("has {} bytes, wants {wanted}", bytes.len())));
    }
    Ok(bytes)
}

/// What is stored of a weight.
enum Stored<'a> {
    /// Its blocks.
    Blocks(&'a [u8]),
    /// The values of its blocks.
    Values(&'a [u8]),
}

impl<B: Clone> Weights<B> {
    /// Uploads one form and gives its address.
    fn store<A: Api<Buffer = B>>(
        &mut self,
        api: &mut A,
        decl: &WeightDecl,
        what: Stored<'_>,
    ) -> Result<u64, BackendError> {
        let dtype = decl.desc.dtype;
        let size = match what {
            Stored::Blocks(bytes) => bytes.len(),
            Stored::Values(bytes) => bytes.len() / dtype.block_bytes() * dtype.block_len() * 4,
        };
        let buffer = api.allocate(&decl.name, MemoryKind::Device, size.max(4) as u64)?;
        self.buffers.push(buffer.clone());
        self.bytes += size as u64;
        match what {
            Stored::Blocks(bytes) => api.upload(&buffer, 0, bytes)?,
            Stored::Values(bytes) => {
                // In pieces, so that a large table is never held twice.
                const PIECE: usize = 1 << 20;
                let mut values = Vec::new();
                let mut offset = 0;
                let blocks = (PIECE / dtype.block_len()).max(1);
                for piece in bytes.chunks(blocks * dtype.block_bytes()) {
                    values.resize(piece.len() / dtype.block_bytes() * dtype.block_len(), 0.0f32);
                    let known = quant::decode_row(dtype, piece, &mut values);
                    debug_assert!(known, "the codec was found when the form was chosen");
                    api.upload(&buffer, offset, bytemuck::cast_slice(&values))?;
                    offset += 4 * values.len() as u64;
                }
            }
        }
        Ok(api.address(&buffer))
    }
}

/// The values of a vector weight, on the host.
///
/// # Errors
/// When the weight cannot be had or has no decoder.
pub(crate) fn vector_values(
    decl: &WeightDecl,
    source: &dyn WeightSource,
) -> Result<Vec<f32>, BackendError> {
    let bytes = checked_bytes(decl, source)?;
    let mut values = vec![0.0; decl.desc.shape.elements().unwrap_or(0) as usize];
    if quant::decode_row(decl.desc.dtype, &bytes, &mut values) {
        return Ok(values);
    }
    Err(BackendError::Unsupported(format!("{} of type {}", decl.name, decl.desc.dtype)))
}
