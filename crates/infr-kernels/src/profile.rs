//! What selection and lowering may know of a device.

/// Facts of a device; plain numbers, so that tests can make any device up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceProfile {
    /// Name, for messages.
    pub name: String,
    /// Invocations of a subgroup.
    pub subgroup: u32,
    /// The most invocations of a workgroup.
    pub max_workgroup: u32,
    /// Bytes of shared memory of a workgroup.
    pub shared_memory: u32,
    /// The most workgroups in each dimension of a grid.
    pub max_grid: [u32; 3],
    /// Workgroups that keep the whole device busy.
    pub parallel_groups: u32,
    /// Names of the features that variants may need.
    pub features: Vec<String>,
}

impl DeviceProfile {
    /// Whether the device has every named feature.
    pub fn has_all(&self, needs: &[String]) -> bool {
        needs.iter().all(|n| self.features.contains(n))
    }
}

impl DeviceProfile {
    /// What every device of the APIs offers.
    pub fn basic(name: &str) -> DeviceProfile {
        DeviceProfile {
            name: name.to_owned(),
            subgroup: 32,
            max_workgroup: 256,
            shared_memory: 16 << 10,
            max_grid: [65_535; 3],
            parallel_groups: 64,
            features: Vec::new(),
        }
    }
}
