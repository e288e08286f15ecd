//! One table of cases per group of ops: shapes, types and edge sizes.

mod act;
mod attention;
mod elementwise;
mod expert;
mod fused;
mod linear;
mod norm;
mod recurrent;
mod rope;
mod sample;

pub use crate::maker::Case;

/// All cases of all ops.
pub fn cases() -> Vec<Case> {
    let tables: [fn() -> Vec<Case>; 10] = [
        linear::cases,
        expert::cases,
        norm::cases,
        rope::cases,
        attention::cases,
        act::cases,
        elementwise::cases,
        recurrent::cases,
        sample::cases,
        fused::cases,
    ];
    tables.iter().flat_map(|table| table()).collect()
}
