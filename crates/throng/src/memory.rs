//! Memory of messages and of free slots: pooled blocks that go back to the system when they are unused,
//! and the magazines in which free memory travels between threads.

pub(crate) mod block;
mod chunk;
mod depot;
pub(crate) mod magazine;
pub(crate) mod spare_bits;
