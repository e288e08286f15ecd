//! AVX2 with FMA and F16C: two registers per 16 lanes.

use std::arch::x86_64::*;

use super::{NARROW, SIGNED, Simd};

/// AVX2, FMA and F16C.
#[derive(Clone, Copy)]
pub(crate) struct Avx2;

type F = [__m256; 2];
type I = [__m256i; 2];

/// Defines trait functions whose body is intrinsics of the level.
macro_rules! ops {
    ($(fn $name:ident $(<const $cn:ident: $ct:ty>)? ($($arg:ident: $ty:ty),*) $(-> $ret:ty)? { $body:expr })*) => {
        $(
            #[inline(always)]
            #[allow(unused_unsafe)]
            unsafe fn $name $(<const $cn: $ct>)? ($($arg: $ty),*) $(-> $ret)? {
                // SAFETY: the trait's contract: the level exists and pointers are valid.
                unsafe { $body }
            }
        )*
    };
}

/// Sum of eight lanes, halving.
///
/// # Safety
/// AVX must exist.
#[inline(always)]
pub(crate) unsafe fn sum8(a: __m256) -> f32 {
    // SAFETY: the caller's contract.
    unsafe {
        let a = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
        let a = _mm_add_ps(a, _mm_movehl_ps(a, a));
        _mm_cvtss_f32(_mm_add_ss(a, _mm_shuffle_ps::<1>(a, a)))
    }
}

/// Exchanges rows and lanes of an 8 x 8 matrix.
///
/// # Safety
/// AVX must exist.
#[inline(always)]
unsafe fn transpose8(m: [__m256; 8]) -> [__m256; 8] {
    // SAFETY: the caller's contract.
    unsafe {
        let mut t = m;
        macro_rules! four {
            ($i:literal) => {
                let a = _mm256_castps_pd(_mm256_unpacklo_ps(m[$i], m[$i + 1]));
                let b = _mm256_castps_pd(_mm256_unpackhi_ps(m[$i], m[$i + 1]));
                let c = _mm256_castps_pd(_mm256_unpacklo_ps(m[$i + 2], m[$i + 3]));
                let d = _mm256_castps_pd(_mm256_unpackhi_ps(m[$i + 2], m[$i + 3]));
                t[$i] = _mm256_castpd_ps(_mm256_unpacklo_pd(a, c));
                t[$i + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(a, c));
                t[$i + 2] = _mm256_castpd_ps(_mm256_unpacklo_pd(b, d));
                t[$i + 3] = _mm256_castpd_ps(_mm256_unpackhi_pd(b, d));
            };
        }
        four!(0);
        four!(4);
        [
            _mm256_permute2f128_ps::<0x20>(t[0], t[4]),
            _mm256_permute2f128_ps::<0x20>(t[1], t[5]),
            _mm256_permute2f128_ps::<0x20>(t[2], t[6]),
            _mm256_permute2f128_ps::<0x20>(t[3], t[7]),
            _mm256_permute2f128_ps::<0x31>(t[0], t[4]),
            _mm256_permute2f128_ps::<0x31>(t[1], t[5]),
            _mm256_permute2f128_ps::<0x31>(t[2], t[6]),
            _mm256_permute2f128_ps::<0x31>(t[3], t[7]),
        ]
    }
}

/// Products of 16 codes with 16 activations for the eight lanes of half `h`.
///
/// # Safety
/// AVX2 must exist; `acts` is valid for 16 bytes.
#[inline(always)]
unsafe fn dot16_half<const KIND: u8>(acc: __m256i, w: [__m256i; 4], acts: *const i8) -> __m256i {
    // SAFETY: the caller's contract.
    unsafe {
        let acts = acts.cast::<i32>();
        let a = [
            _mm256_set1_epi32(acts.read_unaligned()),
            _mm256_set1_epi32(acts.add(1).read_unaligned()),
            _mm256_set1_epi32(acts.add(2).read_unaligned()),
            _mm256_set1_epi32(acts.add(3).read_unaligned()),
        ];
        let ones = _mm256_set1_epi16(1);
        if KIND == SIGNED {
            let p0 = _mm256_maddubs_epi16(_mm256_abs_epi8(w[0]), _mm256_sign_epi8(a[0], w[0]));
            let p1 = _mm256_maddubs_epi16(_mm256_abs_epi8(w[1]), _mm256_sign_epi8(a[1], w[1]));
            let p2 = _mm256_maddubs_epi16(_mm256_abs_epi8(w[2]), _mm256_sign_epi8(a[2], w[2]));
            let p3 = _mm256_maddubs_epi16(_mm256_abs_epi8(w[3]), _mm256_sign_epi8(a[3], w[3]));
            let low = _mm256_add_epi32(_mm256_madd_epi16(p0, ones), _mm256_madd_epi16(p1, ones));
            let high = _mm256_add_epi32(_mm256_madd_epi16(p2, ones), _mm256_madd_epi16(p3, ones));
            return _mm256_add_epi32(acc, _mm256_add_epi32(low, high));
        }
        let low =
            _mm256_add_epi16(_mm256_maddubs_epi16(w[0], a[0]), _mm256_maddubs_epi16(w[1], a[1]));
        let high =
            _mm256_add_epi16(_mm256_maddubs_epi16(w[2], a[2]), _mm256_maddubs_epi16(w[3], a[3]));
        if KIND == NARROW {
            return _mm256_add_epi32(acc, _mm256_madd_epi16(_mm256_add_epi16(low, high), ones));
        }
        let low = _mm256_madd_epi16(low, ones);
        _mm256_add_epi32(acc, _mm256_add_epi32(low, _mm256_madd_epi16(high, ones)))
    }
}

impl Simd for Avx2 {
    type F = F;
    type I = I;
    type V = I;
    const MAX_ROWS: usize = 4;
    const SIGNED_BIASED: bool = false;

    ops! {
        fn splat(x: f32) -> F { [_mm256_set1_ps(x); 2] }
        fn load(p: *const f32) -> F { [_mm256_loadu_ps(p), _mm256_loadu_ps(p.add(8))] }
        fn store(p: *mut f32, a: F) {{
            _mm256_storeu_ps(p, a[0]);
            _mm256_storeu_ps(p.add(8), a[1]);
        }}
        fn load_f16(p: *const u16) -> F {
            [_mm256_cvtph_ps(_mm_loadu_si128(p.cast())), _mm256_cvtph_ps(_mm_loadu_si128(p.add(8).cast()))]
        }
        fn store_f16(p: *mut u16, a: F) {{
            _mm_storeu_si128(p.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(a[0]));
            _mm_storeu_si128(p.add(8).cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(a[1]));
        }}
        fn add(a: F, b: F) -> F { [_mm256_add_ps(a[0], b[0]), _mm256_add_ps(a[1], b[1])] }
        fn sub(a: F, b: F) -> F { [_mm256_sub_ps(a[0], b[0]), _mm256_sub_ps(a[1], b[1])] }
        fn mul(a: F, b: F) -> F { [_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])] }
        fn div(a: F, b: F) -> F { [_mm256_div_ps(a[0], b[0]), _mm256_div_ps(a[1], b[1])] }
        fn max(a: F, b: F) -> F { [_mm256_max_ps(a[0], b[0]), _mm256_max_ps(a[1], b[1])] }
        fn min(a: F, b: F) -> F { [_mm256_min_ps(a[0], b[0]), _mm256_min_ps(a[1], b[1])] }
        fn fma(a: F, b: F, c: F) -> F {
            [_mm256_fmadd_ps(a[0], b[0], c[0]), _mm256_fmadd_ps(a[1], b[1], c[1])]
        }
        fn abs(a: F) -> F {{
            let sign = _mm256_set1_ps(-0.0);
            [_mm256_andnot_ps(sign, a[0]), _mm256_andnot_ps(sign, a[1])]
        }}
        fn sum(a: F) -> f32 { sum8(_mm256_add_ps(a[0], a[1])) }
        fn largest(a: F) -> f32 {{
            let a = _mm256_max_ps(a[0], a[1]);
            let a = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let a = _mm_max_ps(a, _mm_movehl_ps(a, a));
            _mm_cvtss_f32(_mm_max_ss(a, _mm_shuffle_ps::<1>(a, a)))
        }}
        fn round(a: F) -> F {
            [_mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a[0]),
             _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a[1])]
        }
        fn scale(a: F, n: F) -> F {{
            let n = [_mm256_cvtps_epi32(n[0]), _mm256_cvtps_epi32(n[1])];
            let n = Self::shl_int::<23>(Self::add_int(n, Self::splat_int(127)));
            Self::mul(a, Self::bits_to_float(n))
        }}
        fn transpose(m: &mut [F; 16]) {{
            let source = *m;
            for i in 0..2 {
                for j in 0..2 {
                    let part = transpose8([
                        source[8 * i][j], source[8 * i + 1][j], source[8 * i + 2][j],
                        source[8 * i + 3][j], source[8 * i + 4][j], source[8 * i + 5][j],
                        source[8 * i + 6][j], source[8 * i + 7][j],
                    ]);
                    for (r, row) in part.into_iter().enumerate() {
                        m[8 * j + r][i] = row;
                    }
                }
            }
        }}
        fn to_int(a: F) -> I { [_mm256_cvtps_epi32(a[0]), _mm256_cvtps_epi32(a[1])] }

        fn splat_int(x: i32) -> I { [_mm256_set1_epi32(x); 2] }
        fn load_u8(p: *const u8) -> I {{
            let x = _mm_loadu_si128(p.cast());
            [_mm256_cvtepu8_epi32(x), _mm256_cvtepu8_epi32(_mm_unpackhi_epi64(x, x))]
        }}
        fn load_i8(p: *const i8) -> I {{
            let x = _mm_loadu_si128(p.cast());
            [_mm256_cvtepi8_epi32(x), _mm256_cvtepi8_epi32(_mm_unpackhi_epi64(x, x))]
        }}
        fn load_u16(p: *const u16) -> I {
            [_mm256_cvtepu16_epi32(_mm_loadu_si128(p.cast())),
             _mm256_cvtepu16_epi32(_mm_loadu_si128(p.add(8).cast()))]
        }
        fn store_i8(p: *mut i8, a: I) {{
            let x = _mm256_permute4x64_epi64::<0b1101_1000>(_mm256_packs_epi32(a[0], a[1]));
            let x = _mm_packs_epi16(_mm256_castsi256_si128(x), _mm256_extracti128_si256::<1>(x));
            _mm_storeu_si128(p.cast(), x);
        }}
        fn add_int(a: I, b: I) -> I { [_mm256_add_epi32(a[0], b[0]), _mm256_add_epi32(a[1], b[1])] }
        fn and_int(a: I, b: I) -> I { [_mm256_and_si256(a[0], b[0]), _mm256_and_si256(a[1], b[1])] }
        fn or_int(a: I, b: I) -> I { [_mm256_or_si256(a[0], b[0]), _mm256_or_si256(a[1], b[1])] }
        fn xor_int(a: I, b: I) -> I { [_mm256_xor_si256(a[0], b[0]), _mm256_xor_si256(a[1], b[1])] }
        fn half_bits_to_float(a: I) -> F {{
            let x = _mm256_permute4x64_epi64::<0b1101_1000>(_mm256_packus_epi32(a[0], a[1]));
            [_mm256_cvtph_ps(_mm256_castsi256_si128(x)), _mm256_cvtph_ps(_mm256_extracti128_si256::<1>(x))]
        }}
        fn shl_int<const N: u32>(a: I) -> I {{
            let n = _mm_cvtsi32_si128(N as i32);
            [_mm256_sll_epi32(a[0], n), _mm256_sll_epi32(a[1], n)]
        }}
        fn shr_int<const N: u32>(a: I) -> I {{
            let n = _mm_cvtsi32_si128(N as i32);
            [_mm256_srl_epi32(a[0], n), _mm256_srl_epi32(a[1], n)]
        }}
        fn sum_int(a: I) -> i32 {{
            let a = _mm256_add_epi32(a[0], a[1]);
            let a = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256::<1>(a));
            let a = _mm_add_epi32(a, _mm_unpackhi_epi64(a, a));
            _mm_cvtsi128_si32(a).wrapping_add(_mm_extract_epi32::<1>(a))
        }}
        fn to_float(a: I) -> F { [_mm256_cvtepi32_ps(a[0]), _mm256_cvtepi32_ps(a[1])] }
        fn bits_to_float(a: I) -> F { [_mm256_castsi256_ps(a[0]), _mm256_castsi256_ps(a[1])] }

        fn load_bytes(p: *const u8) -> I {
            [_mm256_loadu_si256(p.cast()), _mm256_loadu_si256(p.add(32).cast())]
        }
        fn shr_mask<const N: u32>(a: I, mask: u8) -> I {{
            let (n, m) = (_mm_cvtsi32_si128(N as i32), _mm256_set1_epi8(mask as i8));
            [_mm256_and_si256(_mm256_srl_epi16(a[0], n), m), _mm256_and_si256(_mm256_srl_epi16(a[1], n), m)]
        }}
        fn shl_mask<const N: u32>(a: I, mask: u8) -> I {{
            let (n, m) = (_mm_cvtsi32_si128(N as i32), _mm256_set1_epi8(mask as i8));
            [_mm256_and_si256(_mm256_sll_epi16(a[0], n), m), _mm256_and_si256(_mm256_sll_epi16(a[1], n), m)]
        }}
        fn or_bytes(a: I, b: I) -> I { [_mm256_or_si256(a[0], b[0]), _mm256_or_si256(a[1], b[1])] }
        fn lookup(table: *const u8, a: I) -> I {{
            let t = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.cast()));
            [_mm256_shuffle_epi8(t, a[0]), _mm256_shuffle_epi8(t, a[1])]
        }}
        fn prepare_signed(a: I) -> I { a }
        fn dot16<const KIND: u8>(acc: I, w: [I; 4], acts: *const i8) -> I {
            [dot16_half::<KIND>(acc[0], [w[0][0], w[1][0], w[2][0], w[3][0]], acts),
             dot16_half::<KIND>(acc[1], [w[0][1], w[1][1], w[2][1], w[3][1]], acts)]
        }
    }
}
