//! The buffers that activations live in. They grow to the largest batch and are kept between steps.

use infr_graph::ValueId;

use crate::plan::{Place, Plan, RowCount};

/// All buffers of an executor.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    floats: Vec<Vec<f32>>,
    ids: Vec<Vec<i32>>,
}

/// The outputs of one node while it runs: at most one buffer of each element type.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    floats: Option<(usize, Vec<f32>)>,
    ids: Option<(usize, Vec<i32>)>,
    n_floats: usize,
    n_ids: usize,
}

impl Taken {
    /// The `f32` output.
    pub(crate) fn floats(&mut self) -> &mut [f32] {
        self.floats.as_mut().map_or(&mut [], |(_, b)| &mut b[..self.n_floats])
    }

    /// The ids.
    pub(crate) fn ids(&mut self) -> &mut [i32] {
        self.ids.as_mut().map_or(&mut [], |(_, b)| &mut b[..self.n_ids])
    }

    /// Ids and `f32` output of an op that has both.
    pub(crate) fn both(&mut self) -> (&mut [i32], &mut [f32]) {
        (
            self.ids.as_mut().map_or(&mut [], |(_, b)| &mut b[..self.n_ids]),
            self.floats.as_mut().map_or(&mut [], |(_, b)| &mut b[..self.n_floats]),
        )
    }
}

/// Row counts of a step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rows {
    pub(crate) batch: usize,
    pub(crate) out: usize,
}

impl Rows {
    fn of(self, rows: RowCount) -> usize {
        match rows {
            RowCount::Batch => self.batch,
            RowCount::Out => self.out,
            RowCount::Fixed(n) => n,
        }
    }
}

impl Arena {
    /// Makes room for a plan's buffers.
    pub(crate) fn fit(&mut self, plan: &Plan) {
        self.floats.resize_with(self.floats.len().max(plan.n_floats), Vec::new);
        self.ids.resize_with(self.ids.len().max(plan.n_ids), Vec::new);
    }

    /// Takes the output buffers of a node out, sized for the step.
    pub(crate) fn take(&mut self, plan: &Plan, rows: Rows, outputs: &[ValueId]) -> Taken {
        let mut taken = Taken::default();
        for id in outputs {
            let value = plan.value(*id);
            let len = rows.of(value.rows) * value.width;
            match value.place {
                Place::Float(slot) => {
                    let buffer = std::mem::take(&mut self.floats[slot]);
                    taken.n_floats = len;
                    taken.floats = Some((slot, grown(buffer, len)));
                }
                Place::Ids(slot) => {
                    let buffer = std::mem::take(&mut self.ids[slot]);
                    taken.n_ids = len;
                    taken.ids = Some((slot, grown(buffer, len)));
                }
            }
        }
        taken
    }

    /// Puts a node's outputs back.
    pub(crate) fn put(&mut self, taken: Taken) {
        if let Some((slot, buffer)) = taken.floats {
            self.floats[slot] = buffer;
        }
        if let Some((slot, buffer)) = taken.ids {
            self.ids[slot] = buffer;
        }
    }

    /// Bytes held.
    pub(crate) fn size(&self) -> u64 {
        let floats: usize = self.floats.iter().map(Vec::len).sum();
        let ids: usize = self.ids.iter().map(Vec::len).sum();
        4 * (floats + ids) as u64
    }
}

fn grown<T: Clone + Default>(mut buffer: Vec<T>, len: usize) -> Vec<T> {
    if buffer.len() < len {
        buffer.resize(len, T::default());
    }
    buffer
}

/// The values of one step, for reading.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Values<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) arena: &'a Arena,
    pub(crate) rows: Rows,
}

impl<'a> Values<'a> {
    /// Elements of a row.
    pub(crate) fn width(self, id: ValueId) -> usize {
        self.plan.value(id).width
    }

    /// Number of rows.
    pub(crate) fn n_rows(self, id: ValueId) -> usize {
        self.rows.of(self.plan.value(id).rows)
    }

    /// The elements of an `f32` value, row after row.
    pub(crate) fn floats(self, id: ValueId) -> &'a [f32] {
        match self.plan.value(id).place {
            Place::Float(slot) => &self.arena.floats[slot][..self.n_rows(id) * self.width(id)],
            Place::Ids(_) => &[],
        }
    }

    /// The elements of an id value, row after row.
    pub(crate) fn ids(self, id: ValueId) -> &'a [i32] {
        match self.plan.value(id).place {
            Place::Ids(slot) => &self.arena.ids[slot][..self.n_rows(id) * self.width(id)],
            Place::Float(_) => &[],
        }
    }

    /// Any value as `f32`.
    pub(crate) fn as_floats(self, id: ValueId) -> Vec<f32> {
        match self.plan.value(id).place {
            Place::Float(_) => self.floats(id).to_vec(),
            Place::Ids(_) => self.ids(id).iter().map(|&i| i as f32).collect(),
        }
    }
}
