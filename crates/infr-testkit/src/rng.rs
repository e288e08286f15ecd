//! Seeded random numbers: the same on every machine and in every run.

/// SplitMix64 (Steele et al., 2014).
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// A generator that depends on the seed alone.
    pub fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    /// 64 uniform bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A uniform number in `[0, 1)`.
    pub fn uniform(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A whole number below `n`.
    pub fn below(&mut self, n: u32) -> u32 {
        (self.uniform() * f64::from(n)) as u32
    }

    /// A number with mean 0 and deviation 1 (Box and Muller, 1958).
    pub fn normal(&mut self) -> f32 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        (radius * (std::f64::consts::TAU * self.uniform()).cos()) as f32
    }

    /// `n` normal numbers times `spread`.
    pub fn normals(&mut self, n: usize, spread: f32) -> Vec<f32> {
        (0..n).map(|_| self.normal() * spread).collect()
    }

    /// The numbers below `n` in random order.
    pub fn permutation(&mut self, n: u32) -> Vec<u32> {
        let mut out: Vec<u32> = (0..n).collect();
        for i in (1..n).rev() {
            out.swap(i as usize, self.below(i + 1) as usize);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::Rng;

    #[test]
    fn numbers_have_the_moments_they_should() {
        let mut rng = Rng::new(1);
        let x = rng.normals(100_000, 2.0);
        let mean = x.iter().map(|x| f64::from(*x)).sum::<f64>() / 1e5;
        let square = x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / 1e5;
        assert!(mean.abs() < 0.03 && (square - 4.0).abs() < 0.1, "{mean} {square}");
        let mut p = rng.permutation(50);
        assert_ne!(p, (0..50).collect::<Vec<_>>());
        p.sort_unstable();
        assert_eq!(p, (0..50).collect::<Vec<_>>());
    }
}
