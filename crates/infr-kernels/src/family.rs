//! The kernels that lowering calls by name. What each computes stands in `infr-gpu/KERNELS.md`.

macro_rules! families {
    ($($(#[$doc:meta])* $variant:ident $name:literal;)*) => {
        /// A kernel of the contract.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum KernelFamily { $($(#[$doc])* $variant,)* }

        impl KernelFamily {
            /// All kernels.
            pub const ALL: &'static [KernelFamily] = &[$(KernelFamily::$variant,)*];

            /// Name in `kernels.toml` and tuning files.
            pub const fn name(self) -> &'static str {
                match self { $(KernelFamily::$variant => $name,)* }
            }
        }
    };
}

families! {
    /// Brings page tables and last tokens up to date.
    Patch "patch";
    /// Row gather from a table of weights.
    Embed "embed";
    /// RMS norm, with or without a residual sum before it.
    Norm "norm";
    /// Matrix times few rows.
    LinearVec "linear_vec";
    /// Matrix times many rows.
    LinearMat "linear_mat";
    /// Rotary embedding.
    Rope "rope";
    /// Norm per head and rotary embedding of queries and keys, and the cache write.
    RopeKv "rope_kv";
    /// Cache write.
    KvWrite "kv_write";
    /// Attention of single rows, the context split over workgroups.
    AttnDecode "attn_decode";
    /// Joins the splits.
    AttnCombine "attn_combine";
    /// Attention of tiles of rows.
    AttnPrefill "attn_prefill";
    /// Activation times a value.
    GatedAct "gated_act";
    /// A function of each element.
    Unary "unary";
    /// A function of two values.
    Binary "binary";
    /// Row gather from a value.
    GatherRows "gather_rows";
    /// A part of each group.
    Slice "slice";
    /// Two values joined group by group.
    Concat "concat";
    /// Draws tokens.
    Sample "sample";
}

impl KernelFamily {
    /// The kernel with this name.
    pub fn from_name(name: &str) -> Option<KernelFamily> {
        KernelFamily::ALL.iter().copied().find(|f| f.name() == name)
    }
}

/// How a kernel multiplies; each tier asks another function of a quant type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tier {
    /// Values expanded to floats.
    Scalar,
    /// Packed integer products with quantised activations.
    Dp4a,
    /// Subgroup matrices filled through shared memory.
    Coopmat,
    /// Subgroup matrices filled from registers; the element order is checked at start-up.
    CoopmatRegs,
}

impl Tier {
    /// All tiers, simplest first.
    pub const ALL: &'static [Tier] = &[Tier::Scalar, Tier::Dp4a, Tier::Coopmat, Tier::CoopmatRegs];

    /// Name in `kernels.toml` and tuning files.
    pub const fn name(self) -> &'static str {
        match self {
            Tier::Scalar => "scalar",
            Tier::Dp4a => "dp4a",
            Tier::Coopmat => "coopmat",
            Tier::CoopmatRegs => "coopmat_regs",
        }
    }

    /// The tier with this name.
    pub fn from_name(name: &str) -> Option<Tier> {
        Tier::ALL.iter().copied().find(|t| t.name() == name)
    }
}
