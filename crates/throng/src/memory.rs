//! Memory of cells and messages: slots that are never unmapped, and pooled blocks that go back to the
//! system when they are unused.

pub(crate) mod block;
mod chunk;
mod depot;
pub(crate) mod magazine;
pub(crate) mod slab;
pub(crate) mod spare_bits;
