//! Selection: from what an op asks for to a variant, by table, device and tuning alone.

use infr_tensor::DType;

use crate::error::KernelError;
use crate::family::{KernelFamily, Tier};
use crate::profile::DeviceProfile;
use crate::table::{Kernel, Table, Variant};
use crate::tuning::Tuning;
use crate::{SpecConsts, VariantId};

/// What a variant is wanted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// A kernel that has no alternatives.
    Kernel(KernelFamily),
    /// A matrix product.
    Linear {
        /// Rows of the batch, at most.
        rows: u32,
        /// Elements of the matrix.
        elems: u64,
    },
}

/// What an op asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// The work.
    pub work: Work,
    /// The weight type, for kernels that have one.
    pub quant: Option<DType>,
    /// One variant for any number of rows.
    pub strict: bool,
}

/// A choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pick<'t> {
    /// The variant's number.
    pub id: VariantId,
    /// Its row in the table.
    pub kernel: &'t Kernel,
    /// Its constants that the tuning sets.
    pub tuned: Vec<(&'t str, u32)>,
    /// Why it was chosen.
    pub why: String,
}

impl Pick<'_> {
    /// A constant that the tuning must set.
    ///
    /// # Errors
    /// When it does not.
    pub fn tuned(&self, name: &str) -> Result<u32, KernelError> {
        let found = self.tuned.iter().find(|(n, _)| *n == name);
        found.map(|(_, v)| *v).ok_or_else(|| KernelError::Constant {
            family: self.kernel.family.name(),
            name: name.into(),
            what: "is not tuned",
        })
    }

    /// All constants in order, those that lowering knows given here (they win over the tuning).
    ///
    /// # Errors
    /// When a constant has no value, or a value has no constant.
    pub fn spec(&self, given: &[(&str, u32)]) -> Result<SpecConsts, KernelError> {
        let rest = self.tuned.iter().filter(|(n, _)| !given.iter().any(|(g, _)| g == n));
        let all: Vec<(&str, u32)> = given.iter().copied().chain(rest.copied()).collect();
        self.kernel.constants(&all)
    }
}

/// The tables and facts that selection stands on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    /// What exists.
    pub table: Table,
    /// What is chosen.
    pub tuning: Tuning,
    /// Where.
    pub profile: DeviceProfile,
}

impl Selector {
    /// The variant for an ask.
    ///
    /// # Errors
    /// When none exists that the device can run.
    pub fn select(&self, ask: &Ask) -> Result<Pick<'_>, KernelError> {
        match ask.work {
            Work::Kernel(family) => self
                .try_pick(family, Tier::Scalar, ask.quant, || "the only one".into())
                .ok_or(KernelError::NoKernel { family: family.name(), quant: ask.quant }),
            Work::Linear { rows, elems } => {
                let rows = if ask.strict { 1 } else { rows };
                let fits = self.tuning.linear.iter().enumerate().filter(|(_, rung)| {
                    rung.rows.is_none_or(|most| rows <= most)
                        && (ask.strict || elems >= rung.min_elems)
                });
                for (place, rung) in fits {
                    let why = || match ask.strict {
                        true => format!("rung {place}, for any number of rows"),
                        false => format!("rung {place}"),
                    };
                    if let Some(pick) = self.try_pick(rung.family, rung.tier, ask.quant, why) {
                        return Ok(pick);
                    }
                }
                Err(KernelError::NoKernel { family: "linear", quant: ask.quant })
            }
        }
    }

    /// Whether a matrix product exists for a weight type.
    pub fn has_linear(&self, quant: DType) -> bool {
        let work = Work::Linear { rows: 1, elems: u64::MAX };
        self.select(&Ask { work, quant: Some(quant), strict: false }).is_ok()
    }

    fn try_pick(
        &self,
        family: KernelFamily,
        tier: Tier,
        quant: Option<DType>,
        why: impl FnOnce() -> String,
    ) -> Option<Pick<'_>> {
        let id = self.table.find(Variant { family, tier, quant })?;
        let kernel = self.table.kernel(family)?;
        if !self.profile.has_all(&kernel.needs) {
            return None;
        }
        let tuned = self.tuning.constants(family).collect();
        Some(Pick { id, kernel, tuned, why: why() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuning::tests::{GENERIC, TABLE};

    fn selector(features: &[&str]) -> Selector {
        let table = Table::parse(TABLE).unwrap();
        let tuning = Tuning::parse(GENERIC, &[], &table).unwrap();
        let features = features.iter().map(|f| (*f).to_owned()).collect();
        Selector {
            table,
            tuning,
            profile: DeviceProfile { features, ..DeviceProfile::basic("test") },
        }
    }

    fn linear(s: &Selector, quant: DType, rows: u32, elems: u64, strict: bool) -> String {
        let ask = Ask { work: Work::Linear { rows, elems }, quant: Some(quant), strict };
        let pick = s.select(&ask).unwrap();
        format!("{} ({})", s.table.variant(pick.id).unwrap().name(), pick.why)
    }

    #[test]
    fn the_first_rung_that_fits_and_exists_wins() {
        let with = selector(&["matrix"]);
        let without = selector(&[]);
        let vec = "linear_vec.scalar.f16";
        assert_eq!(linear(&with, DType::F16, 8, 2000, false), format!("{vec} (rung 0)"));
        assert_eq!(linear(&with, DType::F16, 9, 2000, false), "linear_mat.coopmat.f16 (rung 1)");
        assert_eq!(linear(&with, DType::F16, 9, 10, false), format!("{vec} (rung 2)"), "small");
        assert_eq!(linear(&with, DType::F32, 9, 2000, false), "linear_vec.scalar.f32 (rung 2)");
        assert_eq!(linear(&without, DType::F16, 9, 2000, false), format!("{vec} (rung 2)"));
        let strict = linear(&with, DType::F16, 512, 2000, true);
        assert_eq!(strict, format!("{vec} (rung 0, for any number of rows)"));
    }

    #[test]
    fn a_missing_kernel_is_an_error() {
        let s = selector(&[]);
        assert!(!s.has_linear(DType::Q4_K) && s.has_linear(DType::F32));
        let ask = Ask { work: Work::Kernel(KernelFamily::Sample), quant: None, strict: false };
        assert_eq!(s.select(&ask).unwrap_err().to_string(), "no kernel sample for None");
    }

    #[test]
    fn constants_come_from_tuning_and_lowering() {
        let s = selector(&[]);
        let ask = Ask { work: Work::Kernel(KernelFamily::Norm), quant: None, strict: false };
        let pick = s.select(&ask).unwrap();
        assert_eq!(pick.tuned("wg").unwrap(), 256);
        assert_eq!(pick.spec(&[("add", 1)]).unwrap().0, [256, 1]);
        assert!(pick.spec(&[]).is_err());
    }
}
