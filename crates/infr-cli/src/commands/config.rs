//! `infr config`: every setting, its value and where it came from.

use anyhow::Result;
use comfy_table::{ContentArrangement, Table, presets};

use crate::config::Resolved;
use crate::config::keys::KEYS;
use crate::output;

/// Prints the table of settings.
pub(crate) fn config(resolved: &Resolved) -> Result<()> {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(["setting", "value", "from", "environment", "meaning"]);
    for (key, (text, origin)) in KEYS.iter().zip(&resolved.origins) {
        let shown = if key.path == "hub.token" && text != "none" { "(set)" } else { text };
        table.add_row([key.path, shown, origin, &key.env.join(", "), key.doc]);
    }
    output::print(&format!("{table}\n"))
}
