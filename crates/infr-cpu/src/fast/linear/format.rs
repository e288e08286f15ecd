//! What a kernel needs to know of a packed format: its bits, and how a header becomes scales for 16 rows.

use crate::fast::simd::{LANES, Simd};

/// Scales and minimums of 16 rows for one sub-block of 32, per half where the format has 16-element scales.
pub(super) struct Scales<S: Simd> {
    pub(super) low: S::F,
    pub(super) high: S::F,
    /// Added once per unit of activation (already negative where the format subtracts).
    pub(super) min_low: S::F,
    pub(super) min_high: S::F,
}

/// A packed format: y = scale · (code − 2^offset) + min, or scale · table[code] + min.
pub(super) trait Format {
    /// Sub-blocks of 32 in one block.
    const SUBS: usize;
    /// Bytes of the header per row.
    const HEADER: usize;
    const LOW_BITS: u32;
    const HIGH_BITS: u32;
    /// Signed values of the codes, where they are not the codes themselves.
    const TABLE: Option<&'static [i8; 16]> = None;
    /// Base-two logarithm of what is subtracted from each code.
    const OFFSET: Option<u32> = None;
    /// Whether each half of a sub-block has its own scale.
    const SPLIT: bool = false;
    const MINS: bool = false;

    /// # Safety
    /// `header` is valid for the packed header and 64 bytes behind it.
    unsafe fn scales<S: Simd>(header: *const u8, sub: usize) -> Scales<S>;
}

#[inline(always)]
unsafe fn one_scale<S: Simd>(d: S::F) -> Scales<S> {
    Scales { low: d, high: d, min_low: d, min_high: d }
}

/// The `i`-th two-byte header field of 16 rows, as floats.
#[inline(always)]
unsafe fn halves<S: Simd>(header: *const u8, i: usize) -> S::F {
    // SAFETY: the caller's contract.
    unsafe { S::load_f16(header.add(2 * LANES * i).cast()) }
}

/// The `i`-th one-byte header field of 16 rows after `skip` two-byte fields.
#[inline(always)]
unsafe fn bytes<S: Simd>(header: *const u8, skip: usize, i: usize) -> S::I {
    // SAFETY: the caller's contract.
    unsafe { S::load_u8(header.add(LANES * (2 * skip + i))) }
}

macro_rules! format {
    ($name:ident: $subs:literal subs, $header:literal bytes, $low:literal + $high:literal bits
        $(, $const:ident: $ty:ty = $value:expr)*; |$s:ident, $p:ident, $sub:ident| $body:expr) => {
        pub(super) struct $name;
        impl Format for $name {
            const SUBS: usize = $subs;
            const HEADER: usize = $header;
            const LOW_BITS: u32 = $low;
            const HIGH_BITS: u32 = $high;
            $(const $const: $ty = $value;)*
            #[inline(always)]
            unsafe fn scales<$s: Simd>($p: *const u8, $sub: usize) -> Scales<$s> {
                // SAFETY: the trait's contract: the header is readable, with room behind it.
                unsafe { $body }
            }
        }
    };
}

/// Code book of IQ4_NL and IQ4_XS (GGUF format).
const IQ4_VALUES: [i8; 16] =
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
/// FP4 (E2M1) values, doubled.
const FP4_VALUES: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

format!(Q40: 1 subs, 2 bytes, 4 + 0 bits, OFFSET: Option<u32> = Some(3);
    |S, p, _sub| one_scale::<S>(halves::<S>(p, 0)));
format!(Q41: 1 subs, 4 bytes, 4 + 0 bits, MINS: bool = true; |S, p, _sub| {
    let (d, m) = (halves::<S>(p, 0), halves::<S>(p, 1));
    Scales { low: d, high: d, min_low: m, min_high: m }
});
format!(Q50: 1 subs, 2 bytes, 4 + 1 bits, OFFSET: Option<u32> = Some(4);
    |S, p, _sub| one_scale::<S>(halves::<S>(p, 0)));
format!(Q51: 1 subs, 4 bytes, 4 + 1 bits, MINS: bool = true; |S, p, _sub| {
    let (d, m) = (halves::<S>(p, 0), halves::<S>(p, 1));
    Scales { low: d, high: d, min_low: m, min_high: m }
});
format!(Q80: 1 subs, 2 bytes, 8 + 0 bits; |S, p, _sub| one_scale::<S>(halves::<S>(p, 0)));
format!(Q2K: 8 subs, 20 bytes, 2 + 0 bits, SPLIT: bool = true, MINS: bool = true; |S, p, sub| {
    let d = halves::<S>(p, 0);
    let minus_dmin = S::sub(S::splat(0.0), halves::<S>(p, 1));
    let (low, high) = (bytes::<S>(p, 2, 2 * sub), bytes::<S>(p, 2, 2 * sub + 1));
    let mask = S::splat_int(15);
    Scales {
        low: S::mul(d, S::to_float(S::and_int(low, mask))),
        high: S::mul(d, S::to_float(S::and_int(high, mask))),
        min_low: S::mul(minus_dmin, S::to_float(S::shr_int::<4>(low))),
        min_high: S::mul(minus_dmin, S::to_float(S::shr_int::<4>(high))),
    }
});
format!(Q3K: 8 subs, 14 bytes, 2 + 1 bits, SPLIT: bool = true, OFFSET: Option<u32> = Some(2);
|S, p, sub| {
    let d = halves::<S>(p, 0);
    let low = S::mul(d, q3_k_scale::<S>(p, 2 * sub));
    let high = S::mul(d, q3_k_scale::<S>(p, 2 * sub + 1));
    Scales { low, high, min_low: low, min_high: high }
});
format!(Q4K: 8 subs, 16 bytes, 4 + 0 bits, MINS: bool = true; |S, p, sub| k_scales::<S>(p, sub));
format!(Q5K: 8 subs, 16 bytes, 4 + 1 bits, MINS: bool = true; |S, p, sub| k_scales::<S>(p, sub));
format!(Q6K: 8 subs, 18 bytes, 4 + 2 bits, SPLIT: bool = true, OFFSET: Option<u32> = Some(5);
|S, p, sub| {
    let d = halves::<S>(p, 0);
    let scales = p.add(2 * LANES + 2 * sub * LANES).cast::<i8>();
    let low = S::mul(d, S::to_float(S::load_i8(scales)));
    let high = S::mul(d, S::to_float(S::load_i8(scales.add(LANES))));
    Scales { low, high, min_low: low, min_high: high }
});
format!(Iq4Nl: 1 subs, 2 bytes, 4 + 0 bits, TABLE: Option<&'static [i8; 16]> = Some(&IQ4_VALUES);
    |S, p, _sub| one_scale::<S>(halves::<S>(p, 0)));
format!(Iq4Xs: 8 subs, 8 bytes, 4 + 0 bits, TABLE: Option<&'static [i8; 16]> = Some(&IQ4_VALUES);
|S, p, sub| {
    let d = halves::<S>(p, 0);
    let low = bytes::<S>(p, 2, sub / 2);
    let low = if sub.is_multiple_of(2) { low } else { S::shr_int::<4>(low) };
    let high = shr_int_by::<S>(S::load_u16(p.add(2 * LANES).cast()), 2 * sub);
    let scale = S::or_int(
        S::and_int(low, S::splat_int(15)),
        S::shl_int::<4>(S::and_int(high, S::splat_int(3))),
    );
    one_scale::<S>(S::mul(d, S::to_float(S::add_int(scale, S::splat_int(-32)))))
});
format!(Mxfp4: 1 subs, 1 bytes, 4 + 0 bits, TABLE: Option<&'static [i8; 16]> = Some(&FP4_VALUES);
|S, p, _sub| {
    // 2^(s - 128) as the product of two normal powers, so that small s needs no special case.
    let s = S::load_u8(p);
    let half = S::shr_int::<1>(s);
    let rest = S::add_int(s, S::add_int(S::splat_int(1), not_int::<S>(half)));
    one_scale::<S>(S::mul(power::<S>(half), power::<S>(rest)))
});
format!(Nvfp4: 2 subs, 4 bytes, 4 + 0 bits, SPLIT: bool = true,
TABLE: Option<&'static [i8; 16]> = Some(&FP4_VALUES);
|S, p, sub| {
    let low = e4m3::<S>(bytes::<S>(p, 0, 2 * sub));
    let high = e4m3::<S>(bytes::<S>(p, 0, 2 * sub + 1));
    Scales { low, high, min_low: low, min_high: high }
});
format!(Ternary: 8 subs, 2 bytes, 2 + 0 bits, OFFSET: Option<u32> = Some(0);
    |S, p, _sub| one_scale::<S>(halves::<S>(p, 0)));
format!(Q10: 4 subs, 2 bytes, 0 + 1 bits, MINS: bool = true; |S, p, _sub| {
    let d = halves::<S>(p, 0);
    let (twice, minus) = (S::add(d, d), S::sub(S::splat(0.0), d));
    Scales { low: twice, high: twice, min_low: minus, min_high: minus }
});
format!(Q20: 2 subs, 2 bytes, 2 + 0 bits, OFFSET: Option<u32> = Some(0);
    |S, p, _sub| one_scale::<S>(halves::<S>(p, 0)));

/// 2^(x - 64).
#[inline(always)]
unsafe fn power<S: Simd>(x: S::I) -> S::F {
    // SAFETY: the caller's contract.
    unsafe { S::bits_to_float(S::shl_int::<23>(S::add_int(x, S::splat_int(63)))) }
}

/// Bitwise complement: -x - 1.
#[inline(always)]
unsafe fn not_int<S: Simd>(x: S::I) -> S::I {
    // SAFETY: the caller's contract.
    unsafe { S::xor_int(x, S::splat_int(-1)) }
}

/// Shift by an even amount below 16 that is known only at run time.
#[inline(always)]
unsafe fn shr_int_by<S: Simd>(x: S::I, n: usize) -> S::I {
    // SAFETY: the caller's contract.
    unsafe {
        match n {
            0 => x,
            2 => S::shr_int::<2>(x),
            4 => S::shr_int::<4>(x),
            6 => S::shr_int::<6>(x),
            8 => S::shr_int::<8>(x),
            10 => S::shr_int::<10>(x),
            12 => S::shr_int::<12>(x),
            _ => S::shr_int::<14>(x),
        }
    }
}

/// Half of an unsigned E4M3 number: shifted into an `f16` it is 2^8 too small.
#[inline(always)]
unsafe fn e4m3<S: Simd>(x: S::I) -> S::F {
    // SAFETY: the caller's contract.
    unsafe {
        let x = S::and_int(x, S::splat_int(0x7F));
        S::mul(S::half_bits_to_float(S::shl_int::<7>(x)), S::splat(128.0))
    }
}

/// Scale `k` of 16 of a Q3_K block: six bits in two places, minus 32.
#[inline(always)]
unsafe fn q3_k_scale<S: Simd>(p: *const u8, k: usize) -> S::F {
    // SAFETY: the caller's contract.
    unsafe {
        let low = bytes::<S>(p, 1, k % 8);
        let low = if k < 8 { low } else { S::shr_int::<4>(low) };
        let high = shr_int_by::<S>(bytes::<S>(p, 1, 8 + k % 4), 2 * (k / 4));
        let scale = S::or_int(
            S::and_int(low, S::splat_int(15)),
            S::shl_int::<4>(S::and_int(high, S::splat_int(3))),
        );
        S::to_float(S::add_int(scale, S::splat_int(-32)))
    }
}

/// Scale and minimum of a sub-block of Q4_K or Q5_K: six bits each, packed in twelve bytes.
#[inline(always)]
unsafe fn k_scales<S: Simd>(p: *const u8, sub: usize) -> Scales<S> {
    // SAFETY: the caller's contract.
    unsafe {
        let d = halves::<S>(p, 0);
        let minus_dmin = S::sub(S::splat(0.0), halves::<S>(p, 1));
        let (scale, min) = if sub < 4 {
            let mask = S::splat_int(63);
            (S::and_int(bytes::<S>(p, 2, sub), mask), S::and_int(bytes::<S>(p, 2, sub + 4), mask))
        } else {
            let both = bytes::<S>(p, 2, sub + 4);
            let scale_top = S::shr_int::<6>(bytes::<S>(p, 2, sub - 4));
            let min_top = S::shr_int::<6>(bytes::<S>(p, 2, sub));
            (
                S::or_int(S::and_int(both, S::splat_int(15)), S::shl_int::<4>(scale_top)),
                S::or_int(S::shr_int::<4>(both), S::shl_int::<4>(min_top)),
            )
        };
        let d = S::mul(d, S::to_float(scale));
        let m = S::mul(minus_dmin, S::to_float(min));
        Scales { low: d, high: d, min_low: m, min_high: m }
    }
}
