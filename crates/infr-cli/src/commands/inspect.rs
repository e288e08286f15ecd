//! `infr inspect`: a model's metadata and tensors.

use std::fmt::Write as _;

use anyhow::Result;
use comfy_table::{CellAlignment, Table, presets};
use infr_gguf::{Array, Gguf, TensorInfo, Value};

use crate::config::Settings;
use crate::flags::InspectArgs;
use crate::{models, output};

/// Longest value of a key that is shown in one line.
const SHOWN: usize = 100;

/// Prints metadata and tensors.
pub(crate) fn inspect(args: &InspectArgs, settings: &Settings) -> Result<()> {
    let path = models::resolve(&args.model, settings)?;
    let gguf = Gguf::open(&path)?;
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{}: GGUF v{}, {}, {} keys, {} tensors, {} parameters",
        path.display(),
        gguf.version(),
        output::bytes(gguf.file_size()),
        gguf.metadata().len(),
        gguf.tensors().len(),
        output::count(gguf.tensors().iter().map(TensorInfo::elements).sum()),
    );
    let _ = writeln!(text, "\nMetadata");
    for (key, value) in gguf.metadata().iter() {
        let _ = writeln!(text, "  {key} = {}", show(value, args.full));
    }
    let _ = writeln!(text, "\nTensors\n{}", tensors(&gguf));
    let _ = writeln!(text, "\nTypes\n{}", types(&gguf));
    output::print(&text)
}

fn show(value: &Value, full: bool) -> String {
    let text = match value {
        Value::U8(n) => n.to_string(),
        Value::I8(n) => n.to_string(),
        Value::U16(n) => n.to_string(),
        Value::I16(n) => n.to_string(),
        Value::U32(n) => n.to_string(),
        Value::I32(n) => n.to_string(),
        Value::U64(n) => n.to_string(),
        Value::I64(n) => n.to_string(),
        Value::F32(x) => x.to_string(),
        Value::F64(x) => x.to_string(),
        Value::Bool(on) => on.to_string(),
        Value::String(text) => quote(text.as_bytes()),
        Value::Array(array) => list(array, full),
    };
    if full || text.chars().count() <= SHOWN {
        return text;
    }
    let cut: String = text.chars().take(SHOWN).collect();
    format!("{cut}… ({} characters; --full shows all)", text.chars().count())
}

fn quote(bytes: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(bytes))
}

fn list(array: &Array, full: bool) -> String {
    fn items<T: ToString>(values: &[T], most: usize) -> Vec<String> {
        values.iter().take(most).map(T::to_string).collect()
    }
    let most = if full { usize::MAX } else { 8 };
    let shown = match array {
        Array::U8(v) => items(v, most),
        Array::I8(v) => items(v, most),
        Array::U16(v) => items(v, most),
        Array::I16(v) => items(v, most),
        Array::U32(v) => items(v, most),
        Array::I32(v) => items(v, most),
        Array::F32(v) => items(v, most),
        Array::Bool(v) => items(v, most),
        Array::U64(v) => items(v, most),
        Array::I64(v) => items(v, most),
        Array::F64(v) => items(v, most),
        Array::Strings(v) => (0..v.len().min(most)).filter_map(|i| v.get(i)).map(quote).collect(),
    };
    let more = if array.len() > shown.len() { ", …" } else { "" };
    format!("[{}{more}] ({} × {})", shown.join(", "), array.len(), array.type_name())
}

fn tensors(gguf: &Gguf) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["  name", "type", "shape", "bytes"]);
    for tensor in gguf.tensors() {
        let dims: Vec<String> = tensor.dims.iter().map(u64::to_string).collect();
        table.add_row([
            format!("  {}", tensor.name),
            tensor.dtype.name().to_string(),
            format!("[{}]", dims.join(", ")),
            output::bytes(tensor.bytes),
        ]);
    }
    right_align(&mut table, 3);
    table
}

fn types(gguf: &Gguf) -> Table {
    let mut rows: Vec<(&str, u64, u64)> = Vec::new();
    for tensor in gguf.tensors() {
        match rows.iter_mut().find(|(name, ..)| *name == tensor.dtype.name()) {
            Some((_, count, bytes)) => {
                *count += 1;
                *bytes += tensor.bytes;
            }
            None => rows.push((tensor.dtype.name(), 1, tensor.bytes)),
        }
    }
    rows.sort_by_key(|(_, _, bytes)| std::cmp::Reverse(*bytes));
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["  type", "tensors", "bytes"]);
    for (name, count, bytes) in rows {
        table.add_row([format!("  {name}"), count.to_string(), output::bytes(bytes)]);
    }
    right_align(&mut table, 1);
    right_align(&mut table, 2);
    table
}

fn right_align(table: &mut Table, column: usize) {
    if let Some(column) = table.column_mut(column) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}
