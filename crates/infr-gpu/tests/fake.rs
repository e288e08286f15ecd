//! The fake device must see what hardware would do wrong.

#![allow(clippy::unwrap_used)]

use infr_gpu::barrier::with_barriers;
use infr_gpu::fake::FakeApi;
use infr_gpu::{Api, Dispatch, DispatchList, GpuOptions, Grid, MemoryKind, Push};
use infr_kernels::{Ask, KernelFamily, Work};

const N: u32 = 8;

struct Bench {
    api: FakeApi,
    counts: <FakeApi as Api>::Buffer,
    values: <FakeApi as Api>::Buffer,
    back: <FakeApi as Api>::Buffer,
    copy: Dispatch,
}

/// Copies of parts of `values`, and of a part to `back`.
fn bench() -> Bench {
    let device = FakeApi::device(GpuOptions::default());
    let (mut api, selector) = (device.api, device.selector);
    let counts = api.allocate("counts", MemoryKind::Upload, 32).unwrap();
    api.write(&counts, 0, bytemuck::cast_slice(&[1u32, 1, 1, 0, 0, 0, 0, 0]));
    let values = api.allocate("values", MemoryKind::Device, 4 * 4 * u64::from(N)).unwrap();
    let back = api.allocate("back", MemoryKind::Readback, 4 * u64::from(N)).unwrap();
    let work = Work::Kernel(KernelFamily::Unary);
    let pick = selector.select(&Ask { work, quant: None, strict: false }).unwrap();
    let copy = Dispatch {
        label: "copy".into(),
        kernel: pick.id,
        spec: pick.spec(&[("func", 8)]).unwrap(),
        push: Vec::new(),
        grid: Grid::Fixed([1, 1, 1]),
        reads: Vec::new(),
        writes: Vec::new(),
    };
    Bench { api, counts, values, back, copy }
}

impl Bench {
    fn part(&self, part: u64) -> u64 {
        self.api.address(&self.values) + part * 4 * u64::from(N)
    }

    fn copy(&self, from: u64, to: u64) -> Dispatch {
        let push = Push::addresses(&[self.api.address(&self.counts), from, to]);
        let range = |at: u64| at..at + 4 * u64::from(N);
        Dispatch {
            push: push.u32(N).f32(0.0).u32(0).finish(),
            reads: vec![range(from)],
            writes: vec![range(to)],
            ..self.copy.clone()
        }
    }

    fn run(&mut self, list: &DispatchList) {
        let recording = self.api.record(list).unwrap();
        self.api.submit(&recording, 1).unwrap();
        self.api.wait(1).unwrap();
    }

    fn fill(&mut self, values: [f32; N as usize]) {
        let buffer = self.values.clone();
        self.api.upload(&buffer, 0, bytemuck::cast_slice(&values)).unwrap();
    }

    fn result(&self) -> [f32; N as usize] {
        let mut out = [0.0f32; N as usize];
        self.api.read(&self.back, 0, bytemuck::cast_slice_mut(&mut out));
        out
    }
}

fn chain(bench: &Bench) -> Vec<Dispatch> {
    let to_host = bench.api.address(&bench.back);
    vec![bench.copy(bench.part(0), bench.part(1)), bench.copy(bench.part(1), to_host)]
}

#[test]
fn a_chain_with_barriers_runs() {
    let mut bench = bench();
    bench.fill([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    let list = with_barriers(chain(&bench));
    assert_eq!(list.barriers, [false, true]);
    bench.run(&list);
    assert_eq!(bench.result(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
}

#[test]
#[should_panic(expected = "reads what is being written")]
fn a_missing_barrier_is_seen() {
    let mut bench = bench();
    bench.fill([0.0; N as usize]);
    let dispatches = chain(&bench);
    bench.run(&DispatchList { dispatches, barriers: vec![false; 2] });
}

#[test]
#[should_panic(expected = "writes what is being read or written")]
fn two_writers_are_seen() {
    let mut bench = bench();
    bench.fill([0.0; N as usize]);
    let dispatches =
        vec![bench.copy(bench.part(0), bench.part(2)), bench.copy(bench.part(0), bench.part(2))];
    bench.run(&DispatchList { dispatches, barriers: vec![false; 2] });
}

#[test]
#[should_panic(expected = "lie in no buffer")]
fn an_access_beyond_a_buffer_is_seen() {
    let mut bench = bench();
    let dispatches = vec![bench.copy(bench.part(4), bench.part(0))];
    bench.run(&with_barriers(dispatches));
}

#[test]
fn unwritten_memory_is_poisoned() {
    let mut bench = bench();
    let dispatches = vec![bench.copy(bench.part(3), bench.api.address(&bench.back))];
    bench.run(&with_barriers(dispatches));
    assert!(bench.result().iter().all(|v| v.is_nan()));
}

#[test]
fn nothing_runs_before_somebody_waits() {
    let mut bench = bench();
    bench.fill([3.0; N as usize]);
    let recording = bench.api.record(&with_barriers(chain(&bench))).unwrap();
    bench.api.submit(&recording, 1).unwrap();
    assert!(bench.result()[0].is_nan());
    // The host overwrites an array too early: the step sees it.
    let counts = bench.counts.clone();
    bench.api.write(&counts, 0, bytemuck::cast_slice(&[0u32]));
    bench.api.wait(1).unwrap();
    assert!(bench.result()[0].is_nan());
}
