//! Code books of the i-quants: data tables that the formats prescribe.
//!
//! A 2-bit or 1-bit entry is a `u64` of eight values and a 3-bit entry a `u32` of four, first value in
//! the lowest byte. `tools/make_grids.py` writes the tables.

pub mod iq1;
pub mod iq2_s;
pub mod iq2_xs;
pub mod iq2_xxs;
pub mod iq3_s;
pub mod iq3_xxs;

/// Sign byte of a 7-bit sign code: bit 7 makes the number of ones even, so one bit of eight is free.
#[inline]
pub const fn even_signs(code: u8) -> u8 {
    let code = code & 0x7f;
    code | ((code.count_ones() as u8 & 1) << 7)
}

/// Mean of the squared values of an eight-value code book whose bytes are signed.
pub(crate) const fn mean_square8(grid: &[u64]) -> f32 {
    let mut sum = 0i64;
    let mut i = 0;
    while i < grid.len() {
        sum += sum_of_squares(&grid[i].to_le_bytes());
        i += 1;
    }
    sum as f32 / (grid.len() * 8) as f32
}

/// Mean of the squared values of a four-value code book.
pub(crate) const fn mean_square4(grid: &[u32]) -> f32 {
    let mut sum = 0i64;
    let mut i = 0;
    while i < grid.len() {
        sum += sum_of_squares(&grid[i].to_le_bytes());
        i += 1;
    }
    sum as f32 / (grid.len() * 4) as f32
}

const fn sum_of_squares(bytes: &[u8]) -> i64 {
    let mut sum = 0i64;
    let mut i = 0;
    while i < bytes.len() {
        let v = bytes[i] as i8 as i64;
        sum += v * v;
        i += 1;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fnv1a(bytes: impl Iterator<Item = u8>) -> u64 {
        bytes.fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
    }

    fn hash_of_floats(bytes: impl Iterator<Item = u8>) -> u64 {
        fnv1a(bytes.flat_map(|b| f32::from(b as i8).to_le_bytes()))
    }

    #[test]
    fn tables_match_the_golden_hashes() {
        let wide = |g: &[u64]| hash_of_floats(g.iter().flat_map(|w| w.to_le_bytes()));
        let narrow = |g: &[u32]| hash_of_floats(g.iter().flat_map(|w| w.to_le_bytes()));
        let golden = include_str!("../../../tests/golden/grids.txt");
        for line in golden.lines() {
            let (name, hash) = line.split_once(' ').unwrap();
            let ours = match name {
                "iq1" => wide(&iq1::GRID),
                "iq2_xxs" => wide(&iq2_xxs::GRID),
                "iq2_xs" => wide(&iq2_xs::GRID),
                "iq2_s" => wide(&iq2_s::GRID),
                "iq3_xxs" => narrow(&iq3_xxs::GRID),
                "iq3_s" => narrow(&iq3_s::GRID),
                other => panic!("unknown table {other}"),
            };
            assert_eq!(format!("{ours:016x}"), hash, "{name}");
        }
        assert_eq!(golden.lines().count(), 6);
    }

    #[test]
    fn sign_bytes_have_an_even_number_of_ones() {
        for code in 0..128u8 {
            let signs = even_signs(code);
            assert_eq!(signs & 0x7f, code);
            assert_eq!(signs.count_ones() % 2, 0);
        }
    }
}
