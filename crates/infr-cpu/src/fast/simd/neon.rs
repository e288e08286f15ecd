//! Arm NEON with the dot-product instructions: four registers per 16 lanes.
//!
//! Dot products and half-precision conversions are written as assembly, because their intrinsics are not
//! part of stable Rust.

use std::arch::aarch64::*;
use std::arch::asm;

use super::Simd;

/// NEON with dot products.
#[derive(Clone, Copy)]
pub(crate) struct Neon;

type F = [float32x4_t; 4];
type I = [int32x4_t; 4];
type V = [uint8x16_t; 4];

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

/// The same intrinsic on each of the four registers.
macro_rules! each {
    ($f:ident, $a:expr) => {
        [$f($a[0]), $f($a[1]), $f($a[2]), $f($a[3])]
    };
    ($f:ident, $a:expr, $b:expr) => {
        [$f($a[0], $b[0]), $f($a[1], $b[1]), $f($a[2], $b[2]), $f($a[3], $b[3])]
    };
    ($f:ident, $a:expr, $b:expr, $c:expr) => {
        [
            $f($a[0], $b[0], $c[0]),
            $f($a[1], $b[1], $c[1]),
            $f($a[2], $b[2], $c[2]),
            $f($a[3], $b[3], $c[3]),
        ]
    };
}

/// `acc` plus, per lane, the four products of its bytes with group `$j` of `b`.
macro_rules! sdot {
    ($acc:expr, $w:expr, $b:expr, $j:literal) => {{
        let mut acc: int32x4_t = $acc;
        asm!(
            ".arch_extension dotprod",
            concat!("sdot {0:v}.4s, {1:v}.16b, {2:v}.4b[", $j, "]"),
            inout(vreg) acc,
            in(vreg) $w,
            in(vreg_low16) $b,
            options(pure, nomem, nostack, preserves_flags)
        );
        acc
    }};
}

/// Four half-precision numbers in the low half of a register, as floats.
#[inline(always)]
fn widen(x: uint16x4_t) -> float32x4_t {
    let out: float32x4_t;
    // SAFETY: a conversion between registers that every NEON processor has.
    unsafe {
        asm!("fcvtl {0:v}.4s, {1:v}.4h", out(vreg) out, in(vreg) x,
            options(pure, nomem, nostack, preserves_flags));
    }
    out
}

/// Four floats rounded to half precision.
#[inline(always)]
fn narrow(x: float32x4_t) -> uint16x4_t {
    let out: uint16x4_t;
    // SAFETY: a conversion between registers that every NEON processor has.
    unsafe {
        asm!("fcvtn {0:v}.4h, {1:v}.4s", out(vreg) out, in(vreg) x,
            options(pure, nomem, nostack, preserves_flags));
    }
    out
}

/// Exchanges rows and lanes of a 4 x 4 matrix.
#[inline(always)]
unsafe fn transpose4(m: [float32x4_t; 4]) -> [float32x4_t; 4] {
    // SAFETY: NEON exists.
    unsafe {
        let (a, b) = (vtrn1q_f32(m[0], m[1]), vtrn2q_f32(m[0], m[1]));
        let (c, d) = (vtrn1q_f32(m[2], m[3]), vtrn2q_f32(m[2], m[3]));
        let (a, b) = (vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b));
        let (c, d) = (vreinterpretq_f64_f32(c), vreinterpretq_f64_f32(d));
        [
            vreinterpretq_f32_f64(vtrn1q_f64(a, c)),
            vreinterpretq_f32_f64(vtrn1q_f64(b, d)),
            vreinterpretq_f32_f64(vtrn2q_f64(a, c)),
            vreinterpretq_f32_f64(vtrn2q_f64(b, d)),
        ]
    }
}

impl Simd for Neon {
    type F = F;
    type I = I;
    type V = V;
    const MAX_ROWS: usize = 4;
    const SIGNED_BIASED: bool = false;

    ops! {
        fn splat(x: f32) -> F { [vdupq_n_f32(x); 4] }
        fn load(p: *const f32) -> F {
            [vld1q_f32(p), vld1q_f32(p.add(4)), vld1q_f32(p.add(8)), vld1q_f32(p.add(12))]
        }
        fn store(p: *mut f32, a: F) {{
            vst1q_f32(p, a[0]);
            vst1q_f32(p.add(4), a[1]);
            vst1q_f32(p.add(8), a[2]);
            vst1q_f32(p.add(12), a[3]);
        }}
        fn load_f16(p: *const u16) -> F {
            [widen(vld1_u16(p)), widen(vld1_u16(p.add(4))), widen(vld1_u16(p.add(8))),
             widen(vld1_u16(p.add(12)))]
        }
        fn store_f16(p: *mut u16, a: F) {{
            vst1_u16(p, narrow(a[0]));
            vst1_u16(p.add(4), narrow(a[1]));
            vst1_u16(p.add(8), narrow(a[2]));
            vst1_u16(p.add(12), narrow(a[3]));
        }}
        fn add(a: F, b: F) -> F { each!(vaddq_f32, a, b) }
        fn sub(a: F, b: F) -> F { each!(vsubq_f32, a, b) }
        fn mul(a: F, b: F) -> F { each!(vmulq_f32, a, b) }
        fn div(a: F, b: F) -> F { each!(vdivq_f32, a, b) }
        fn max(a: F, b: F) -> F { each!(vmaxq_f32, a, b) }
        fn min(a: F, b: F) -> F { each!(vminq_f32, a, b) }
        fn fma(a: F, b: F, c: F) -> F { each!(vfmaq_f32, c, a, b) }
        fn abs(a: F) -> F { each!(vabsq_f32, a) }
        fn sum(a: F) -> f32 {{
            let a = vaddq_f32(vaddq_f32(a[0], a[2]), vaddq_f32(a[1], a[3]));
            let a = vadd_f32(vget_low_f32(a), vget_high_f32(a));
            vget_lane_f32::<0>(a) + vget_lane_f32::<1>(a)
        }}
        fn largest(a: F) -> f32 {
            vmaxvq_f32(vmaxq_f32(vmaxq_f32(a[0], a[1]), vmaxq_f32(a[2], a[3])))
        }
        fn round(a: F) -> F { each!(vrndnq_f32, a) }
        fn scale(a: F, n: F) -> F {{
            let n = Self::shl_int::<23>(Self::add_int(each!(vcvtq_s32_f32, n), Self::splat_int(127)));
            Self::mul(a, Self::bits_to_float(n))
        }}
        fn transpose(m: &mut [F; 16]) {{
            let source = *m;
            for i in 0..4 {
                for j in 0..4 {
                    let part = transpose4([
                        source[4 * i][j], source[4 * i + 1][j], source[4 * i + 2][j],
                        source[4 * i + 3][j],
                    ]);
                    for (r, row) in part.into_iter().enumerate() {
                        m[4 * j + r][i] = row;
                    }
                }
            }
        }}
        fn to_int(a: F) -> I { each!(vcvtnq_s32_f32, a) }

        fn splat_int(x: i32) -> I { [vdupq_n_s32(x); 4] }
        fn load_u8(p: *const u8) -> I {{
            let x = vld1q_u8(p);
            let (low, high) = (vmovl_u8(vget_low_u8(x)), vmovl_high_u8(x));
            [vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(low))),
             vreinterpretq_s32_u32(vmovl_high_u16(low)),
             vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(high))),
             vreinterpretq_s32_u32(vmovl_high_u16(high))]
        }}
        fn load_i8(p: *const i8) -> I {{
            let x = vld1q_s8(p);
            let (low, high) = (vmovl_s8(vget_low_s8(x)), vmovl_high_s8(x));
            [vmovl_s16(vget_low_s16(low)), vmovl_high_s16(low),
             vmovl_s16(vget_low_s16(high)), vmovl_high_s16(high)]
        }}
        fn load_u16(p: *const u16) -> I {
            [vreinterpretq_s32_u32(vmovl_u16(vld1_u16(p))),
             vreinterpretq_s32_u32(vmovl_u16(vld1_u16(p.add(4)))),
             vreinterpretq_s32_u32(vmovl_u16(vld1_u16(p.add(8)))),
             vreinterpretq_s32_u32(vmovl_u16(vld1_u16(p.add(12))))]
        }
        fn store_i8(p: *mut i8, a: I) {{
            let low = vcombine_s16(vmovn_s32(a[0]), vmovn_s32(a[1]));
            let high = vcombine_s16(vmovn_s32(a[2]), vmovn_s32(a[3]));
            vst1q_s8(p, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
        }}
        fn add_int(a: I, b: I) -> I { each!(vaddq_s32, a, b) }
        fn and_int(a: I, b: I) -> I { each!(vandq_s32, a, b) }
        fn or_int(a: I, b: I) -> I { each!(vorrq_s32, a, b) }
        fn xor_int(a: I, b: I) -> I { each!(veorq_s32, a, b) }
        fn half_bits_to_float(a: I) -> F {{
            let a = [vmovn_s32(a[0]), vmovn_s32(a[1]), vmovn_s32(a[2]), vmovn_s32(a[3])];
            [widen(vreinterpret_u16_s16(a[0])), widen(vreinterpret_u16_s16(a[1])),
             widen(vreinterpret_u16_s16(a[2])), widen(vreinterpret_u16_s16(a[3]))]
        }}
        fn shl_int<const N: u32>(a: I) -> I {{
            let n = vdupq_n_s32(N as i32);
            [vshlq_s32(a[0], n), vshlq_s32(a[1], n), vshlq_s32(a[2], n), vshlq_s32(a[3], n)]
        }}
        fn shr_int<const N: u32>(a: I) -> I {{
            let n = vdupq_n_s32(-(N as i32));
            [vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(a[0]), n)),
             vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(a[1]), n)),
             vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(a[2]), n)),
             vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(a[3]), n))]
        }}
        fn sum_int(a: I) -> i32 {
            vaddvq_s32(vaddq_s32(vaddq_s32(a[0], a[1]), vaddq_s32(a[2], a[3])))
        }
        fn to_float(a: I) -> F { each!(vcvtq_f32_s32, a) }
        fn bits_to_float(a: I) -> F { each!(vreinterpretq_f32_s32, a) }

        fn load_bytes(p: *const u8) -> V {
            [vld1q_u8(p), vld1q_u8(p.add(16)), vld1q_u8(p.add(32)), vld1q_u8(p.add(48))]
        }
        fn shr_mask<const N: u32>(a: V, mask: u8) -> V {{
            let (n, m) = (vdupq_n_s8(-(N as i8)), vdupq_n_u8(mask));
            [vandq_u8(vshlq_u8(a[0], n), m), vandq_u8(vshlq_u8(a[1], n), m),
             vandq_u8(vshlq_u8(a[2], n), m), vandq_u8(vshlq_u8(a[3], n), m)]
        }}
        fn shl_mask<const N: u32>(a: V, mask: u8) -> V {{
            let (n, m) = (vdupq_n_s8(N as i8), vdupq_n_u8(mask));
            [vandq_u8(vshlq_u8(a[0], n), m), vandq_u8(vshlq_u8(a[1], n), m),
             vandq_u8(vshlq_u8(a[2], n), m), vandq_u8(vshlq_u8(a[3], n), m)]
        }}
        fn or_bytes(a: V, b: V) -> V { each!(vorrq_u8, a, b) }
        fn lookup(table: *const u8, a: V) -> V {{
            let t = vld1q_u8(table);
            [vqtbl1q_u8(t, a[0]), vqtbl1q_u8(t, a[1]), vqtbl1q_u8(t, a[2]), vqtbl1q_u8(t, a[3])]
        }}
        fn prepare_signed(a: V) -> V { a }
        fn dot16<const KIND: u8>(acc: I, w: [V; 4], acts: *const i8) -> I {{
            // All codes fit signed bytes, so one instruction serves every kind.
            let b = vld1q_s8(acts);
            let mut acc = acc;
            for r in 0..4 {
                acc[r] = sdot!(acc[r], w[0][r], b, 0);
                acc[r] = sdot!(acc[r], w[1][r], b, 1);
                acc[r] = sdot!(acc[r], w[2][r], b, 2);
                acc[r] = sdot!(acc[r], w[3][r], b, 3);
            }
            acc
        }}
    }
}
