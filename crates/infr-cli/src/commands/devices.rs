//! `infr devices`: what models can run on.

use anyhow::Result;
use comfy_table::{Table, presets};

use crate::config::Settings;
use crate::{backends, output};

/// Prints the devices, the default one marked.
pub(crate) fn devices(settings: &Settings) -> Result<()> {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_header(["", "device", "name", "memory", "free", "driver"]);
    let default = backends::choose(settings)?;
    let default = default.devices().first().map(|d| d.id.clone());
    for backend in backends::all(settings) {
        for device in backend.devices() {
            let mark = if Some(&device.id) == default.as_ref() { "*" } else { "" };
            table.add_row([
                mark,
                &device.id,
                &device.name,
                &output::bytes(device.memory),
                &output::bytes(device.free),
                &device.driver,
            ]);
        }
    }
    output::print(&format!("{table}\n"))
}
