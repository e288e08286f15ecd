//! The scalar level: arrays and loops, which the compiler may vectorise for the baseline target.

use super::{LANES, Simd};

/// Plain arrays of 16 lanes.
#[derive(Clone, Copy)]
pub(crate) struct Scalar;

fn map<T: Copy, U>(a: [T; LANES], f: impl Fn(T) -> U) -> [U; LANES] {
    std::array::from_fn(|i| f(a[i]))
}

fn zip<T: Copy, U>(a: [T; LANES], b: [T; LANES], f: impl Fn(T, T) -> U) -> [U; LANES] {
    std::array::from_fn(|i| f(a[i], b[i]))
}

fn halve<T: Copy>(mut a: [T; LANES], f: impl Fn(T, T) -> T) -> T {
    for width in [8, 4, 2, 1] {
        for i in 0..width {
            a[i] = f(a[i], a[i + width]);
        }
    }
    a[0]
}

macro_rules! read {
    ($p:expr, $ty:ty) => {
        // SAFETY: the trait's contract: the pointer is valid for 16 elements.
        unsafe { $p.cast::<[$ty; LANES]>().read_unaligned() }
    };
}

macro_rules! write {
    ($p:expr, $v:expr) => {{
        let v = $v;
        // SAFETY: the trait's contract: the pointer is valid for 16 elements.
        unsafe { $p.cast::<[_; LANES]>().write_unaligned(v) }
    }};
}

impl Simd for Scalar {
    type F = [f32; LANES];
    type I = [i32; LANES];
    type V = [u8; 64];
    const MAX_ROWS: usize = 2;
    const SIGNED_BIASED: bool = false;

    unsafe fn splat(x: f32) -> Self::F {
        [x; LANES]
    }
    unsafe fn load(p: *const f32) -> Self::F {
        read!(p, f32)
    }
    unsafe fn store(p: *mut f32, a: Self::F) {
        write!(p, a)
    }
    unsafe fn load_f16(p: *const u16) -> Self::F {
        map(read!(p, u16), |x| half::f16::from_bits(x).to_f32())
    }
    unsafe fn store_f16(p: *mut u16, a: Self::F) {
        write!(p, map(a, |x| half::f16::from_f32(x).to_bits()))
    }
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |x, y| x + y)
    }
    unsafe fn sub(a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |x, y| x - y)
    }
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |x, y| x * y)
    }
    unsafe fn div(a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |x, y| x / y)
    }
    unsafe fn max(a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |x, y| if x > y { x } else { y })
    }
    unsafe fn min(a: Self::F, b: Self::F) -> Self::F {
        zip(a, b, |x, y| if x < y { x } else { y })
    }
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        std::array::from_fn(|i| a[i] * b[i] + c[i])
    }
    unsafe fn abs(a: Self::F) -> Self::F {
        map(a, f32::abs)
    }
    unsafe fn sum(a: Self::F) -> f32 {
        halve(a, |x, y| x + y)
    }
    unsafe fn largest(a: Self::F) -> f32 {
        halve(a, |x, y| if x > y { x } else { y })
    }
    unsafe fn round(a: Self::F) -> Self::F {
        map(a, f32::round_ties_even)
    }
    unsafe fn scale(a: Self::F, n: Self::F) -> Self::F {
        zip(a, n, |a, n| a * f32::from_bits(((n as i32 + 127) as u32) << 23))
    }
    unsafe fn transpose(rows: &mut [Self::F; LANES]) {
        for r in 1..LANES {
            let (above, below) = rows.split_at_mut(r);
            for (c, row) in above.iter_mut().enumerate() {
                std::mem::swap(&mut row[r], &mut below[0][c]);
            }
        }
    }
    unsafe fn to_int(a: Self::F) -> Self::I {
        map(a, |x| x.round_ties_even() as i32)
    }

    unsafe fn splat_int(x: i32) -> Self::I {
        [x; LANES]
    }
    unsafe fn load_u8(p: *const u8) -> Self::I {
        map(read!(p, u8), i32::from)
    }
    unsafe fn load_i8(p: *const i8) -> Self::I {
        map(read!(p, i8), i32::from)
    }
    unsafe fn load_u16(p: *const u16) -> Self::I {
        map(read!(p, u16), i32::from)
    }
    unsafe fn store_i8(p: *mut i8, a: Self::I) {
        write!(p, map(a, |x| x as i8))
    }
    unsafe fn add_int(a: Self::I, b: Self::I) -> Self::I {
        zip(a, b, i32::wrapping_add)
    }
    unsafe fn and_int(a: Self::I, b: Self::I) -> Self::I {
        zip(a, b, |x, y| x & y)
    }
    unsafe fn or_int(a: Self::I, b: Self::I) -> Self::I {
        zip(a, b, |x, y| x | y)
    }
    unsafe fn xor_int(a: Self::I, b: Self::I) -> Self::I {
        zip(a, b, |x, y| x ^ y)
    }
    unsafe fn half_bits_to_float(a: Self::I) -> Self::F {
        map(a, |x| half::f16::from_bits(x as u16).to_f32())
    }
    unsafe fn shl_int<const N: u32>(a: Self::I) -> Self::I {
        map(a, |x| x << N)
    }
    unsafe fn shr_int<const N: u32>(a: Self::I) -> Self::I {
        map(a, |x| (x as u32 >> N) as i32)
    }
    unsafe fn sum_int(a: Self::I) -> i32 {
        halve(a, i32::wrapping_add)
    }
    unsafe fn to_float(a: Self::I) -> Self::F {
        map(a, |x| x as f32)
    }
    unsafe fn bits_to_float(a: Self::I) -> Self::F {
        map(a, |x| f32::from_bits(x as u32))
    }

    unsafe fn load_bytes(p: *const u8) -> Self::V {
        // SAFETY: the trait's contract: the pointer is valid for 64 bytes.
        unsafe { p.cast::<[u8; 64]>().read_unaligned() }
    }
    unsafe fn shr_mask<const N: u32>(a: Self::V, mask: u8) -> Self::V {
        a.map(|x| (x >> N) & mask)
    }
    unsafe fn shl_mask<const N: u32>(a: Self::V, mask: u8) -> Self::V {
        a.map(|x| (x << N) & mask)
    }
    unsafe fn or_bytes(a: Self::V, b: Self::V) -> Self::V {
        std::array::from_fn(|i| a[i] | b[i])
    }
    unsafe fn lookup(table: *const u8, a: Self::V) -> Self::V {
        let table: [u8; LANES] = read!(table, u8);
        a.map(|x| table[usize::from(x & 15)])
    }
    unsafe fn prepare_signed(a: Self::V) -> Self::V {
        a
    }
    unsafe fn dot16<const KIND: u8>(acc: Self::I, w: [Self::V; 4], acts: *const i8) -> Self::I {
        let acts: [i8; LANES] = read!(acts, i8);
        let mut out = acc;
        for (j, codes) in w.iter().enumerate() {
            for (lane, sum) in out.iter_mut().enumerate() {
                for i in 0..4 {
                    let code = codes[4 * lane + i];
                    let code =
                        if KIND == super::SIGNED { i32::from(code as i8) } else { i32::from(code) };
                    *sum += code * i32::from(acts[4 * j + i]);
                }
            }
        }
        out
    }
}
