//! Sums, products and the moving of row parts.

use infr_graph::{Node, SliceSpec};

use super::Context;
use crate::par::for_parts;

/// A function of two values; the second may have one element per part of the first's row.
pub(crate) fn binary(
    cx: &Context<'_>,
    node: &Node,
    out: &mut [f32],
    f: impl Fn(f32, f32) -> f32 + Sync,
) {
    let (a, b) = (cx.input(node, 0), cx.input(node, 1));
    let (width, parts) = (cx.width(node, 0), cx.width(node, 1));
    for_parts(cx.pool, out, width, |row, out| {
        let (a, b) = (&a[row * width..][..width], &b[row * parts..][..parts]);
        if parts == width {
            return out.iter_mut().zip(a).zip(b).for_each(|((out, a), b)| *out = f(*a, *b));
        }
        let part = width / parts;
        for ((out, a), b) in out.chunks_mut(part).zip(a.chunks(part)).zip(b) {
            out.iter_mut().zip(a).for_each(|(out, a)| *out = f(*a, *b));
        }
    });
}

/// A function of a value and a weight that is repeated along the row.
pub(crate) fn with_weight(
    cx: &Context<'_>,
    node: &Node,
    out: &mut [f32],
    f: impl Fn(f32, f32) -> f32 + Sync,
) {
    let weight = cx.vector(node, 0).unwrap_or(&[]);
    let (x, width) = (cx.input(node, 0), cx.width(node, 0));
    for_parts(cx.pool, out, width, |row, out| {
        let parts = out.chunks_mut(weight.len()).zip(x[row * width..].chunks(weight.len()));
        for (out, x) in parts {
            out.iter_mut().zip(x).zip(weight).for_each(|((out, x), w)| *out = f(*x, *w));
        }
    });
}

/// A function of every element.
pub(crate) fn map(cx: &Context<'_>, node: &Node, out: &mut [f32], f: impl Fn(f32) -> f32 + Sync) {
    const PART: usize = 4096;
    let x = cx.input(node, 0);
    for_parts(cx.pool, out, PART, |part, out| {
        out.iter_mut().zip(&x[part * PART..]).for_each(|(out, x)| *out = f(*x));
    });
}

/// Some elements of every part of the row.
pub(crate) fn slice(cx: &Context<'_>, node: &Node, spec: SliceSpec, out: &mut [f32]) {
    let (start, len, groups) = (spec.start as usize, spec.len as usize, spec.groups as usize);
    let (x, width) = (cx.input(node, 0), cx.width(node, 0));
    for_parts(cx.pool, out, groups * len, |row, out| {
        let parts = x[row * width..][..width].chunks(width / groups);
        for (out, x) in out.chunks_mut(len).zip(parts) {
            out.copy_from_slice(&x[start..start + len]);
        }
    });
}

/// Part by part, the first value's elements and then the second's.
pub(crate) fn concat(cx: &Context<'_>, node: &Node, groups: u32, out: &mut [f32]) {
    let groups = groups as usize;
    let (a, a_width) = (cx.input(node, 0), cx.width(node, 0));
    let (b, b_width) = (cx.input(node, 1), cx.width(node, 1));
    for_parts(cx.pool, out, a_width + b_width, |row, out| {
        let a = a[row * a_width..][..a_width].chunks(a_width / groups);
        let b = b[row * b_width..][..b_width].chunks(b_width / groups);
        for (out, (a, b)) in out.chunks_mut((a_width + b_width) / groups).zip(a.zip(b)) {
            out[..a.len()].copy_from_slice(a);
            out[a.len()..].copy_from_slice(b);
        }
    });
}
