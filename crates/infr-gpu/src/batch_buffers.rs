//! What changes from step to step, as arrays that the host writes and kernels read.
//!
//! Two of these buffers exist, A and B: while the device runs a step from one, the host fills the other.

use infr_backend::sample::uniform;
use infr_backend::{BackendError, Batch, TokenIn, Want};
use infr_graph::ValueId;

use crate::api::{Api, MemoryKind};
use crate::states::Patch;

/// The most patches of one launch; more go in several.
pub(crate) const MAX_PATCHES: u32 = 1 << 14;
/// Marks a row that writes nothing to the cache.
const NO_WRITE: u32 = u32::MAX;
/// Marks a token that is the last one of a slot.
const LAST_OF: u32 = 1 << 31;

/// Device addresses of the arrays of one buffer, and of what a step gives back.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct BatchPlaces {
    pub(crate) counts: u64,
    pub(crate) tokens: u64,
    pub(crate) positions: u64,
    pub(crate) row_slots: u64,
    /// Per cache group.
    pub(crate) write_rows: Vec<u64>,
    /// Per cache group.
    pub(crate) visible: Vec<u64>,
    pub(crate) out_rows: u64,
    pub(crate) params: u64,
    pub(crate) tiles: u64,
    pub(crate) patches: u64,
    /// Token and log-probability per output row.
    pub(crate) results: u64,
    /// Carried values that come from the host, by their index.
    pub(crate) carried: Vec<(u8, u64)>,
    /// Values that go back to the host, and where to.
    pub(crate) back: Vec<(ValueId, u64)>,
}

/// What the arrays of one buffer are sized for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BatchShape {
    pub(crate) rows: u32,
    /// Cache groups.
    pub(crate) groups: usize,
    /// Index and width of the carried values.
    pub(crate) carried: Vec<(u8, u32)>,
}

impl BatchPlaces {
    /// Lays the arrays out from `base`; gives the bytes needed.
    pub(crate) fn new(base: u64, shape: &BatchShape) -> (BatchPlaces, u64) {
        let mut at = base;
        let (rows, groups) = (u64::from(shape.rows.max(1)), shape.groups);
        let mut array = |bytes: u64| {
            let place = at;
            at = (at + bytes).next_multiple_of(256);
            place
        };
        let places = BatchPlaces {
            counts: array(32),
            tokens: array(4 * rows),
            positions: array(4 * rows),
            row_slots: array(4 * rows),
            write_rows: (0..groups).map(|_| array(4 * rows)).collect(),
            visible: (0..groups).map(|_| array(8 * rows)).collect(),
            out_rows: array(4 * rows),
            params: array(32 * rows),
            // No tile is empty, so there are no more than rows.
            tiles: array(8 * rows),
            patches: array(8 * u64::from(MAX_PATCHES)),
            carried: shape
                .carried
                .iter()
                .map(|(index, width)| (*index, array(4 * rows * u64::from(*width))))
                .collect(),
            ..BatchPlaces::default()
        };
        (places, at - base)
    }
}

/// A step's sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counts {
    pub(crate) rows: u32,
    pub(crate) seqs: u32,
    pub(crate) out_rows: u32,
    pub(crate) patches: u32,
    pub(crate) tiles: u32,
}

/// What the arrays are made from.
pub(crate) struct Filling<'a> {
    pub(crate) batch: &'a Batch,
    /// Indices of the output rows.
    pub(crate) out_rows: &'a [u32],
    /// Whether the device samples each output row.
    pub(crate) sampled: &'a [bool],
    pub(crate) page_len: u32,
    /// Rows of an attention tile.
    pub(crate) q_tile: u32,
}

/// One of the two buffers.
#[derive(Debug)]
pub(crate) struct BatchBuffers<B> {
    pub(crate) places: BatchPlaces,
    buffer: B,
    base: u64,
    pub(crate) results: B,
    pub(crate) bytes: u64,
    words: Vec<u32>,
}

impl<B: Clone> BatchBuffers<B> {
    /// Allocates the arrays.
    ///
    /// # Errors
    /// When memory does not suffice.
    pub(crate) fn new<A: Api<Buffer = B>>(
        api: &mut A,
        shape: &BatchShape,
    ) -> Result<BatchBuffers<B>, BackendError> {
        let (_, size) = BatchPlaces::new(0, shape);
        let buffer = api.allocate("batch arrays", MemoryKind::Upload, size)?;
        let base = api.address(&buffer);
        let (mut places, _) = BatchPlaces::new(base, shape);
        let results_size = 8 * u64::from(shape.rows.max(1));
        let results = api.allocate("step results", MemoryKind::Readback, results_size)?;
        places.results = api.address(&results);
        let bytes = size + results_size;
        Ok(BatchBuffers { places, buffer, base, results, bytes, words: Vec::new() })
    }

    /// Releases the arrays.
    pub(crate) fn free<A: Api<Buffer = B>>(&mut self, api: &mut A) {
        api.free(self.buffer.clone());
        api.free(self.results.clone());
    }

    fn put<A: Api<Buffer = B>>(
        &mut self,
        api: &mut A,
        address: u64,
        words: impl Iterator<Item = u32>,
    ) {
        self.words.clear();
        self.words.extend(words);
        if !self.words.is_empty() {
            api.write(&self.buffer, address - self.base, bytemuck::cast_slice(&self.words));
        }
    }

    /// Writes patches and their number.
    pub(crate) fn fill_patches<A: Api<Buffer = B>>(&mut self, api: &mut A, patches: &[Patch]) {
        self.put(api, self.places.patches, patches.iter().flatten().copied());
        self.put(api, self.places.counts + 12, std::iter::once(patches.len() as u32));
    }

    /// Writes the arrays of a checked batch; the number of patches stays.
    pub(crate) fn fill<A: Api<Buffer = B>>(&mut self, api: &mut A, from: &Filling<'_>) -> Counts {
        let batch = from.batch;
        // Taken for the time of the writes, which need all of `self`.
        let places = std::mem::take(&mut self.places);
        let rows = || batch.rows.iter();
        self.put(
            api,
            places.tokens,
            rows().map(|row| match row.token {
                TokenIn::Id(id) => id,
                TokenIn::LastOf(slot) => LAST_OF | slot.0,
                TokenIn::Carried(_) => 0,
            }),
        );
        self.put(api, places.positions, rows().map(|r| r.position));
        self.put(api, places.row_slots, rows().map(|r| batch.seqs[usize::from(r.seq)].slot.0));
        for (group, place) in places.write_rows.iter().enumerate() {
            self.put(
                api,
                *place,
                rows().map(|row| {
                    let Some(at) = row.write else { return NO_WRITE };
                    let table = &batch.seqs[usize::from(row.seq)].pages[group].0;
                    table[(at / from.page_len) as usize] * from.page_len + at % from.page_len
                }),
            );
        }
        for (group, place) in places.visible.iter().enumerate() {
            let ranges = rows().map(|r| r.visible.as_slice()[group]);
            self.put(api, *place, ranges.flat_map(|v| [v.lo, v.hi]));
        }
        self.put(api, places.out_rows, from.out_rows.iter().copied());
        self.put(api, places.params, (0..from.out_rows.len()).flat_map(|i| params(from, i)));
        let tiles = || {
            batch.seqs.iter().flat_map(|seq| {
                let end = seq.rows.end;
                let starts = seq.rows.clone().step_by(from.q_tile.max(1) as usize);
                starts.map(move |start| [start, (end - start).min(from.q_tile)])
            })
        };
        self.put(api, places.tiles, tiles().flatten());
        for (index, place) in &places.carried {
            let Some(rows) = batch.carried.get(usize::from(*index)) else { continue };
            if !rows.data.is_empty() {
                api.write(&self.buffer, place - self.base, bytemuck::cast_slice(&rows.data));
            }
        }
        let counts = Counts {
            rows: batch.rows.len() as u32,
            seqs: batch.seqs.len() as u32,
            out_rows: from.out_rows.len() as u32,
            patches: 0,
            tiles: tiles().count() as u32,
        };
        self.put(api, places.counts, [counts.rows, counts.seqs, counts.out_rows].into_iter());
        self.put(api, places.counts + 16, std::iter::once(counts.tiles));
        self.places = places;
        counts
    }
}

/// The sampling parameters of an output row, as the contract lays them out.
fn params(from: &Filling<'_>, out_idx: usize) -> [u32; 8] {
    let row = &from.batch.rows[from.out_rows[out_idx] as usize];
    let seq = &from.batch.seqs[usize::from(row.seq)];
    let p = &seq.sample;
    let wanted = |w: &Want| matches!(w, Want::Token | Want::Logprobs { .. });
    let samples = from.sampled[out_idx] && wanted(&row.output);
    // The slot keeps the token of the sequence's last sampled row.
    let later = &from.batch.rows[from.out_rows[out_idx] as usize + 1..seq.rows.end as usize];
    let is_last = !later.iter().any(|r| wanted(&r.output));
    [
        p.temperature.to_bits(),
        p.top_k,
        p.top_p.to_bits(),
        p.min_p.to_bits(),
        uniform(p.seed, row.position).to_bits(),
        seq.slot.0,
        // Every output row is drawn: the token is a value of the graph like any other.
        1 | u32::from(samples && is_last) << 1,
        0,
    ]
}
