//! A table that has whatever a recipe's model asks for, and remembers it.
//!
//! A random model's tensors are those that the model's own graph builder declares: no second list
//! of shapes has to agree with it.

use std::cell::RefCell;

use infr_gguf::TensorType;
use infr_tensor::DType;

use crate::synth::recipe::Recipe;
use crate::table::{Need, TableEntry, TensorTable};

/// A tensor that a model asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Its name.
    pub name: String,
    /// Its extents in GGUF order.
    pub dims: Vec<u64>,
}

/// The recorder.
pub(crate) struct Recorder<'a> {
    recipe: &'a Recipe,
    wanted: RefCell<Vec<Wanted>>,
}

impl<'a> Recorder<'a> {
    /// A recorder for a recipe's model.
    pub(crate) fn new(recipe: &'a Recipe) -> Recorder<'a> {
        Recorder { recipe, wanted: RefCell::new(Vec::new()) }
    }

    /// All tensors asked for, in that order.
    pub(crate) fn into_wanted(self) -> Vec<Wanted> {
        self.wanted.into_inner()
    }
}

impl TensorTable for Recorder<'_> {
    fn find(&self, name: &str, dims: &[u64], need: Need) -> Option<TableEntry> {
        if need == Need::Optional && !self.recipe.has(name) {
            return None;
        }
        let mut wanted = self.wanted.borrow_mut();
        if !wanted.iter().any(|w| w.name == name) {
            wanted.push(Wanted { name: name.to_owned(), dims: dims.to_vec() });
        }
        let dtype = TensorType::Known(DType::F32);
        Some(TableEntry { dims: dims.to_vec(), dtype, i2s_scale: None })
    }
}
