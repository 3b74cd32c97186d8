//! Reading: a snapshot is a frozen view; ranges and scans walk it.
//!
//! Read transactions of LMDB are reused through the `pool`.

pub(crate) mod feed;
pub(crate) mod follower;
pub(crate) mod merge;
pub(crate) mod pool;
pub(crate) mod range;
pub(crate) mod readers;
pub(crate) mod scan;
pub(crate) mod snapshot;
pub(crate) mod state;
pub(crate) mod view;
