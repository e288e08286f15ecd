//! Cache writes and attention: reaches, head layouts, cache types, ragged batches on scattered pages.

use infr_graph::{AttnSpec, Reach};
use infr_tensor::DType;

use crate::maker::{Case, Maker};
use crate::tolerance::Tolerance;

/// Shape of a case, beside the spec.
#[derive(Debug, Clone, Copy)]
struct Setting<'a> {
    lengths: &'a [u32],
    page_len: u32,
    dtype: DType,
    reach: Reach,
    /// Values are the first part of the keys.
    aliased: bool,
}

pub(crate) fn cases() -> Vec<Case> {
    let plain = AttnSpec {
        heads: 4,
        kv_heads: 2,
        key_dim: 32,
        value_dim: 32,
        scale: 32f32.sqrt().recip(),
        softcap: None,
        sinks: false,
    };
    let setting = Setting {
        lengths: &[5],
        page_len: 4,
        dtype: DType::F16,
        reach: Reach::Full,
        aliased: false,
    };
    let mut out = Vec::new();
    // Batches: one row, one chunk, ragged, beyond one page and one tile of 64.
    for lengths in [&[1][..], &[70], &[3, 1, 9], &[1, 1, 1, 130]] {
        for (dtype, page_len) in [(DType::F32, 4), (DType::F16, 64), (DType::F16, 16)] {
            out.push(case(plain, Setting { lengths, dtype, page_len, ..setting }));
        }
    }
    for dtype in [DType::BF16, DType::Q8_0] {
        out.push(case(plain, Setting { lengths: &[20, 2], dtype, ..setting }));
    }
    for reach in [Reach::Window(1), Reach::Window(6), Reach::Chunk(8), Reach::Symmetric(6)] {
        out.push(case(plain, Setting { lengths: &[21, 4], reach, ..setting }));
    }
    for spec in [
        AttnSpec { kv_heads: 4, ..plain },
        AttnSpec { kv_heads: 1, heads: 8, ..plain },
        AttnSpec { heads: 9, kv_heads: 3, key_dim: 64, value_dim: 64, ..plain },
        AttnSpec { key_dim: 256, value_dim: 256, kv_heads: 1, scale: 1.0 / 16.0, ..plain },
        AttnSpec { key_dim: 48, value_dim: 32, ..plain },
        AttnSpec { key_dim: 20, value_dim: 12, ..plain },
        AttnSpec { softcap: Some(2.0), ..plain },
        AttnSpec { sinks: true, ..plain },
        AttnSpec { sinks: true, softcap: Some(5.0), scale: 1.0, ..plain },
        AttnSpec { scale: 3.0, ..plain },
    ] {
        for lengths in [&[1, 13][..], &[80]] {
            out.push(case(spec, Setting { lengths, ..setting }));
        }
    }
    let latent = AttnSpec { heads: 4, kv_heads: 1, key_dim: 80, value_dim: 64, ..plain };
    for lengths in [&[1, 5][..], &[70]] {
        out.push(case(latent, Setting { lengths, aliased: true, ..setting }));
    }
    out
}

fn case(spec: AttnSpec, setting: Setting<'_>) -> Case {
    let mut m = Maker::new(40, setting.lengths);
    m.page_len = setting.page_len;
    let (key_width, value_width) = (spec.kv_heads * spec.key_dim, spec.kv_heads * spec.value_dim);
    let value_width = if setting.aliased { 0 } else { value_width };
    let cache = m.cache((key_width, value_width), setting.dtype, setting.reach);
    let q = m.input(spec.heads * spec.key_dim, 1.0);
    let k = m.input(key_width, 1.0);
    let v = (!setting.aliased).then(|| m.input(value_width, 1.0));
    let sinks = spec.sinks.then(|| m.vector(&[spec.heads], 0.0, 1.0));
    m.builder.kv_write(cache, k, v);
    let y = m.builder.attention(cache, q, spec, sinks);
    let tolerance = match setting.dtype {
        DType::F32 => Tolerance { max: 2e-4, rms: 4e-5 },
        // Both sides read the same rounded rows; a kernel may keep its weights in half precision too.
        _ => Tolerance { max: 8e-3, rms: 1.5e-3 },
    };
    m.finish(format!("attention {spec:?} {setting:?}"), &[y], tolerance)
}
