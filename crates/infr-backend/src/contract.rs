//! The contract of a batch, checked by every executor before anything runs.

use crate::batch::{Batch, PageTable, Row, SeqRows, Slot, TokenIn, Want};
use crate::error::BackendError;

/// What a batch is checked against: facts of the graph and of the executor's pools.
#[derive(Clone, Copy)]
pub struct Contract<'a> {
    /// The graph has hidden rows to give.
    pub hidden: bool,
    /// The graph has logits to give.
    pub logits: bool,
    /// Token ids must be below this.
    pub vocab: Option<u32>,
    /// Index and width of the carried values that the graph reads.
    pub carried: &'a [(u8, u32)],
    /// Rows may take a carried row in place of a token.
    pub carried_tokens: bool,
    /// Pages per cache group.
    pub pages: &'a [u32],
    /// Rows per page.
    pub page_len: u32,
    /// Slots.
    pub slots: u32,
    /// Whether something was sampled in a slot.
    pub sampled: &'a dyn Fn(Slot) -> bool,
    /// Rows of the largest batch.
    pub max_rows: u32,
}

type Check = Result<(), BackendError>;

fn invalid<T>(what: String) -> Result<T, BackendError> {
    Err(BackendError::InvalidBatch(what))
}

impl Contract<'_> {
    /// Checks a whole batch.
    ///
    /// # Errors
    /// `InvalidBatch` with the first breach, or `Unsupported` for carried rows that the executor lacks.
    pub fn check(&self, batch: &Batch) -> Check {
        if batch.rows.len() > self.max_rows as usize {
            return invalid(format!("{} rows, at most {}", batch.rows.len(), self.max_rows));
        }
        let mut next = 0;
        let mut slots = Vec::with_capacity(batch.seqs.len());
        for (index, seq) in batch.seqs.iter().enumerate() {
            if seq.rows.start != next || seq.rows.end < next {
                return invalid(format!("sequence {index} has rows {:?}, not {next}..", seq.rows));
            }
            next = seq.rows.end;
            slots.push(seq.slot);
            self.check_seq(batch, index, seq)?;
        }
        if next as usize != batch.rows.len() {
            return invalid(format!("sequences hold {next} rows of {}", batch.rows.len()));
        }
        slots.sort_unstable();
        if let Some(pair) = slots.windows(2).find(|p| p[0] == p[1]) {
            return invalid(format!("slot {} is used by two sequences", pair[0].0));
        }
        self.check_carried(batch)?;
        self.check_writes(batch)
    }

    fn check_seq(&self, batch: &Batch, index: usize, seq: &SeqRows) -> Check {
        if seq.slot.0 >= self.slots {
            let n = self.slots;
            return invalid(format!("sequence {index} has slot {} of {n}", seq.slot.0));
        }
        let groups = self.pages.len();
        if seq.pages.len() != groups {
            let n = seq.pages.len();
            return invalid(format!("sequence {index} has {n} page tables, wants {groups}"));
        }
        let Some(rows) = batch.rows.get(seq.rows.start as usize..seq.rows.end as usize) else {
            return invalid(format!("sequence {index} has rows {:?}", seq.rows));
        };
        let (mut position, mut write) = (None, None);
        for (row, number) in rows.iter().zip(seq.rows.clone()) {
            if usize::from(row.seq) != index {
                return invalid(format!("row {number} names sequence {}, not {index}", row.seq));
            }
            if position.is_some_and(|p| row.position < p) {
                return invalid(format!("row {number} goes back to position {}", row.position));
            }
            if row.write.is_some() && row.write <= write {
                return invalid(format!("row {number} writes at {:?} after {write:?}", row.write));
            }
            position = Some(row.position);
            write = row.write.or(write);
            self.check_row(number, row, seq)?;
            self.check_token(number, row, batch)?;
        }
        Ok(())
    }

    fn check_row(&self, number: u32, row: &Row, seq: &SeqRows) -> Check {
        let ranges = row.visible.as_slice();
        if ranges.len() != seq.pages.len() {
            let (n, groups) = (ranges.len(), seq.pages.len());
            return invalid(format!("row {number} has {n} visible ranges, wants {groups}"));
        }
        let page_len = self.page_len;
        for (group, (range, table)) in ranges.iter().zip(&seq.pages).enumerate() {
            if range.lo > range.hi {
                let (lo, hi) = (range.lo, range.hi);
                return invalid(format!("row {number} sees {lo}..{hi} in group {group}"));
            }
            if range.lo < range.hi {
                for page in range.lo / page_len..=(range.hi - 1) / page_len {
                    self.check_page(group, table, page)
                        .or_else(|what| invalid(format!("row {number} reads {what}")))?;
                }
            }
            if let Some(at) = row.write {
                self.check_page(group, table, at / page_len)
                    .or_else(|what| invalid(format!("row {number} writes {what}")))?;
            }
        }
        match row.output {
            Want::Nothing => Ok(()),
            Want::Hidden if self.hidden => Ok(()),
            Want::Hidden => invalid(format!("row {number}: the graph has no hidden output")),
            Want::Token | Want::Logprobs { .. } | Want::Logits if !self.logits => {
                invalid(format!("row {number}: the graph has no logits"))
            }
            Want::Token | Want::Logprobs { .. } if seq.sample.needs_history() => invalid(format!(
                "row {number}: penalties need the tokens before, ask for the logits"
            )),
            Want::Token | Want::Logprobs { .. } | Want::Logits => Ok(()),
        }
    }

    fn check_page(&self, group: usize, table: &PageTable, page: u32) -> Result<(), String> {
        let n_pages = self.pages[group];
        match table.0.get(page as usize) {
            None => Err(format!("page {page} of a table of {}, group {group}", table.0.len())),
            Some(&PageTable::NONE) => Err(format!("page {page} of group {group}, which is NONE")),
            Some(&physical) if physical >= n_pages => {
                Err(format!("physical page {physical} of group {group}, which has {n_pages}"))
            }
            Some(_) => Ok(()),
        }
    }

    fn check_token(&self, number: u32, row: &Row, batch: &Batch) -> Check {
        match row.token {
            TokenIn::Id(id) => match self.vocab {
                Some(vocab) if id >= vocab => {
                    invalid(format!("row {number} has token {id} of {vocab}"))
                }
                Some(_) | None => Ok(()),
            },
            TokenIn::LastOf(slot) if slot.0 < self.slots && (self.sampled)(slot) => Ok(()),
            TokenIn::LastOf(slot) => {
                invalid(format!("row {number}: nothing was sampled in slot {}", slot.0))
            }
            TokenIn::Carried(_) if !self.carried_tokens => {
                Err(BackendError::Unsupported(format!("row {number} is a carried row")))
            }
            TokenIn::Carried(index) => {
                let rows = batch.carried.first();
                let rows =
                    rows.and_then(|c| c.data.len().checked_div(c.width as usize)).unwrap_or(0);
                if (index as usize) < rows {
                    return Ok(());
                }
                invalid(format!("row {number} is carried row {index} of {rows}"))
            }
        }
    }

    fn check_carried(&self, batch: &Batch) -> Check {
        for &(index, width) in self.carried {
            let Some(rows) = batch.carried.get(usize::from(index)) else {
                return invalid(format!("carried value {index} is missing"));
            };
            let wanted = batch.rows.len() * width as usize;
            if rows.width != width || rows.data.len() != wanted {
                let (len, have) = (rows.data.len(), rows.width);
                return invalid(format!(
                    "carried value {index} has {len} elements of width {have}, wants {wanted} of {width}"
                ));
            }
        }
        Ok(())
    }

    /// No cache row is written twice, whatever the page tables share.
    fn check_writes(&self, batch: &Batch) -> Check {
        let page_len = self.page_len;
        for group in 0..self.pages.len() {
            let mut written: Vec<(u32, u32)> = Vec::with_capacity(batch.rows.len());
            for row in &batch.rows {
                let Some(at) = row.write else { continue };
                let table = &batch.seqs[usize::from(row.seq)].pages[group];
                written.push((table.0[(at / page_len) as usize], at % page_len));
            }
            written.sort_unstable();
            if let Some(pair) = written.windows(2).find(|p| p[0] == p[1]) {
                let (page, row) = pair[0];
                return invalid(format!(
                    "row {row} of page {page} of group {group} is written twice"
                ));
            }
        }
        Ok(())
    }
}
