//! Tables of rotary frequencies (Su et al., 2021; YaRN: Peng et al., 2023), computed in `f64` once.
//!
//! A frequency is kept in turns per position, as the sum of two `f32`, so that a kernel finds the angle of a
//! far position to `f32` precision.

use std::f64::consts::PI;

use infr_backend::{BackendError, WeightSource};
use infr_graph::{Node, Op, Program, RopeSpec, WeightId};

use crate::api::{Api, MemoryKind};
use crate::weights::vector_values;

/// One table: the rotation of `spec`, for any number of heads, with its factors.
#[derive(Debug, Clone, PartialEq)]
struct Key {
    spec: RopeSpec,
    factors: Option<WeightId>,
}

impl Key {
    fn of(spec: &RopeSpec, node: &Node) -> Key {
        Key { spec: RopeSpec { heads: 0, ..*spec }, factors: node.weights.first().copied() }
    }
}

/// All tables of a program.
#[derive(Debug, Clone, Default)]
pub(crate) struct RopeTables {
    tables: Vec<(Key, u64)>,
}

impl RopeTables {
    /// Finds the rotations of a program; their addresses are made up.
    pub(crate) fn new(program: &Program) -> RopeTables {
        let mut tables = RopeTables::default();
        let nodes = program.graphs.iter().flat_map(|(_, g)| &g.nodes);
        nodes.for_each(|node| tables.add(node));
        tables
    }

    fn add(&mut self, node: &Node) {
        match &node.op {
            Op::Fused(fused) => fused.body.iter().for_each(|inner| self.add(inner)),
            Op::Rope(spec) => {
                let key = Key::of(spec, node);
                if !self.tables.iter().any(|(k, _)| *k == key) {
                    self.tables.push((key, 256));
                }
            }
            _ => {}
        }
    }

    /// Address of the table of a rotation.
    pub(crate) fn address(&self, spec: &RopeSpec, node: &Node) -> u64 {
        let key = Key::of(spec, node);
        let found = self.tables.iter().find(|(k, _)| *k == key);
        found.map(|(_, address)| *address).expect("every rotation of the program has a table")
    }

    /// Computes and uploads the tables into one buffer; `None` when there are none.
    pub(crate) fn upload<A: Api>(
        &mut self,
        api: &mut A,
        program: &Program,
        source: &dyn WeightSource,
    ) -> Result<Option<A::Buffer>, BackendError> {
        let mut words: Vec<f32> = Vec::new();
        let mut starts = Vec::new();
        for (key, _) in &self.tables {
            let factors = match key.factors {
                Some(id) => Some(vector_values(&program.weights[id.index()], source)?),
                None => None,
            };
            starts.push(words.len() as u64 * 4);
            for frequency in frequencies(&key.spec, factors.as_deref()) {
                let turns = frequency / (2.0 * PI);
                let high = turns as f32;
                words.extend([high, (turns - f64::from(high)) as f32]);
            }
            words.resize(words.len().next_multiple_of(64), 0.0);
        }
        if words.is_empty() {
            return Ok(None);
        }
        let buffer = api.allocate("rotary tables", MemoryKind::Device, 4 * words.len() as u64)?;
        api.upload(&buffer, 0, bytemuck::cast_slice(&words))?;
        let base = api.address(&buffer);
        for ((_, address), start) in self.tables.iter_mut().zip(starts) {
            *address = base + start;
        }
        Ok(Some(buffer))
    }
}

/// Radians per position of every pair.
fn frequencies(spec: &RopeSpec, factors: Option<&[f32]>) -> Vec<f64> {
    let n_rot = f64::from(spec.n_rot);
    let (base, freq_scale) = (f64::from(spec.base), f64::from(spec.freq_scale));
    // Pairs below `low` keep their angle, pairs above `high` are interpolated.
    let bounds = spec.yarn.map(|yarn| {
        let pair_of = |rotations: f32| {
            let wave = f64::from(yarn.original_context) / (2.0 * PI * f64::from(rotations));
            n_rot * wave.ln() / (2.0 * base.ln())
        };
        let low = pair_of(yarn.beta_fast).floor().max(0.0);
        (low, pair_of(yarn.beta_slow).ceil().min(n_rot - 1.0))
    });
    let frequency = |i: u32| {
        let factor = factors.map_or(1.0, |f| f64::from(f[i as usize]));
        let plain = base.powf(-2.0 * f64::from(i) / n_rot) / factor;
        let Some((low, high)) = bounds else { return plain * freq_scale };
        let kept = 1.0 - ((f64::from(i) - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
        plain * (kept + freq_scale * (1.0 - kept))
    };
    (0..spec.n_rot / 2).map(frequency).collect()
}
