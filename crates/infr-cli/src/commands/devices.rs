//! `infr devices`: what models can run on.

use std::fmt::Write as _;

use anyhow::Result;
use comfy_table::{Table, presets};

use crate::config::Settings;
use crate::{backends, output};

/// Prints the devices, the default one marked.
pub(crate) fn devices(settings: &Settings) -> Result<()> {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["", "device", "kind", "name", "memory", "free", "driver"]);
    let default = backends::choose(&Settings { dev: None, ..settings.clone() })?.device.id;
    let (choices, notes) = backends::all(&Settings { dev: None, ..settings.clone() })?;
    for choice in choices {
        let device = choice.device;
        table.add_row([
            if device.id == default { "*" } else { "" },
            &device.id,
            &format!("{:?}", device.kind).to_lowercase(),
            &device.name,
            &output::bytes(device.memory),
            &output::bytes(device.free),
            &device.driver,
        ]);
    }
    let mut text = format!("{table}\n");
    for note in notes {
        let _ = writeln!(text, "{note}");
    }
    output::print(&text)
}
