//! The files of a store: the data file through LMDB, and the claim on its directory.

pub(crate) mod claim;
pub(crate) mod damage;
pub(crate) mod draft;
pub(crate) mod engine;
pub(crate) mod environment;
pub(crate) mod format;
pub(crate) mod identity;
pub(crate) mod lmdb;
pub(crate) mod opening;
pub(crate) mod pages;
pub(crate) mod private;
pub(crate) mod reader_table;
pub(crate) mod record;
pub(crate) mod recovery;
pub(crate) mod reserve;
pub(crate) mod settings;
pub(crate) mod stretch;

pub(crate) const DATA_FILE: &str = "data.mdb";
pub(crate) const LOG: &str = "log";
