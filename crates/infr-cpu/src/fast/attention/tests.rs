//! Attention against a plain definition in `f64`, and the invariance of a row.

use half::f16;
use infr_tensor::DType;

use super::{AttentionRows, AttentionSeq, AttentionShape, Interval, KvCache, KvData, attention};
use crate::fast::testing::Rng;
use crate::fast::{Runner, SimdLevel};
use crate::threads::ThreadPool;

const PAGES: usize = 40;

/// A cache with random content in the given type, and the values that it stands for.
struct Store {
    values: Vec<f32>,
    half: Vec<f16>,
    coded: Vec<u8>,
}

impl Store {
    fn new(rng: &mut Rng, len: usize, dtype: DType) -> Store {
        let mut values: Vec<f32> = (0..len).map(|_| rng.normal()).collect();
        let (mut half, mut coded) = (Vec::new(), Vec::new());
        if dtype == DType::F16 {
            half = values.iter().map(|v| f16::from_f32(*v)).collect();
            values = half.iter().map(|v| v.to_f32()).collect();
        } else if dtype != DType::F32 {
            let codec = infr_tensor::quant::codec(dtype).expect("a codec");
            coded = vec![0; len / dtype.block_len() * dtype.block_bytes()];
            assert!(codec.encode(&values, &mut coded));
            codec.decode(&coded, &mut values);
        }
        Store { values, half, coded }
    }

    fn data(&self, dtype: DType) -> KvData<'_> {
        match dtype {
            DType::F32 => KvData::F32(&self.values),
            DType::F16 => KvData::F16(&self.half),
            other => KvData::Coded(other, &self.coded),
        }
    }
}

struct Case {
    heads: usize,
    kv_heads: usize,
    key_dim: usize,
    value_dim: usize,
    dtype: DType,
    softcap: Option<f32>,
    sinks: bool,
    /// Values are the first part of the keys.
    alias: bool,
    page_len: usize,
    /// Rows and first position of each sequence; rows see `window` positions back.
    seqs: &'static [(usize, usize)],
    window: usize,
}

const PLAIN: Case = Case {
    heads: 6,
    kv_heads: 2,
    key_dim: 64,
    value_dim: 64,
    dtype: DType::F32,
    softcap: None,
    sinks: false,
    alias: false,
    page_len: 16,
    seqs: &[(3, 0), (1, 200), (40, 30)],
    window: usize::MAX,
};

const CASES: &[Case] = &[
    PLAIN,
    Case { dtype: DType::F16, page_len: 64, seqs: &[(1, 700), (5, 63)], ..PLAIN },
    Case { dtype: DType::Q8_0, softcap: Some(2.0), ..PLAIN },
    Case { sinks: true, window: 20, ..PLAIN },
    Case {
        heads: 4,
        kv_heads: 1,
        key_dim: 256,
        value_dim: 256,
        window: 130,
        dtype: DType::F16,
        ..PLAIN
    },
    Case {
        heads: 4,
        kv_heads: 4,
        key_dim: 40,
        value_dim: 24,
        page_len: 7,
        seqs: &[(9, 100)],
        ..PLAIN
    },
    Case { heads: 4, kv_heads: 1, key_dim: 96, value_dim: 80, alias: true, sinks: true, ..PLAIN },
    Case {
        heads: 2,
        kv_heads: 2,
        key_dim: 48,
        value_dim: 48,
        dtype: DType::F16,
        window: 1,
        ..PLAIN
    },
];

struct Made {
    rows: Vec<(std::ops::Range<usize>, Vec<u32>)>,
    visible: Vec<Interval>,
    q: Vec<f32>,
    keys: Store,
    values: Store,
    sinks: Vec<f32>,
}

impl Case {
    fn make(&self, rng: &mut Rng) -> Made {
        let mut free: Vec<u32> = (0..(PAGES * 64 / self.page_len) as u32).collect();
        let (mut rows, mut visible) = (Vec::new(), Vec::new());
        for &(n_rows, first) in self.seqs {
            let n_pages = (first + n_rows).div_ceil(self.page_len);
            let pages = (0..n_pages).map(|_| free.swap_remove(rng.below(free.len()))).collect();
            rows.push((visible.len()..visible.len() + n_rows, pages));
            for i in 0..n_rows {
                let hi = first + i + 1;
                let lo = hi.saturating_sub(self.window);
                visible.push(Interval { lo: lo as u32, hi: hi as u32 });
            }
        }
        // A row that sees nothing.
        visible[1] = Interval { lo: 0, hi: 0 };
        let n_tokens = PAGES * 64 / self.page_len * self.page_len;
        let (key_width, value_width) =
            (self.kv_heads * self.key_dim, self.kv_heads * self.value_dim);
        Made {
            q: (0..visible.len() * self.heads * self.key_dim).map(|_| rng.normal()).collect(),
            keys: Store::new(rng, n_tokens * key_width, self.dtype),
            values: Store::new(rng, n_tokens * value_width, self.dtype),
            sinks: (0..self.heads).map(|_| rng.normal()).collect(),
            rows,
            visible,
        }
    }

    fn shape<'a>(&self, made: &'a Made) -> AttentionShape<'a> {
        AttentionShape {
            heads: self.heads,
            kv_heads: self.kv_heads,
            key_dim: self.key_dim,
            value_dim: self.value_dim,
            scale: 1.0 / (self.key_dim as f32).sqrt(),
            softcap: self.softcap,
            sinks: self.sinks.then_some(&made.sinks),
        }
    }

    fn cache<'a>(&self, made: &'a Made) -> KvCache<'a> {
        KvCache {
            keys: made.keys.data(self.dtype),
            values: (!self.alias).then(|| made.values.data(self.dtype)),
            page_len: self.page_len,
        }
    }

    fn naive(&self, made: &Made) -> Vec<f64> {
        let shape = self.shape(made);
        let mut out = vec![0f64; made.visible.len() * self.heads * self.value_dim];
        for (rows, pages) in &made.rows {
            for row in rows.clone() {
                for head in 0..self.heads {
                    let kv_head = head / (self.heads / self.kv_heads);
                    let q = &made.q[(row * self.heads + head) * self.key_dim..][..self.key_dim];
                    let visible = made.visible[row];
                    let place = |p: u32| {
                        let p = p as usize;
                        pages[p / self.page_len] as usize * self.page_len + p % self.page_len
                    };
                    let mut weights = Vec::new();
                    for p in visible.lo..visible.hi {
                        let at = (place(p) * self.kv_heads + kv_head) * self.key_dim;
                        let key = &made.keys.values[at..][..self.key_dim];
                        let dot: f64 =
                            q.iter().zip(key).map(|(q, k)| f64::from(*q) * f64::from(*k)).sum();
                        let score = dot * f64::from(shape.scale);
                        weights.push(match shape.softcap {
                            Some(c) => f64::from(c) * (score / f64::from(c)).tanh(),
                            None => score,
                        });
                    }
                    let mut total: f64 = weights.iter().map(|w| w.exp()).sum();
                    if self.sinks {
                        total += f64::from(made.sinks[head]).exp();
                    }
                    let out = &mut out[(row * self.heads + head) * self.value_dim..];
                    for (p, weight) in (visible.lo..visible.hi).zip(&weights) {
                        let (store, dim) = if self.alias {
                            (&made.keys, self.key_dim)
                        } else {
                            (&made.values, self.value_dim)
                        };
                        let value = &store.values[(place(p) * self.kv_heads + kv_head) * dim..];
                        for (out, v) in out.iter_mut().zip(&value[..self.value_dim]) {
                            *out += weight.exp() / total * f64::from(*v);
                        }
                    }
                }
            }
        }
        out
    }

    fn run(
        &self,
        made: &Made,
        run: Runner<'_>,
        rows: &[(std::ops::Range<usize>, Vec<u32>)],
    ) -> Vec<f32> {
        let seqs: Vec<AttentionSeq<'_>> =
            rows.iter().map(|(rows, pages)| AttentionSeq { rows: rows.clone(), pages }).collect();
        let mut out = vec![f32::NAN; made.visible.len() * self.heads * self.value_dim];
        let rows = AttentionRows { seqs: &seqs, visible: &made.visible, q: &made.q };
        attention(run, &self.shape(made), &self.cache(made), &rows, &mut out);
        out
    }
}

fn levels() -> impl Iterator<Item = SimdLevel> {
    SimdLevel::ALL.into_iter().filter(|l| l.is_available())
}

#[test]
fn matches_the_definition() {
    let mut rng = Rng::new(1);
    for (i, case) in CASES.iter().enumerate() {
        let made = case.make(&mut rng);
        let expected = case.naive(&made);
        for level in levels() {
            for n_threads in [1, 2, 8] {
                let pool = ThreadPool::new(n_threads);
                let out = case.run(&made, Runner { pool: &pool, level }, &made.rows);
                for (o, (a, b)) in out.iter().zip(&expected).enumerate() {
                    let error = (f64::from(*a) - b).abs();
                    assert!(error < 3e-6, "case {i} {level:?} {n_threads} threads, {o}: {a} {b}");
                }
            }
        }
    }
}

#[test]
fn a_row_has_the_same_bits_alone_and_on_any_number_of_threads() {
    let mut rng = Rng::new(2);
    for case in CASES {
        let made = case.make(&mut rng);
        for level in levels() {
            let one = ThreadPool::new(1);
            let many = ThreadPool::new(16);
            let all = case.run(&made, Runner { pool: &one, level }, &made.rows);
            assert_eq!(all, case.run(&made, Runner { pool: &many, level }, &made.rows));
            let width = case.heads * case.value_dim;
            for (rows, pages) in &made.rows {
                let row = rows.end - 1;
                let alone = [(row..row + 1, pages.clone())];
                let out = case.run(&made, Runner { pool: &many, level }, &alone);
                assert_eq!(all[row * width..][..width], out[row * width..][..width]);
            }
        }
    }
}

#[test]
fn unseen_positions_are_not_read() {
    let mut rng = Rng::new(3);
    let case = Case { seqs: &[(2, 70)], window: 5, ..PLAIN };
    let mut made = case.make(&mut rng);
    made.visible[1] = made.visible[0];
    let pool = ThreadPool::new(1);
    let run = Runner { pool: &pool, level: SimdLevel::detect() };
    let expected = case.run(&made, run, &made.rows);
    let Interval { lo, hi } = made.visible[0];
    let pages = &made.rows[0].1;
    let seen: Vec<usize> = (lo..hi)
        .map(|p| {
            pages[p as usize / case.page_len] as usize * case.page_len + p as usize % case.page_len
        })
        .collect();
    let (kw, vw) = (case.kv_heads * case.key_dim, case.kv_heads * case.value_dim);
    for token in 0..made.keys.values.len() / kw {
        if !seen.contains(&token) {
            made.keys.values[token * kw..][..kw].fill(f32::NAN);
            made.values.values[token * vw..][..vw].fill(f32::NAN);
        }
    }
    assert_eq!(expected, case.run(&made, run, &made.rows));
}

#[test]
#[should_panic(expected = "has no page")]
fn a_position_without_a_page_is_refused() {
    let mut rng = Rng::new(4);
    let mut made = PLAIN.make(&mut rng);
    made.visible[0].hi = 1000;
    let pool = ThreadPool::new(1);
    PLAIN.run(&made, Runner { pool: &pool, level: SimdLevel::Scalar }, &made.rows);
}
