//! Data that several test binaries use.
#![allow(dead_code)]

/// Number of values of [`gaussian`].
pub(crate) const VALUES: usize = 16384;

/// The splitmix64 generator.
pub(crate) fn splitmix(mut seed: u64) -> impl FnMut() -> u64 {
    move || {
        seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// Nearly normal values, the same as in `golden/make.py`: sums of sixteen random bytes.
pub(crate) fn gaussian() -> Vec<f32> {
    let mut rng = splitmix(1);
    let mut bytes = move || rng().to_le_bytes().map(u32::from).iter().sum::<u32>() as f32;
    (0..VALUES).map(|_| (bytes() + bytes() - 2040.0) / 256.0).collect()
}

/// Root mean square difference.
pub(crate) fn rmse(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let sum: f64 = a.iter().zip(b).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum();
    (sum / a.len() as f64).sqrt()
}
