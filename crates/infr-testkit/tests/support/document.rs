//! `docs/models.md`: a table of figures that the tests write.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Mutex;

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/models.md");

/// The table's columns after the model's name.
pub(crate) const COLUMNS: [&str; 7] = [
    "tiny.py",
    "llama.cpp",
    "ragged chunks",
    "token by token",
    "beside another",
    "edges crossed",
    "SIMD",
];

const HEAD: &str = "# Model families

Written by `INFR_BLESS=1 cargo test -p infr-testkit --test families`; do not edit. The same test without
`INFR_BLESS` measures everything again and fails when a figure is out of its bound (in brackets) or a
figure is missing here.

Each model is a tiny random file (F32 weights, vocabulary 320) that `tests/spec/tiny.py`, the executable
specification in NumPy, makes from a seed. It runs on the CPU reference with a cache of F32. A figure is
the largest difference of a log-probability over all positions and the whole vocabulary:

- *tiny.py*: from the specification's own forward pass in double precision; seeds 7, 11, 23 and 1009, 64
  tokens in one batch.
- *llama.cpp*: from the logits in `tests/spec/seed7`, which llama.cpp b11434 computed on its CPU backend.
  The bound is llama.cpp's own distance from the specification plus ours: its GELU goes through a table
  in half precision. It has no graph for `bitnet-b1.58` and `diffusion-gemma`.
- *ragged chunks*, *token by token*: the prompt in chunks of 7, 1, 30, 3 and 23 tokens, or one at a time,
  from the prompt in one batch.
- *beside another*: in batches with a second sequence, out of step with it, from the prompt alone.
- *edges crossed*: windows and chunks of attention that the tokens are longer than.
- *SIMD*: the SIMD kernels from the specification.

`(canvas)` are three denoising steps over a canvas of 12 rows, `(drafts)` the tokens that the model's draft
block proposes, `(vector)` the normalised sentence vector. `llama4_long` has 8300 tokens, in chunks of 512
and a last one of 64, which is compared.

";

/// Figures by row and column.
pub(crate) type Cells = BTreeMap<String, BTreeMap<String, String>>;

fn parse(text: &str) -> Cells {
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let row = |(front, rest): (&str, &str)| {
        let mut parts = rest.split('|').map(str::trim);
        let name = format!("{front} {}", parts.next().unwrap_or_default()).trim().to_owned();
        let cells = COLUMNS.iter().zip(parts).filter(|(_, cell)| !cell.is_empty());
        (name, cells.map(|(column, cell)| ((*column).to_owned(), cell.to_owned())).collect())
    };
    rows.map(row).collect()
}

fn render(cells: &Cells) -> String {
    let mut text = String::from(HEAD);
    let _ = writeln!(text, "| model | {} |", COLUMNS.join(" | "));
    let _ = writeln!(text, "|---|{}", "---|".repeat(COLUMNS.len()));
    for (name, row) in cells {
        let (front, note) = name.split_once(' ').unwrap_or((name, ""));
        let _ = write!(text, "| `{front}` {note}");
        for column in COLUMNS {
            let _ = write!(text, " | {}", row.get(column).map_or("", String::as_str));
        }
        text.push_str(" |\n");
    }
    text.push_str("\n## Values of `general.architecture`\n\n");
    infr_models::architectures().iter().for_each(|arch| _ = writeln!(text, "- `{arch}`"));
    text
}

/// Puts figures into the document when `INFR_BLESS` is set; else fails when it lacks one of them.
pub(crate) fn settle(found: Cells) {
    static ONE_WRITER: Mutex<()> = Mutex::new(());
    let _guard = ONE_WRITER.lock();
    let kept = std::fs::read_to_string(PATH).unwrap_or_default();
    let mut cells = parse(&kept);
    if std::env::var_os("INFR_BLESS").is_some() {
        for (name, row) in found {
            cells.entry(name).or_default().extend(row);
        }
        std::fs::write(PATH, render(&cells)).unwrap();
        return;
    }
    let held = |name: &str, column: &str| cells.get(name).is_some_and(|r| r.contains_key(column));
    let missing: Vec<String> = found
        .iter()
        .flat_map(|(name, row)| row.keys().map(move |column| (name, column)))
        .filter(|(name, column)| !held(name, column))
        .map(|(name, column)| format!("{name}: {column}"))
        .collect();
    assert!(missing.is_empty(), "docs/models.md lacks {missing:?}: set INFR_BLESS");
    for arch in infr_models::architectures() {
        let listed = kept.lines().any(|line| line == format!("- `{arch}`"));
        assert!(listed, "docs/models.md lacks {arch}: set INFR_BLESS");
    }
}
