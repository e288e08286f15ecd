//! How close two results must be, and what to say when they are not.

/// Bounds on errors, as fractions of the root mean square of the expected values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    /// Of the largest error.
    pub max: f32,
    /// Of the root mean square of the errors.
    pub rms: f32,
}

impl Tolerance {
    /// Values that are copied or counted.
    pub const EXACT: Tolerance = Tolerance { max: 0.0, rms: 0.0 };
    /// Single precision in another order.
    pub const F32: Tolerance = Tolerance { max: 5e-5, rms: 1e-5 };
    /// Half-precision inputs or weights, single-precision sums.
    pub const F16: Tolerance = Tolerance { max: 5e-3, rms: 1e-3 };
    /// Activations rounded to bytes with a scale per 32: half a step of 1/127 of a block's largest value
    /// is about 0.7 % of the block's spread, and the largest of thousands of errors is some four times that.
    pub const Q8: Tolerance = Tolerance { max: 5e-2, rms: 1.2e-2 };
}

/// Largest and root-mean-square error of `found`, as fractions of the spread of `expected`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Difference {
    /// Largest error.
    pub max: f32,
    /// Root mean square of the errors.
    pub rms: f32,
    /// Where the largest error is.
    pub at: usize,
}

/// Compares two values element by element; a NaN on one side only is an infinite error.
pub fn difference(expected: &[f32], found: &[f32]) -> Difference {
    let square = |x: f32| f64::from(x) * f64::from(x);
    let (mut max, mut at, mut sum) = (0.0f64, 0, 0.0);
    for (i, (e, f)) in expected.iter().zip(found).enumerate() {
        let error = if e.to_bits() == f.to_bits() { 0.0 } else { f64::from(e - f).abs() };
        let error = if error.is_nan() { f64::INFINITY } else { error };
        if error > max {
            (max, at) = (error, i);
        }
        sum += error * error;
    }
    let finite = expected.iter().filter(|x| x.is_finite());
    let n = expected.len().max(1) as f64;
    let spread = (finite.map(|x| square(*x)).sum::<f64>() / n).sqrt().max(1e-30);
    Difference { max: (max / spread) as f32, rms: ((sum / n).sqrt() / spread) as f32, at }
}

impl Tolerance {
    /// Compares two values.
    ///
    /// # Errors
    /// What differs, and by how much.
    pub fn check(&self, expected: &[f32], found: &[f32]) -> Result<(), String> {
        if expected.len() != found.len() {
            return Err(format!("{} elements, expected {}", found.len(), expected.len()));
        }
        let d = difference(expected, found);
        if d.max <= self.max && d.rms <= self.rms {
            return Ok(());
        }
        Err(format!(
            "errors of the spread: largest {:.2e} (allowed {:.2e}), rms {:.2e} (allowed {:.2e}); \
             element {} is {} and should be {}",
            d.max, self.max, d.rms, self.rms, d.at, found[d.at], expected[d.at]
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::{Tolerance, difference};

    #[test]
    fn errors_are_seen() {
        let expected = [1.0, -1.0, 1.0, -1.0];
        assert!(Tolerance::EXACT.check(&expected, &expected).is_ok());
        assert!(Tolerance::F32.check(&expected, &[1.0, -1.0, 1.0, -0.999]).is_err());
        assert!(Tolerance::Q8.check(&expected, &[1.0, -1.0, f32::NAN, -1.0]).is_err());
        assert!(Tolerance::Q8.check(&expected, &expected[..3]).is_err());
        assert_eq!(difference(&expected, &[1.0, -1.0, 1.5, -1.0]).at, 2);
    }
}
