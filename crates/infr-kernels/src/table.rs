//! `kernels.toml`: what exists. Parsed, checked and expanded to variants.

use std::collections::BTreeMap;

use infr_tensor::DType;
use serde::Deserialize;

use crate::error::KernelError;
use crate::family::{KernelFamily, Tier};
use crate::{SpecConsts, VariantId};

const FILE: &str = "kernels.toml";

/// One row of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// Which kernel.
    pub family: KernelFamily,
    /// File name of its source.
    pub source: String,
    /// Tiers with the quant function that each asks for; empty for kernels without a weight type.
    pub tiers: Vec<(Tier, String)>,
    /// Names of its specialisation constants; the place is the id.
    pub spec: Vec<String>,
    /// Device features that it needs.
    pub needs: Vec<String>,
}

impl Kernel {
    /// The constants in order of their ids, from named values.
    ///
    /// # Errors
    /// When a constant has no value, or a value names no constant.
    pub fn constants(&self, values: &[(&str, u32)]) -> Result<SpecConsts, KernelError> {
        let family = self.family.name();
        let fail = |name: &str, what| KernelError::Constant { family, name: name.into(), what };
        if let Some((name, _)) = values.iter().find(|(n, _)| !self.spec.iter().any(|s| s == n)) {
            return Err(fail(name, "is not in its list"));
        }
        let value = |name: &String| {
            let found = values.iter().find(|(n, _)| n == name);
            found.map(|(_, v)| *v).ok_or_else(|| fail(name, "has no value"))
        };
        Ok(SpecConsts(self.spec.iter().map(value).collect::<Result<_, _>>()?))
    }
}

/// One shader to build: a kernel in a tier for a weight type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Variant {
    /// Which kernel.
    pub family: KernelFamily,
    /// Its tier; scalar for kernels without a weight type.
    pub tier: Tier,
    /// The weight type.
    pub quant: Option<DType>,
}

impl Variant {
    /// Name for messages, files and expected selections: `linear_vec.scalar.q4_1`, `norm`.
    pub fn name(&self) -> String {
        match self.quant {
            Some(quant) => {
                let quant = quant.name().to_lowercase();
                format!("{}.{}.{quant}", self.family.name(), self.tier.name())
            }
            None => self.family.name().to_owned(),
        }
    }
}

/// The expanded table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    kernels: Vec<Kernel>,
    variants: Vec<Variant>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTable {
    quant: BTreeMap<String, Vec<String>>,
    kernel: BTreeMap<String, RawKernel>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawKernel {
    source: String,
    #[serde(default)]
    tiers: BTreeMap<String, String>,
    #[serde(default)]
    spec: Vec<String>,
    #[serde(default)]
    needs: Vec<String>,
}

fn unknown(what: &'static str, name: &str) -> KernelError {
    KernelError::Unknown { file: FILE, what, name: name.into() }
}

impl Table {
    /// Parses and expands the text of a `kernels.toml`.
    ///
    /// # Errors
    /// When the text breaks the schema or names something that does not exist.
    pub fn parse(text: &str) -> Result<Table, KernelError> {
        let raw: RawTable = toml::from_str(text)
            .map_err(|e| KernelError::Syntax { file: FILE, what: e.to_string() })?;
        let mut quants = Vec::new();
        for (name, functions) in &raw.quant {
            let dtype = DType::from_name(name).ok_or_else(|| unknown("weight type", name))?;
            quants.push((dtype, functions));
        }
        quants.sort_by_key(|(dtype, _)| *dtype);
        let mut table = Table { kernels: Vec::new(), variants: Vec::new() };
        for (name, raw) in raw.kernel {
            let family = KernelFamily::from_name(&name).ok_or_else(|| unknown("kernel", &name))?;
            let mut tiers = Vec::new();
            for (tier, function) in raw.tiers {
                let tier = Tier::from_name(&tier).ok_or_else(|| unknown("tier", &tier))?;
                tiers.push((tier, function));
            }
            tiers.sort();
            if tiers.is_empty() {
                table.variants.push(Variant { family, tier: Tier::Scalar, quant: None });
            }
            for (tier, function) in &tiers {
                let offering = quants.iter().filter(|(_, f)| f.contains(function));
                table.variants.extend(offering.map(|(q, _)| Variant {
                    family,
                    tier: *tier,
                    quant: Some(*q),
                }));
            }
            let RawKernel { source, spec, needs, .. } = raw;
            table.kernels.push(Kernel { family, source, tiers, spec, needs });
        }
        Ok(table)
    }

    /// The row of a kernel.
    pub fn kernel(&self, family: KernelFamily) -> Option<&Kernel> {
        self.kernels.iter().find(|k| k.family == family)
    }

    /// All rows, by name.
    pub fn kernels(&self) -> &[Kernel] {
        &self.kernels
    }

    /// All variants; the place is the [`VariantId`].
    pub fn variants(&self) -> &[Variant] {
        &self.variants
    }

    /// A variant by its number.
    pub fn variant(&self, id: VariantId) -> Option<&Variant> {
        self.variants.get(id.0 as usize)
    }

    /// The number of a variant.
    pub fn find(&self, variant: Variant) -> Option<VariantId> {
        self.variants.iter().position(|v| *v == variant).map(|i| VariantId(i as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        [quant]
        q8_0 = ["get"]
        f32 = ["get"]
        f16 = []
        [kernel.norm]
        source = "norm.comp"
        spec = ["wg", "add"]
        [kernel.linear_vec]
        source = "linear_vec.comp"
        tiers = { scalar = "get" }
        needs = ["wave"]
    "#;

    #[test]
    fn expands_only_what_is_offered() {
        let table = Table::parse(TEXT).unwrap();
        let names: Vec<String> = table.variants().iter().map(Variant::name).collect();
        assert_eq!(names, ["linear_vec.scalar.f32", "linear_vec.scalar.q8_0", "norm"]);
        assert_eq!(table.find(table.variants()[1]), Some(VariantId(1)));
    }

    #[test]
    fn constants_follow_the_list() {
        let table = Table::parse(TEXT).unwrap();
        let norm = table.kernel(KernelFamily::Norm).unwrap();
        let values = norm.constants(&[("add", 1), ("wg", 64)]).unwrap();
        assert_eq!(values.0, [64, 1]);
        let missing = norm.constants(&[("wg", 64)]).unwrap_err().to_string();
        assert_eq!(missing, "kernel norm: constant `add` has no value");
        let surplus = norm.constants(&[("wg", 64), ("add", 0), ("x", 1)]).unwrap_err().to_string();
        assert_eq!(surplus, "kernel norm: constant `x` is not in its list");
    }

    #[test]
    fn unknown_names_are_errors() {
        for (wrong, what) in [
            ("q8_0 = [\"get\"]", "q9 = [\"get\"]"),
            ("kernel.norm", "kernel.nrom"),
            ("scalar =", "vector ="),
            ("needs =", "wants ="),
        ] {
            assert!(TEXT.contains(wrong));
            assert!(Table::parse(&TEXT.replace(wrong, what)).is_err(), "{what}");
        }
    }
}
