//! One 16-lane vector interface over every instruction set, so that each kernel is written once.
//!
//! A *lane* is one weight row (matrix kernels) or one of 16 neighbouring elements (row kernels). All
//! levels use 16 lanes and the same order of reductions, so levels with fused multiply-add agree bit for bit.
//! Kernels are `#[inline(always)]` functions generic over [`Simd`]; `simd_entry!` stamps out one
//! `#[target_feature]` entry per level, into which everything is inlined.

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
#[cfg(target_arch = "aarch64")]
pub(crate) mod neon;
pub(crate) mod scalar;

/// The instruction set that the kernels use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SimdLevel {
    /// Plain loops, available everywhere.
    Scalar,
    /// AVX2 with FMA and F16C.
    Avx2,
    /// AVX-512 F, BW, VL and DQ with VNNI.
    Avx512Vnni,
    /// Arm NEON with the dot-product instructions.
    Neon,
}

impl SimdLevel {
    /// All levels, slowest first.
    pub const ALL: [SimdLevel; 4] =
        [SimdLevel::Scalar, SimdLevel::Avx2, SimdLevel::Neon, SimdLevel::Avx512Vnni];

    /// Whether this processor can run the level.
    pub fn is_available(self) -> bool {
        match self {
            SimdLevel::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("fma")
                    && is_x86_feature_detected!("f16c")
            }
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx512Vnni => {
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vnni")
                    && SimdLevel::Avx2.is_available()
            }
            #[cfg(target_arch = "aarch64")]
            SimdLevel::Neon => std::arch::is_aarch64_feature_detected!("dotprod"),
            #[cfg(target_arch = "aarch64")]
            SimdLevel::Avx2 | SimdLevel::Avx512Vnni => false,
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Neon => false,
            #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
            SimdLevel::Avx2 | SimdLevel::Avx512Vnni | SimdLevel::Neon => false,
        }
    }

    /// The fastest level of this processor.
    pub fn detect() -> SimdLevel {
        SimdLevel::ALL.into_iter().rfind(|l| l.is_available()).unwrap_or(SimdLevel::Scalar)
    }

    /// This level when the processor has it, otherwise the scalar one.
    pub fn or_scalar(self) -> SimdLevel {
        if self.is_available() { self } else { SimdLevel::Scalar }
    }
}

/// Lanes of every vector, and weight rows of one packed group.
pub(crate) const LANES: usize = 16;

/// Codes are at most 31: four products of a pair fit 16 bits.
pub(crate) const NARROW: u8 = 0;
/// Codes are at most 63: two products of a pair fit 16 bits.
pub(crate) const WIDE: u8 = 1;
/// Codes are signed bytes.
pub(crate) const SIGNED: u8 = 2;

/// Sixteen lanes of `f32` ([`Simd::F`]), of `i32` ([`Simd::I`]) and 64 bytes ([`Simd::V`], four per lane).
///
/// # Safety
/// Every function requires that the processor has the level's instructions and that the pointers are
/// valid for the bytes that the function's name and types say.
pub(crate) trait Simd: Copy {
    type F: Copy;
    type I: Copy;
    type V: Copy;
    /// Activation rows that one kernel call holds in registers.
    const MAX_ROWS: usize;
    /// Whether signed codes enter [`Simd::dot16`] with 128 added (by [`Simd::prepare_signed`]).
    const SIGNED_BIASED: bool;

    unsafe fn splat(x: f32) -> Self::F;
    unsafe fn load(p: *const f32) -> Self::F;
    unsafe fn store(p: *mut f32, a: Self::F);
    unsafe fn load_f16(p: *const u16) -> Self::F;
    unsafe fn store_f16(p: *mut u16, a: Self::F);
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn sub(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn div(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn max(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn min(a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c`.
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    unsafe fn abs(a: Self::F) -> Self::F;
    /// Sum of the lanes, halving: lane i with i + 8, then 4, 2, 1.
    unsafe fn sum(a: Self::F) -> f32;
    /// Largest lane.
    unsafe fn largest(a: Self::F) -> f32;
    /// To the nearest whole number, ties to even.
    unsafe fn round(a: Self::F) -> Self::F;
    /// `a * 2^n` for whole `n` in -127..=127; zero for the lowest.
    unsafe fn scale(a: Self::F, n: Self::F) -> Self::F;
    /// Exchanges rows and lanes.
    unsafe fn transpose(rows: &mut [Self::F; LANES]);
    /// To the nearest integer, ties to even.
    unsafe fn to_int(a: Self::F) -> Self::I;

    unsafe fn splat_int(x: i32) -> Self::I;
    unsafe fn load_u8(p: *const u8) -> Self::I;
    unsafe fn load_i8(p: *const i8) -> Self::I;
    unsafe fn load_u16(p: *const u16) -> Self::I;
    /// Stores the lanes as bytes; they are within -128..=127.
    unsafe fn store_i8(p: *mut i8, a: Self::I);
    unsafe fn add_int(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn and_int(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn or_int(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn xor_int(a: Self::I, b: Self::I) -> Self::I;
    /// The low halves of the lanes as half-precision floats.
    unsafe fn half_bits_to_float(a: Self::I) -> Self::F;
    unsafe fn shl_int<const N: u32>(a: Self::I) -> Self::I;
    unsafe fn shr_int<const N: u32>(a: Self::I) -> Self::I;
    unsafe fn sum_int(a: Self::I) -> i32;
    unsafe fn to_float(a: Self::I) -> Self::F;
    /// The lanes' bits as floats.
    unsafe fn bits_to_float(a: Self::I) -> Self::F;

    unsafe fn load_bytes(p: *const u8) -> Self::V;
    /// Every byte shifted right by `N`, then masked with `mask`.
    unsafe fn shr_mask<const N: u32>(a: Self::V, mask: u8) -> Self::V;
    /// Every byte shifted left by `N`, then masked with `mask`.
    unsafe fn shl_mask<const N: u32>(a: Self::V, mask: u8) -> Self::V;
    unsafe fn or_bytes(a: Self::V, b: Self::V) -> Self::V;
    /// `table[byte]` for bytes below 16.
    unsafe fn lookup(table: *const u8, a: Self::V) -> Self::V;
    unsafe fn prepare_signed(a: Self::V) -> Self::V;
    /// Per lane: `acc` + the products of 16 codes (four vectors of four) with the 16 bytes at `acts`.
    unsafe fn dot16<const KIND: u8>(acc: Self::I, w: [Self::V; 4], acts: *const i8) -> Self::I;
}

/// Declares a safe function that runs a generic kernel at the given level.
///
/// `simd_entry!(fn name(args) -> ret = generic_kernel);` expects `generic_kernel<S: Simd>(args)`,
/// an `unsafe` function whose only requirement is that the level exists (the caller passes a checked
/// level) plus what its own documentation asks.
macro_rules! simd_entry {
    ($(#[$doc:meta])* $vis:vis unsafe fn $name:ident $(<$(const $cn:ident: $ct:ty),+>)? ($($arg:ident: $ty:ty),* $(,)?) = $kernel:ident) => {
        $(#[$doc])*
        #[allow(clippy::too_many_arguments)]
        $vis unsafe fn $name $(<$(const $cn: $ct),+>)? (level: $crate::fast::simd::SimdLevel, $($arg: $ty),*) {
            use $crate::fast::simd::SimdLevel;
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
            unsafe fn avx512 $(<$(const $cn: $ct),+>)? ($($arg: $ty),*) {
                type S = $crate::fast::simd::avx512::Avx512;
                // SAFETY: forwarded to the caller.
                unsafe { $kernel::<S $($(, $cn)+)?>($($arg),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            unsafe fn avx2 $(<$(const $cn: $ct),+>)? ($($arg: $ty),*) {
                type S = $crate::fast::simd::avx2::Avx2;
                // SAFETY: forwarded to the caller.
                unsafe { $kernel::<S $($(, $cn)+)?>($($arg),*) }
            }
            #[cfg(target_arch = "aarch64")]
            #[target_feature(enable = "neon,dotprod")]
            unsafe fn neon $(<$(const $cn: $ct),+>)? ($($arg: $ty),*) {
                type S = $crate::fast::simd::neon::Neon;
                // SAFETY: forwarded to the caller.
                unsafe { $kernel::<S $($(, $cn)+)?>($($arg),*) }
            }
            debug_assert!(level.is_available());
            // SAFETY: the caller passes an available level and keeps the kernel's own contract.
            unsafe {
                match level {
                    #[cfg(target_arch = "x86_64")]
                    SimdLevel::Avx512Vnni => avx512 $(::<$($cn),+>)? ($($arg),*),
                    #[cfg(target_arch = "x86_64")]
                    SimdLevel::Avx2 => avx2 $(::<$($cn),+>)? ($($arg),*),
                    #[cfg(target_arch = "aarch64")]
                    SimdLevel::Neon => neon $(::<$($cn),+>)? ($($arg),*),
                    #[allow(unreachable_patterns)]
                    SimdLevel::Scalar | SimdLevel::Avx2 | SimdLevel::Avx512Vnni | SimdLevel::Neon => {
                        $kernel::<$crate::fast::simd::scalar::Scalar $($(, $cn)+)?>($($arg),*)
                    }
                }
            }
        }
    };
}
pub(crate) use simd_entry;
