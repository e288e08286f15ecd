//! What outlives a step on the device: page pools, page tables, last tokens.
//!
//! A page table is kept per slot and group; the host keeps what it last wrote and sends only entries that
//! changed, as patches that a kernel applies in the order of the steps.

use infr_backend::{BackendError, Batch, Placement, Slot, StateOp};
use infr_graph::{Program, StateKind};
use infr_tensor::DType;

use crate::api::{Api, Copy, MemoryKind};
use crate::places::{PoolPlace, StatePlaces, TablePlace};

/// One word of the device's tables: where, and its new value.
pub(crate) type Patch = [u32; 2];

/// The pools of one layer.
#[derive(Debug)]
struct Pool<B> {
    group: usize,
    /// Keys, then values; each with the bytes of a page.
    parts: [(B, u64); 2],
}

/// All states of an executor.
#[derive(Debug)]
pub(crate) struct States<B> {
    pub(crate) places: StatePlaces,
    pools: Vec<Pool<B>>,
    pub(crate) words: B,
    /// Bytes of pools and tables.
    pub(crate) bytes: u64,
    /// Pages per group.
    pub(crate) pages: Vec<u32>,
    pub(crate) page_len: u32,
    /// Whether something was sampled in each slot.
    pub(crate) sampled: Vec<bool>,
    /// Entries as last sent, per group `[slot][stride]`.
    sent: Vec<Vec<u32>>,
}

/// The geometry of a program's states, at made-up addresses.
///
/// # Errors
/// When a state is of a kind without kernels.
pub(crate) fn geometry(
    program: &Program,
    placement: &Placement,
) -> Result<StatePlaces, BackendError> {
    let groups = program.cache_groups();
    let unsupported = |what: String| Err(BackendError::Unsupported(what));
    if groups.len() != placement.pages.len() {
        let (n, have) = (groups.len(), placement.pages.len());
        return Err(BackendError::InvalidBatch(format!("{have} page counts for {n} groups")));
    }
    if !placement.page_len.is_power_of_two() {
        return unsupported(format!("pages of {} rows", placement.page_len));
    }
    let mut places =
        StatePlaces { page_shift: placement.page_len.trailing_zeros(), ..StatePlaces::default() };
    for (index, state) in program.states.iter().enumerate() {
        let StateKind::Paged { key_width, value_width, dtype, .. } = state.kind else {
            return unsupported(format!("recurrent states (layer {})", state.layer));
        };
        let kv = match dtype {
            DType::F32 => 0,
            DType::F16 => 1,
            _ => return unsupported(format!("a cache of type {dtype}")),
        };
        if value_width == 0 {
            return unsupported(format!("values that alias keys (layer {})", state.layer));
        }
        let id = infr_graph::StateId(index as u32);
        let group = groups.iter().position(|g| g.states.contains(&id));
        let group = group.expect("every paged state has a group");
        places.pools.push(Some(PoolPlace {
            group,
            keys: 256..512,
            values: 512..768,
            key_width,
            value_width,
            kv,
        }));
    }
    for pages in &placement.pages {
        let stride = pages.max(&1).next_power_of_two();
        places.tables.push(TablePlace { address: 256, stride });
    }
    places.last = 256..512;
    Ok(places)
}

impl<B: Clone> States<B> {
    /// Allocates the states.
    ///
    /// # Errors
    /// When memory does not suffice.
    pub(crate) fn new<A: Api<Buffer = B>>(
        api: &mut A,
        mut places: StatePlaces,
        placement: &Placement,
    ) -> Result<States<B>, BackendError> {
        let mut pools = Vec::new();
        let mut bytes = 0;
        for place in places.pools.iter_mut().flatten() {
            let pages = u64::from(placement.pages[place.group]);
            let element = if place.kv == 0 { 4 } else { 2 };
            let mut part = |width: u32| -> Result<_, BackendError> {
                let page = u64::from(placement.page_len) * u64::from(width) * element;
                let size = (page * pages).max(4);
                let buffer = api.allocate("cache pages", MemoryKind::Device, size)?;
                bytes += size;
                let address = api.address(&buffer);
                Ok(((buffer, page), address..address + size))
            };
            let (keys, key_range) = part(place.key_width)?;
            let (values, value_range) = part(place.value_width)?;
            (place.keys, place.values) = (key_range, value_range);
            pools.push(Pool { group: place.group, parts: [keys, values] });
        }
        let slots = u64::from(placement.slots);
        let last_words = slots.next_multiple_of(64);
        let table_words: u64 = places.tables.iter().map(|t| slots * u64::from(t.stride)).sum();
        let size = 4 * (last_words + table_words).max(64);
        let words = api.allocate("page tables", MemoryKind::Device, size)?;
        bytes += size;
        let base = api.address(&words);
        places.last = base..base + 4 * slots;
        let mut at = base + 4 * last_words;
        for table in &mut places.tables {
            table.address = at;
            at += 4 * slots * u64::from(table.stride);
        }
        let sent =
            places.tables.iter().map(|t| vec![u32::MAX; (slots * u64::from(t.stride)) as usize]);
        let sent = sent.collect();
        let sampled = vec![false; placement.slots as usize];
        let (pages, page_len) = (placement.pages.clone(), placement.page_len);
        Ok(States { places, pools, words, bytes, pages, page_len, sampled, sent })
    }

    /// The table entries that a checked batch needs and the device does not have.
    ///
    /// # Errors
    /// When the pages that a sequence sees lie further apart than its table is long.
    pub(crate) fn table_patches(
        &mut self,
        batch: &Batch,
        patches: &mut Vec<Patch>,
    ) -> Result<(), BackendError> {
        let page_len = self.page_len;
        for (group, table) in self.places.tables.iter().enumerate() {
            let first_word = (table.address - self.places.last.start) / 4;
            for seq in &batch.seqs {
                let base = seq.slot.0 as usize * table.stride as usize;
                let rows = &batch.rows[seq.rows.start as usize..seq.rows.end as usize];
                let ranges = rows.iter().map(|r| r.visible.as_slice()[group]);
                let ranges = ranges.filter(|v| v.lo < v.hi);
                let first = ranges.clone().map(|v| v.lo / page_len).min().unwrap_or(0);
                let end = ranges.map(|v| v.hi.div_ceil(page_len)).max().unwrap_or(0);
                if end.saturating_sub(first) > table.stride {
                    let slot = seq.slot.0;
                    return Err(BackendError::Unsupported(format!(
                        "slot {slot} sees pages {first}..{end} at once"
                    )));
                }
                for page in first..end {
                    let Some(&physical) = seq.pages[group].0.get(page as usize) else { continue };
                    let at = base + (page & (table.stride - 1)) as usize;
                    // A page between two visible ranges may not exist.
                    if physical != u32::MAX && self.sent[group][at] != physical {
                        self.sent[group][at] = physical;
                        patches.push([(first_word + at as u64) as u32, physical]);
                    }
                }
            }
        }
        Ok(())
    }

    fn page(&self, group: u16, page: u32) -> Result<u64, BackendError> {
        match self.pages.get(usize::from(group)) {
            Some(&n) if page < n => Ok(u64::from(page)),
            Some(n) => Err(BackendError::InvalidBatch(format!(
                "page {page} of group {group}, which has {n}"
            ))),
            None => Err(BackendError::InvalidBatch(format!(
                "cache group {group} of {}",
                self.pages.len()
            ))),
        }
    }

    fn parts(&self, group: u16) -> impl Iterator<Item = (B, u64)> {
        let pools = self.pools.iter().filter(move |p| p.group == usize::from(group));
        pools.flat_map(|p| p.parts.clone())
    }

    /// Runs one operation behind all that was submitted; `value` is the next value of the timeline,
    /// and the result says whether it was used.
    ///
    /// # Errors
    /// When a page or slot does not exist, sizes differ, or the device fails.
    pub(crate) fn apply<A: Api<Buffer = B>>(
        &mut self,
        api: &mut A,
        op: &mut StateOp<'_>,
        value: u64,
    ) -> Result<bool, BackendError> {
        match op {
            StateOp::CopyPage { group, from, to } => {
                let (from, to) = (self.page(*group, *from)?, self.page(*group, *to)?);
                if from == to {
                    return Ok(false);
                }
                let copy = |(buffer, page): (B, u64)| Copy {
                    from: buffer.clone(),
                    from_offset: from * page,
                    to: buffer,
                    to_offset: to * page,
                    bytes: page,
                };
                let copies: Vec<Copy<B>> = self.parts(*group).map(copy).collect();
                api.copy(&copies, value)?;
                return Ok(true);
            }
            StateOp::ReadPage { group, page, out } => {
                let page = self.page(*group, *page)?;
                out.clear();
                for (buffer, size) in self.parts(*group) {
                    let start = out.len();
                    out.resize(start + size as usize, 0);
                    api.download(&buffer, page * size, &mut out[start..])?;
                }
            }
            StateOp::WritePage { group, page, data } => {
                let page = self.page(*group, *page)?;
                let wanted: u64 = self.parts(*group).map(|(_, size)| size).sum();
                check_len("page", data.len() as u64, wanted)?;
                let mut rest = *data;
                for (buffer, size) in self.parts(*group) {
                    let (now, later) = rest.split_at(size as usize);
                    api.upload(&buffer, page * size, now)?;
                    rest = later;
                }
            }
            StateOp::Clear(slot) => {
                let slot = self.slot(*slot)?;
                self.sampled[slot] = false;
            }
            StateOp::ReadSlot { slot, out } => {
                self.slot(*slot)?;
                out.clear();
            }
            StateOp::WriteSlot { slot, data } => {
                self.slot(*slot)?;
                check_len("slot", data.len() as u64, 0)?;
            }
        }
        Ok(false)
    }

    fn slot(&self, slot: Slot) -> Result<usize, BackendError> {
        match self.sampled.len() {
            n if (slot.0 as usize) < n => Ok(slot.0 as usize),
            n => Err(BackendError::InvalidBatch(format!("slot {} of {n}", slot.0))),
        }
    }

    /// Releases everything.
    pub(crate) fn free<A: Api<Buffer = B>>(&mut self, api: &mut A) {
        for (buffer, _) in self.pools.drain(..).flat_map(|p| p.parts) {
            api.free(buffer);
        }
        api.free(self.words.clone());
    }
}

fn check_len(what: &str, have: u64, wanted: u64) -> Result<(), BackendError> {
    if have == wanted {
        return Ok(());
    }
    Err(BackendError::InvalidBatch(format!("a {what} of {have} bytes, wants {wanted}")))
}
