//! Sums, products and the moving of row parts.

use infr_graph::SliceSpec;

use crate::maker::{Case, Maker};
use crate::tolerance::Tolerance;

pub(crate) fn cases() -> Vec<Case> {
    let mut out = Vec::new();
    for rows in [1, 4] {
        for (a, b) in [(96, 96), (96, 1), (96, 4), (577, 577), (577, 1), (35, 7)] {
            let mut m = Maker::new(60, &[rows]);
            let (x, y) = (m.input(a, 1.0), m.input(b, 1.0));
            let sum = m.builder.add(x, y);
            let product = m.builder.mul(x, y);
            let name = format!("add and mul {a} {b} x {rows}");
            out.push(m.finish(name, &[sum, product], Tolerance::F32));
        }
        for (width, len) in [(96, 96), (96, 1), (96, 32), (577, 577)] {
            let mut m = Maker::new(61, &[rows]);
            let x = m.input(width, 1.0);
            let w = m.vector(&[len], 1.0, 1.0);
            let sum = m.builder.add_weight(x, w);
            let product = m.builder.mul_weight(x, w);
            let name = format!("add_weight and mul_weight {width} {len} x {rows}");
            out.push(m.finish(name, &[sum, product], Tolerance::F32));
        }
        let mut m = Maker::new(62, &[rows]);
        let x = m.input(100, 20.0);
        let scaled = m.builder.scale(x, -0.37);
        let capped = m.builder.softcap(x, 30.0);
        out.push(m.finish(
            format!("scale and softcap x {rows}"),
            &[scaled, capped],
            Tolerance::F32,
        ));
        out.extend(parts(rows));
    }
    out
}

fn parts(rows: u32) -> Vec<Case> {
    let mut out = Vec::new();
    for (width, groups, start, len) in
        [(96, 1, 0, 96), (96, 3, 8, 16), (60, 4, 14, 1), (50, 5, 0, 7)]
    {
        let mut m = Maker::new(63, &[rows]);
        let x = m.input(width, 1.0);
        let y = m.builder.slice(x, SliceSpec { groups, start, len });
        let name = format!("slice {width} {groups} {start} {len} x {rows}");
        out.push(m.finish(name, &[y], Tolerance::EXACT));
    }
    for (a, b, groups) in [(64, 32, 1), (64, 32, 4), (9, 3, 3)] {
        let mut m = Maker::new(64, &[rows]);
        let (x, y) = (m.input(a, 1.0), m.input(b, 1.0));
        let z = m.builder.concat(x, y, groups);
        let name = format!("concat {a} {b} {groups} x {rows}");
        out.push(m.finish(name, &[z], Tolerance::EXACT));
    }
    out
}
