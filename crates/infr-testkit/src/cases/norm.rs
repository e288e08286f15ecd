//! Norms, over whole rows and over heads.

use infr_graph::NormSpec;

use crate::maker::{Case, Maker};
use crate::tolerance::Tolerance;

pub(crate) fn cases() -> Vec<Case> {
    let mut out = Vec::new();
    for (width, groups) in
        [(1, 1), (7, 1), (64, 1), (576, 1), (576, 9), (1024, 8), (300, 4), (4096, 1)]
    {
        for rows in [1, 5] {
            for weighted in [false, true] {
                let mut m = Maker::new(u64::from(width), &[rows]);
                let x = m.input(width, 3.0);
                let weight = weighted.then(|| m.vector(&[width / groups], 1.0, 0.3));
                let y = m.builder.rms_norm_groups(x, weight, NormSpec { eps: 1e-5, groups });
                let name = format!("rms_norm {width}/{groups} weighted {weighted} x {rows}");
                out.push(m.finish(name, &[y], Tolerance::F32));
            }
            let mut m = Maker::new(u64::from(width), &[rows]);
            let x = m.input(width, 0.5);
            let y = m.builder.l2_norm(x, groups, 1e-6);
            out.push(m.finish(format!("l2_norm {width}/{groups} x {rows}"), &[y], Tolerance::F32));
        }
    }
    // Zero rows must not divide by zero.
    let mut m = Maker::new(1, &[2]);
    let x = m.input_of(64, vec![0.0; 128]);
    let y = m.builder.rms_norm(x, None, 1e-6);
    let z = m.builder.l2_norm(x, 2, 1e-6);
    out.push(m.finish("norms of zero".into(), &[y, z], Tolerance::EXACT));
    out
}
