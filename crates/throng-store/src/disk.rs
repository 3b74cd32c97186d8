//! The files of a store: the data file through LMDB, the journal, and the claim on their directory.

pub(crate) mod apply;
pub(crate) mod claim;
pub(crate) mod commit;
pub(crate) mod environment;
pub(crate) mod format;
pub(crate) mod journal;
pub(crate) mod lmdb;
pub(crate) mod pages;
pub(crate) mod pins;
pub(crate) mod private;
pub(crate) mod record;
