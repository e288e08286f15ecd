//! What outlives a step: page pools, recurrent slots and the last sampled tokens.

use half::f16;
use half::slice::HalfFloatSliceExt;
use infr_backend::{BackendError, PageTable, Placement, Slot, StateOp};
use infr_graph::{Program, StateId, StateKind};
use infr_tensor::{DType, quant};

use crate::fast::KvData;

/// The rows of keys or values of one layer: `[page][token][width]`.
#[derive(Debug)]
pub(crate) enum Pool {
    /// As computed.
    F32(Vec<f32>),
    /// Rounded to half precision.
    F16(Vec<f16>),
    /// Any other type that has an encoder.
    Coded {
        /// Element or block type.
        dtype: DType,
        /// Blocks.
        bytes: Vec<u8>,
    },
}

impl Pool {
    fn new(dtype: DType, n_rows: usize, width: usize) -> Result<Pool, BackendError> {
        let elements = n_rows * width;
        Ok(match dtype {
            DType::F32 => Pool::F32(zeroed(elements, "cache pages")?),
            DType::F16 => Pool::F16(zeroed(elements, "cache pages")?),
            _ => {
                let fits = width.is_multiple_of(dtype.block_len()) && quant::can_encode(dtype);
                let bytes = dtype.bytes_for(elements as u64).filter(|_| fits);
                let bytes = bytes.ok_or_else(|| {
                    BackendError::Unsupported(format!("a cache of type {dtype}, {width} wide"))
                })?;
                Pool::Coded { dtype, bytes: zeroed(bytes as usize, "cache pages")? }
            }
        })
    }

    fn write(&mut self, row: usize, values: &[f32]) {
        let width = values.len();
        match self {
            Pool::F32(data) => data[row * width..][..width].copy_from_slice(values),
            Pool::F16(data) => data[row * width..][..width].convert_from_f32_slice(values),
            Pool::Coded { dtype, bytes } => {
                let len = width / dtype.block_len() * dtype.block_bytes();
                let known = quant::encode_row(*dtype, values, &mut bytes[row * len..][..len]);
                assert!(known, "the encoder was checked when the pool was made");
            }
        }
    }

    /// Expands one row.
    pub(crate) fn read(&self, row: usize, out: &mut [f32]) {
        let width = out.len();
        match self {
            Pool::F32(data) => out.copy_from_slice(&data[row * width..][..width]),
            Pool::F16(data) => data[row * width..][..width].convert_to_f32_slice(out),
            Pool::Coded { dtype, bytes } => {
                let len = width / dtype.block_len() * dtype.block_bytes();
                let known = quant::decode_row(*dtype, &bytes[row * len..][..len], out);
                assert!(known, "the encoder was checked when the pool was made");
            }
        }
    }

    /// The rows as kernels take them.
    pub(crate) fn view(&self) -> KvData<'_> {
        match self {
            Pool::F32(data) => KvData::F32(data),
            Pool::F16(data) => KvData::F16(data),
            Pool::Coded { dtype, bytes } => KvData::Coded(*dtype, bytes),
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Pool::F32(data) => bytemuck::cast_slice(data),
            Pool::F16(data) => bytemuck::cast_slice(data),
            Pool::Coded { bytes, .. } => bytes,
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Pool::F32(data) => bytemuck::cast_slice_mut(data),
            Pool::F16(data) => bytemuck::cast_slice_mut(data),
            Pool::Coded { bytes, .. } => bytes,
        }
    }
}

/// Zeroed memory comes from the system untouched, so pages that no sequence uses cost nothing.
fn zeroed<T: bytemuck::Zeroable>(len: usize, what: &str) -> Result<Vec<T>, BackendError> {
    bytemuck::allocation::try_zeroed_vec(len).map_err(|()| BackendError::OutOfMemory {
        what: what.into(),
        wanted: (len * size_of::<T>()) as u64,
        free: crate::device::free_memory(),
    })
}

/// The cache of one layer.
#[derive(Debug)]
pub(crate) struct Paged {
    /// Its cache group.
    pub(crate) group: usize,
    pub(crate) page_len: usize,
    pub(crate) n_pages: usize,
    pub(crate) key_width: usize,
    /// 0 when values are the first part of the keys.
    pub(crate) value_width: usize,
    pub(crate) keys: Pool,
    pub(crate) values: Option<Pool>,
}

impl Paged {
    /// Physical row of a logical one.
    pub(crate) fn row(&self, table: &PageTable, logical: usize) -> usize {
        let page = table.0[logical / self.page_len] as usize;
        page * self.page_len + logical % self.page_len
    }

    /// Stores one row.
    pub(crate) fn write(&mut self, row: usize, key: &[f32], value: &[f32]) {
        self.keys.write(row, key);
        if let Some(values) = &mut self.values {
            values.write(row, value);
        }
    }

    fn page_parts(&mut self, page: usize) -> impl Iterator<Item = &mut [u8]> {
        let n_pages = self.n_pages;
        [Some(&mut self.keys), self.values.as_mut()].into_iter().flatten().map(move |pool| {
            let bytes = pool.bytes_mut();
            let len = bytes.len() / n_pages;
            &mut bytes[page * len..][..len]
        })
    }

    fn copy_page(&mut self, from: usize, to: usize) {
        for pool in [Some(&mut self.keys), self.values.as_mut()].into_iter().flatten() {
            let bytes = pool.bytes_mut();
            let len = bytes.len() / self.n_pages;
            bytes.copy_within(from * len..(from + 1) * len, to * len);
        }
    }

    fn size(&self) -> u64 {
        let values = self.values.as_ref().map_or(0, |p| p.bytes().len());
        (self.keys.bytes().len() + values) as u64
    }
}

/// The fixed blocks of one recurrent layer: `[slot][width]`.
#[derive(Debug)]
pub(crate) struct Slots {
    width: usize,
    data: Vec<f32>,
}

impl Slots {
    /// The block of a slot.
    pub(crate) fn block(&mut self, slot: Slot) -> &mut [f32] {
        &mut self.data[slot.0 as usize * self.width..][..self.width]
    }
}

#[derive(Debug)]
enum State {
    Paged(Paged),
    Slots(Slots),
}

/// All states of an executor.
#[derive(Debug)]
pub(crate) struct States {
    states: Vec<State>,
    /// Pages per group.
    pages: Vec<u32>,
    page_len: u32,
    /// The token sampled last in each slot.
    last: Vec<Option<u32>>,
}

impl States {
    /// Allocates what a placement says.
    pub(crate) fn new(program: &Program, placement: &Placement) -> Result<States, BackendError> {
        let groups = program.cache_groups();
        if placement.pages.len() != groups.len() {
            return Err(BackendError::InvalidBatch(format!(
                "the placement has pages for {} cache groups, the program has {}",
                placement.pages.len(),
                groups.len()
            )));
        }
        if placement.page_len == 0 && !groups.is_empty() {
            return Err(BackendError::InvalidBatch("pages of no rows".into()));
        }
        let page_len = placement.page_len as usize;
        let mut states = Vec::with_capacity(program.states.len());
        for (index, decl) in program.states.iter().enumerate() {
            states.push(match decl.kind {
                StateKind::Paged { key_width, value_width, dtype, .. } => {
                    let id = StateId(index as u32);
                    let group = groups.iter().position(|g| g.states.contains(&id));
                    let group = group.expect("every paged state is in a group");
                    let n_pages = placement.pages[group] as usize;
                    let (key_width, value_width) = (key_width as usize, value_width as usize);
                    let n_rows = n_pages * page_len;
                    let keys = Pool::new(dtype, n_rows, key_width)?;
                    let values = match value_width {
                        0 => None,
                        width => Some(Pool::new(dtype, n_rows, width)?),
                    };
                    let paged =
                        Paged { group, page_len, n_pages, key_width, value_width, keys, values };
                    State::Paged(paged)
                }
                StateKind::Slot { width } => {
                    let width = width as usize;
                    let data = zeroed(width * placement.slots as usize, "slots")?;
                    State::Slots(Slots { width, data })
                }
            });
        }
        let last = vec![None; placement.slots as usize];
        Ok(States { states, pages: placement.pages.clone(), page_len: placement.page_len, last })
    }

    /// The cache of a node.
    pub(crate) fn paged(&mut self, id: Option<StateId>) -> &mut Paged {
        match id.map(|id| &mut self.states[id.index()]) {
            Some(State::Paged(paged)) => paged,
            Some(State::Slots(_)) | None => unreachable!("the verifier checked the state's kind"),
        }
    }

    /// The slots of a node.
    pub(crate) fn slots(&mut self, id: Option<StateId>) -> &mut Slots {
        match id.map(|id| &mut self.states[id.index()]) {
            Some(State::Slots(slots)) => slots,
            Some(State::Paged(_)) | None => unreachable!("the verifier checked the state's kind"),
        }
    }

    /// Pages per group.
    pub(crate) fn pages(&self) -> &[u32] {
        &self.pages
    }

    /// Rows per page.
    pub(crate) fn page_len(&self) -> u32 {
        self.page_len
    }

    /// Number of slots.
    pub(crate) fn n_slots(&self) -> usize {
        self.last.len()
    }

    /// The token sampled last in a slot.
    pub(crate) fn last_token(&self, slot: Slot) -> Option<u32> {
        self.last.get(slot.0 as usize).copied().flatten()
    }

    /// Remembers a sampled token.
    pub(crate) fn set_last_token(&mut self, slot: Slot, token: u32) {
        self.last[slot.0 as usize] = Some(token);
    }

    /// Bytes of page pools and of slots.
    pub(crate) fn size(&self) -> (u64, u64) {
        let (mut pages, mut slots) = (0, 0);
        for state in &self.states {
            match state {
                State::Paged(paged) => pages += paged.size(),
                State::Slots(s) => slots += 4 * s.data.len() as u64,
            }
        }
        (pages, slots)
    }

    /// Runs one operation.
    pub(crate) fn apply(&mut self, op: &mut StateOp<'_>) -> Result<(), BackendError> {
        match op {
            StateOp::CopyPage { group, from, to } => {
                let (from, to) = (self.page(*group, *from)?, self.page(*group, *to)?);
                self.group(*group).for_each(|s| s.copy_page(from, to));
            }
            StateOp::ReadPage { group, page, out } => {
                let page = self.page(*group, *page)?;
                out.clear();
                for state in self.group(*group) {
                    state.page_parts(page).for_each(|part| out.extend_from_slice(part));
                }
            }
            StateOp::WritePage { group, page, data } => {
                let page = self.page(*group, *page)?;
                let wanted: usize =
                    self.group(*group).flat_map(|s| s.page_parts(page).map(|p| p.len())).sum();
                check_len("page", data.len(), wanted)?;
                let mut rest = *data;
                for state in self.group(*group) {
                    for part in state.page_parts(page) {
                        let (now, later) = rest.split_at(part.len());
                        part.copy_from_slice(now);
                        rest = later;
                    }
                }
            }
            StateOp::Clear(slot) => {
                let slot = self.slot(*slot)?;
                self.blocks(slot).for_each(|block| block.fill(0.0));
                self.last[slot.0 as usize] = None;
            }
            StateOp::ReadSlot { slot, out } => {
                let slot = self.slot(*slot)?;
                out.clear();
                self.blocks(slot).for_each(|b| out.extend_from_slice(bytemuck::cast_slice(b)));
            }
            StateOp::WriteSlot { slot, data } => {
                let slot = self.slot(*slot)?;
                let wanted = self.blocks(slot).map(|b| 4 * b.len()).sum();
                check_len("slot", data.len(), wanted)?;
                let mut rest = *data;
                for block in self.blocks(slot) {
                    let (now, later) = rest.split_at(4 * block.len());
                    bytemuck::cast_slice_mut::<f32, u8>(block).copy_from_slice(now);
                    rest = later;
                }
            }
        }
        Ok(())
    }

    fn page(&self, group: u16, page: u32) -> Result<usize, BackendError> {
        let Some(&n_pages) = self.pages.get(usize::from(group)) else {
            let n = self.pages.len();
            return Err(BackendError::InvalidBatch(format!("cache group {group} of {n}")));
        };
        if page >= n_pages {
            return Err(BackendError::InvalidBatch(format!(
                "page {page} of group {group}, which has {n_pages}"
            )));
        }
        Ok(page as usize)
    }

    fn slot(&self, slot: Slot) -> Result<Slot, BackendError> {
        match self.last.len() {
            n if (slot.0 as usize) < n => Ok(slot),
            n => Err(BackendError::InvalidBatch(format!("slot {} of {n}", slot.0))),
        }
    }

    fn group(&mut self, group: u16) -> impl Iterator<Item = &mut Paged> {
        self.states.iter_mut().filter_map(move |state| match state {
            State::Paged(paged) if paged.group == usize::from(group) => Some(paged),
            State::Paged(_) | State::Slots(_) => None,
        })
    }

    fn blocks(&mut self, slot: Slot) -> impl Iterator<Item = &mut [f32]> {
        self.states.iter_mut().filter_map(move |state| match state {
            State::Slots(slots) => Some(slots.block(slot)),
            State::Paged(_) => None,
        })
    }
}

fn check_len(what: &str, have: usize, wanted: usize) -> Result<(), BackendError> {
    if have == wanted {
        return Ok(());
    }
    Err(BackendError::InvalidBatch(format!("a {what} of {have} bytes, wants {wanted}")))
}
