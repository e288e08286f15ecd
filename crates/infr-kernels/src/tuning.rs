//! `tuning/*.toml`: what is chosen. Every key is described here; unknown ones are errors.
//!
//! A file holds, for each kernel, values of specialisation constants; `[linear]` with its ladder; and
//! `[attention]`. A file of a GPU family overrides the keys of `generic.toml` that it names.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::error::KernelError;
use crate::family::{KernelFamily, Tier};
use crate::table::Table;

const FILE: &str = "tuning";

/// One rung of the ladder of matrix products: the first that fits and exists is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rung {
    /// The most rows of the batch; `None` fits any.
    pub rows: Option<u32>,
    /// The fewest elements of the matrix.
    pub min_elems: u64,
    /// The kernel.
    pub family: KernelFamily,
    /// Its tier.
    pub tier: Tier,
}

/// How attention is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttentionTuning {
    /// Batches of at least this many rows are attended in tiles of rows.
    pub prefill_rows: u32,
    /// The most parts that the context of a row is split into.
    pub max_splits: u32,
    /// Parts in strict mode, whatever the batch.
    pub strict_splits: u32,
}

/// The tuning of one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tuning {
    constants: BTreeMap<(KernelFamily, String), u32>,
    /// The ladder of matrix products.
    pub linear: Vec<Rung>,
    /// The most rows that share one pass over a matrix in `linear_vec`.
    pub max_cols: u32,
    /// The same in strict mode, whatever the batch.
    pub strict_cols: u32,
    /// Attention.
    pub attention: AttentionTuning,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRung {
    rows: Option<u32>,
    #[serde(default)]
    min_elems: u64,
    r#use: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLinear {
    max_cols: u32,
    strict_cols: u32,
    ladder: Vec<RawRung>,
}

#[derive(Deserialize)]
struct Raw {
    linear: RawLinear,
    attention: AttentionTuning,
    #[serde(flatten)]
    kernels: BTreeMap<String, BTreeMap<String, u32>>,
}

fn syntax(e: &toml::de::Error) -> KernelError {
    KernelError::Syntax { file: FILE, what: e.to_string() }
}

fn unknown(what: &'static str, name: &str) -> KernelError {
    KernelError::Unknown { file: FILE, what, name: name.into() }
}

impl Tuning {
    /// Parses `generic.toml` and lays the files of a GPU family over it, the last one on top; checked
    /// against the kernels that exist.
    ///
    /// # Errors
    /// When a text breaks the schema, or names a kernel or constant that does not exist.
    pub fn parse(generic: &str, over: &[&str], table: &Table) -> Result<Tuning, KernelError> {
        let mut all: toml::Table = generic.parse().map_err(|e| syntax(&e))?;
        for text in over {
            lay_over(&mut all, text.parse().map_err(|e| syntax(&e))?);
        }
        let raw: Raw = all.try_into().map_err(|e| syntax(&e))?;
        let mut constants = BTreeMap::new();
        for (kernel, values) in raw.kernels {
            let family = KernelFamily::from_name(&kernel);
            let row = family.and_then(|f| table.kernel(f));
            let row = row.ok_or_else(|| unknown("kernel", &kernel))?;
            for (name, value) in values {
                if !row.spec.contains(&name) {
                    return Err(unknown("constant", &format!("{kernel}.{name}")));
                }
                constants.insert((row.family, name), value);
            }
        }
        let rung = |raw: RawRung| {
            let (family, tier) = raw.r#use.split_once('.').unwrap_or((&raw.r#use, "scalar"));
            let known = KernelFamily::from_name(family).zip(Tier::from_name(tier));
            let exists = known.filter(|(f, t)| {
                table.kernel(*f).is_some_and(|k| k.tiers.iter().any(|(have, _)| have == t))
            });
            let (family, tier) = exists.ok_or_else(|| unknown("variant", &raw.r#use))?;
            Ok(Rung { rows: raw.rows, min_elems: raw.min_elems, family, tier })
        };
        Ok(Tuning {
            constants,
            linear: raw.linear.ladder.into_iter().map(rung).collect::<Result<_, _>>()?,
            max_cols: raw.linear.max_cols,
            strict_cols: raw.linear.strict_cols,
            attention: raw.attention,
        })
    }

    /// The value of a kernel's constant, if the tuning sets it.
    pub fn constant(&self, family: KernelFamily, name: &str) -> Option<u32> {
        self.constants.get(&(family, name.to_owned())).copied()
    }

    /// All constants that it sets for a kernel.
    pub fn constants(&self, family: KernelFamily) -> impl Iterator<Item = (&str, u32)> {
        self.constants
            .iter()
            .filter(move |((f, _), _)| *f == family)
            .map(|((_, n), v)| (n.as_str(), *v))
    }
}

/// Replaces values, table by table; arrays as a whole.
fn lay_over(base: &mut toml::Table, over: toml::Table) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(toml::Value::Table(base)), toml::Value::Table(over)) => lay_over(base, over),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const TABLE: &str = r#"
        [quant]
        f32 = ["get"]
        f16 = ["get", "stage"]
        [kernel.norm]
        source = "norm.comp"
        spec = ["wg", "add"]
        [kernel.linear_vec]
        source = "linear_vec.comp"
        tiers = { scalar = "get" }
        spec = ["wg", "cols"]
        [kernel.linear_mat]
        source = "linear_mat.comp"
        tiers = { scalar = "get", coopmat = "stage" }
        needs = ["matrix"]
        spec = ["wg"]
    "#;

    pub(crate) const GENERIC: &str = r#"
        [attention]
        prefill_rows = 16
        max_splits = 8
        strict_splits = 4
        [linear]
        max_cols = 8
        strict_cols = 4
        ladder = [
          { rows = 8, use = "linear_vec" },
          { min_elems = 1000, use = "linear_mat.coopmat" },
          { use = "linear_vec.scalar" },
        ]
        [norm]
        wg = 256
        [linear_vec]
        wg = 128
        [linear_mat]
        wg = 64
    "#;

    #[test]
    fn a_family_overrides_what_it_names() {
        let table = Table::parse(TABLE).unwrap();
        let over = "[norm]\nwg = 64\n[attention]\nmax_splits = 2";
        let tuning = Tuning::parse(GENERIC, &[over], &table).unwrap();
        assert_eq!(tuning.constant(KernelFamily::Norm, "wg"), Some(64));
        assert_eq!(tuning.constant(KernelFamily::LinearVec, "wg"), Some(128));
        assert_eq!((tuning.attention.max_splits, tuning.attention.prefill_rows), (2, 16));
    }

    #[test]
    fn unknown_keys_are_errors() {
        let table = Table::parse(TABLE).unwrap();
        for over in [
            "[norm]\nwarps = 1",
            "[nrom]\nwg = 1",
            "[attention]\nsplits = 1",
            "[linear]\nrungs = []",
            "[linear]\nladder = [{ use = \"linear_vec.dp4a\" }]",
            "[linear]\nladder = [{ use = \"linear_vec\", cols = 1 }]",
            "speed = 1",
        ] {
            assert!(Tuning::parse(GENERIC, &[over], &table).is_err(), "{over}");
        }
    }
}
