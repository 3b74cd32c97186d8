//! Memory of cells and messages: slots that are never unmapped, and pooled blocks.

pub(crate) mod block;
pub(crate) mod magazine;
pub(crate) mod slab;
pub(crate) mod spare_bits;
