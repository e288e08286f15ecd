//! Typed indices into the tables of a graph and a program.

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);

        impl $name {
            /// The table index.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

id! {
    /// A value of one graph: an activation that one node produces.
    ValueId
}
id! {
    /// A weight of the program.
    WeightId
}
id! {
    /// A persistent state of the program: a layer's KV cache or a recurrent slot.
    StateId
}
