//! Nodes of a cluster on logs that lose, delay and repeat.

// Clippy grants this to tests by itself, but not to the functions they share.
#![allow(clippy::unwrap_used)]

mod control;
mod entities;
mod faults;
mod shards;
