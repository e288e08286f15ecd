//! AVX-512 with VNNI: one register per 16 lanes.

use std::arch::x86_64::*;

use super::Simd;

/// AVX-512 F, BW, VL, DQ and VNNI.
#[derive(Clone, Copy)]
pub(crate) struct Avx512;

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

impl Simd for Avx512 {
    type F = __m512;
    type I = __m512i;
    type V = __m512i;
    const MAX_ROWS: usize = 16;
    const SIGNED_BIASED: bool = true;

    ops! {
        fn splat(x: f32) -> __m512 { _mm512_set1_ps(x) }
        fn load(p: *const f32) -> __m512 { _mm512_loadu_ps(p) }
        fn store(p: *mut f32, a: __m512) { _mm512_storeu_ps(p, a) }
        fn load_f16(p: *const u16) -> __m512 { _mm512_cvtph_ps(_mm256_loadu_si256(p.cast())) }
        fn store_f16(p: *mut u16, a: __m512) {
            _mm256_storeu_si256(p.cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(a))
        }
        fn add(a: __m512, b: __m512) -> __m512 { _mm512_add_ps(a, b) }
        fn sub(a: __m512, b: __m512) -> __m512 { _mm512_sub_ps(a, b) }
        fn mul(a: __m512, b: __m512) -> __m512 { _mm512_mul_ps(a, b) }
        fn div(a: __m512, b: __m512) -> __m512 { _mm512_div_ps(a, b) }
        fn max(a: __m512, b: __m512) -> __m512 { _mm512_max_ps(a, b) }
        fn min(a: __m512, b: __m512) -> __m512 { _mm512_min_ps(a, b) }
        fn fma(a: __m512, b: __m512, c: __m512) -> __m512 { _mm512_fmadd_ps(a, b, c) }
        fn abs(a: __m512) -> __m512 { _mm512_abs_ps(a) }
        fn sum(a: __m512) -> f32 {{
            let b = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps::<1>(a));
            super::avx2::sum8(b)
        }}
        fn largest(a: __m512) -> f32 { _mm512_reduce_max_ps(a) }
        fn round(a: __m512) -> __m512 {
            _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a)
        }
        fn scale(a: __m512, n: __m512) -> __m512 {{
            let n = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
            _mm512_mul_ps(a, _mm512_castsi512_ps(_mm512_slli_epi32::<23>(n)))
        }}
        fn transpose(m: &mut [__m512; 16]) {{
            let mut t = *m;
            // Pairs of rows, then fours within each 128-bit part.
            macro_rules! four { ($i:literal) => {
                let a = _mm512_castps_pd(_mm512_unpacklo_ps(m[$i], m[$i + 1]));
                let b = _mm512_castps_pd(_mm512_unpackhi_ps(m[$i], m[$i + 1]));
                let c = _mm512_castps_pd(_mm512_unpacklo_ps(m[$i + 2], m[$i + 3]));
                let d = _mm512_castps_pd(_mm512_unpackhi_ps(m[$i + 2], m[$i + 3]));
                t[$i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
                t[$i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
                t[$i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
                t[$i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
            } }
            four!(0); four!(4); four!(8); four!(12);
            // Then the 4 x 4 grid of 128-bit parts.
            macro_rules! parts { ($i:literal) => {
                let a = _mm512_shuffle_f32x4::<0x88>(t[$i], t[$i + 4]);
                let b = _mm512_shuffle_f32x4::<0xDD>(t[$i], t[$i + 4]);
                let c = _mm512_shuffle_f32x4::<0x88>(t[$i + 8], t[$i + 12]);
                let d = _mm512_shuffle_f32x4::<0xDD>(t[$i + 8], t[$i + 12]);
                m[$i] = _mm512_shuffle_f32x4::<0x88>(a, c);
                m[$i + 8] = _mm512_shuffle_f32x4::<0xDD>(a, c);
                m[$i + 4] = _mm512_shuffle_f32x4::<0x88>(b, d);
                m[$i + 12] = _mm512_shuffle_f32x4::<0xDD>(b, d);
            } }
            parts!(0); parts!(1); parts!(2); parts!(3);
        }}
        fn to_int(a: __m512) -> __m512i { _mm512_cvtps_epi32(a) }

        fn splat_int(x: i32) -> __m512i { _mm512_set1_epi32(x) }
        fn load_u8(p: *const u8) -> __m512i { _mm512_cvtepu8_epi32(_mm_loadu_si128(p.cast())) }
        fn load_i8(p: *const i8) -> __m512i { _mm512_cvtepi8_epi32(_mm_loadu_si128(p.cast())) }
        fn load_u16(p: *const u16) -> __m512i { _mm512_cvtepu16_epi32(_mm256_loadu_si256(p.cast())) }
        fn store_i8(p: *mut i8, a: __m512i) { _mm_storeu_si128(p.cast(), _mm512_cvtepi32_epi8(a)) }
        fn add_int(a: __m512i, b: __m512i) -> __m512i { _mm512_add_epi32(a, b) }
        fn and_int(a: __m512i, b: __m512i) -> __m512i { _mm512_and_si512(a, b) }
        fn or_int(a: __m512i, b: __m512i) -> __m512i { _mm512_or_si512(a, b) }
        fn xor_int(a: __m512i, b: __m512i) -> __m512i { _mm512_xor_si512(a, b) }
        fn half_bits_to_float(a: __m512i) -> __m512 { _mm512_cvtph_ps(_mm512_cvtepi32_epi16(a)) }
        fn shl_int<const N: u32>(a: __m512i) -> __m512i { _mm512_slli_epi32::<N>(a) }
        fn shr_int<const N: u32>(a: __m512i) -> __m512i { _mm512_srli_epi32::<N>(a) }
        fn sum_int(a: __m512i) -> i32 { _mm512_reduce_add_epi32(a) }
        fn to_float(a: __m512i) -> __m512 { _mm512_cvtepi32_ps(a) }
        fn bits_to_float(a: __m512i) -> __m512 { _mm512_castsi512_ps(a) }

        fn load_bytes(p: *const u8) -> __m512i { _mm512_loadu_si512(p.cast()) }
        fn shr_mask<const N: u32>(a: __m512i, mask: u8) -> __m512i {
            _mm512_and_si512(_mm512_srli_epi16::<N>(a), _mm512_set1_epi8(mask as i8))
        }
        fn shl_mask<const N: u32>(a: __m512i, mask: u8) -> __m512i {
            _mm512_and_si512(_mm512_slli_epi16::<N>(a), _mm512_set1_epi8(mask as i8))
        }
        fn or_bytes(a: __m512i, b: __m512i) -> __m512i { _mm512_or_si512(a, b) }
        fn lookup(table: *const u8, a: __m512i) -> __m512i {
            _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128(table.cast())), a)
        }
        fn prepare_signed(a: __m512i) -> __m512i {
            _mm512_xor_si512(a, _mm512_set1_epi8(-128))
        }
        fn dot16<const KIND: u8>(acc: __m512i, w: [__m512i; 4], acts: *const i8) -> __m512i {{
            let mut acc = acc;
            let acts = acts.cast::<i32>();
            acc = _mm512_dpbusd_epi32(acc, w[0], _mm512_set1_epi32(acts.read_unaligned()));
            acc = _mm512_dpbusd_epi32(acc, w[1], _mm512_set1_epi32(acts.add(1).read_unaligned()));
            acc = _mm512_dpbusd_epi32(acc, w[2], _mm512_set1_epi32(acts.add(2).read_unaligned()));
            _mm512_dpbusd_epi32(acc, w[3], _mm512_set1_epi32(acts.add(3).read_unaligned()))
        }}
    }
}
