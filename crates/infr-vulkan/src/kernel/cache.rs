//! Built pipelines kept between runs: one file per device, driver and set of shaders.

use std::fs;
use std::path::{Path, PathBuf};

use super::SHADER_HASH;

/// Starts the file; a driver never sees bytes that are not what one gave us.
const MAGIC: &[u8; 8] = b"infrvkp1";

/// The file for a device.
pub(crate) fn file(folder: &Path, device: &str) -> PathBuf {
    let shaders: String = SHADER_HASH[..8].iter().map(|b| format!("{b:02x}")).collect();
    folder.join(format!("pipelines-{device}-{shaders}.bin"))
}

/// What the file holds, empty when there is none or it is damaged.
pub(crate) fn load(file: &Path) -> Vec<u8> {
    let Ok(bytes) = fs::read(file) else { return Vec::new() };
    let whole = bytes.strip_prefix(MAGIC).and_then(|rest| rest.split_first_chunk::<8>());
    match whole {
        Some((sum, data)) if u64::from_le_bytes(*sum) == checksum(data) => data.to_vec(),
        _ => Vec::new(),
    }
}

/// Replaces the file in one step.
pub(crate) fn save(file: &Path, data: &[u8]) -> std::io::Result<()> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    let partial = file.with_extension(format!("{}.tmp", std::process::id()));
    fs::write(&partial, [&MAGIC[..], &checksum(data).to_le_bytes(), data].concat())?;
    fs::rename(&partial, file)
}

/// FNV-1a over 64 bits (Fowler, Noll and Vo): finds damage, not malice.
fn checksum(data: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    data.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_files_count_as_none() {
        let folder = std::env::temp_dir().join(format!("infr-vulkan-cache-{}", std::process::id()));
        let file = file(&folder, "device");
        assert!(load(&file).is_empty());
        save(&file, b"pipelines").unwrap();
        assert_eq!(load(&file), b"pipelines");
        let mut bytes = fs::read(&file).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&file, &bytes).unwrap();
        assert!(load(&file).is_empty());
        fs::write(&file, b"short").unwrap();
        assert!(load(&file).is_empty());
        fs::remove_dir_all(&folder).unwrap();
    }
}
