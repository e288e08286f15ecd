//! What the processor is, as users see it.

use infr_backend::{DeviceInfo, DeviceKind};

/// The processor as a device.
pub(crate) fn describe(driver: String) -> DeviceInfo {
    DeviceInfo {
        id: "cpu".into(),
        name: processor_name().unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
        kind: DeviceKind::Cpu,
        driver,
        memory: memory_line("MemTotal:"),
        free: free_memory(),
    }
}

/// Bytes that can be had without swapping; 0 where the system does not say.
pub(crate) fn free_memory() -> u64 {
    memory_line("MemAvailable:")
}

fn processor_name() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|l| l.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn memory_line(name: &str) -> u64 {
    let read = || {
        let text = std::fs::read_to_string("/proc/meminfo").ok()?;
        let line = text.lines().find(|l| l.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    };
    read().unwrap_or(0) * 1024
}
