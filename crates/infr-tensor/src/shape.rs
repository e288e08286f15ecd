//! Shapes of values and weights: sizes that are fixed by the model, and the three that a batch decides.

use crate::DType;

/// One size of a tensor. Only the batch's own sizes are symbolic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dim {
    /// Known when the graph is built.
    Fixed(u32),
    /// Rows (tokens) of the batch.
    Rows,
    /// Rows whose output is wanted.
    OutRows,
}

/// Sizes from the slowest to the fastest dimension (the reverse of GGUF's order).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Shape(pub Vec<Dim>);

impl Shape {
    /// A shape of fixed sizes, slowest first.
    pub fn fixed(dims: &[u32]) -> Shape {
        Shape(dims.iter().map(|&d| Dim::Fixed(d)).collect())
    }

    /// A value with one row per batch row, `width` elements each.
    pub fn rows(width: u32) -> Shape {
        Shape(vec![Dim::Rows, Dim::Fixed(width)])
    }

    /// A value with one row per wanted output, `width` elements each.
    pub fn out_rows(width: u32) -> Shape {
        Shape(vec![Dim::OutRows, Dim::Fixed(width)])
    }

    /// Size of the fastest dimension; 1 for scalars. `None` when it is symbolic.
    pub fn width(&self) -> Option<u32> {
        match self.0.last() {
            Some(Dim::Fixed(n)) => Some(*n),
            Some(Dim::Rows | Dim::OutRows) => None,
            None => Some(1),
        }
    }

    /// Product of all sizes when every one is fixed.
    pub fn elements(&self) -> Option<u64> {
        self.0.iter().try_fold(1u64, |n, d| match d {
            Dim::Fixed(x) => n.checked_mul(u64::from(*x)),
            Dim::Rows | Dim::OutRows => None,
        })
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[")?;
        for (i, d) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            match d {
                Dim::Fixed(n) => write!(f, "{n}")?,
                Dim::Rows => f.write_str("rows")?,
                Dim::OutRows => f.write_str("out")?,
            }
        }
        f.write_str("]")
    }
}

/// Data type and shape of a tensor.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TensorDesc {
    /// Element or block type.
    pub dtype: DType,
    /// Sizes, slowest first.
    pub shape: Shape,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbolic_sizes_have_no_product() {
        assert_eq!(Shape::fixed(&[3, 4]).elements(), Some(12));
        assert_eq!(Shape::fixed(&[]).elements(), Some(1));
        assert_eq!(Shape::rows(8).elements(), None);
        assert_eq!(Shape::fixed(&[u32::MAX; 3]).elements(), None, "overflow");
    }

    #[test]
    fn width_is_the_fastest_size() {
        assert_eq!(Shape::rows(8).width(), Some(8));
        assert_eq!(Shape(vec![Dim::Fixed(8), Dim::Rows]).width(), None);
        assert_eq!(Shape::fixed(&[]).width(), Some(1));
        assert_eq!(Shape::out_rows(5).to_string(), "[out, 5]");
    }
}
