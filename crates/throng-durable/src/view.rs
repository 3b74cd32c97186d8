//! [`View`]: the records of a store at one moment.

use std::ops::RangeBounds;

use throng_store::{Database, Range, ReadError, Snapshot};

/// A snapshot, and the table whose records it shows.
#[derive(Debug)]
pub(crate) struct View {
    table: Database,
    snapshot: Snapshot,
}

impl View {
    /// Takes a snapshot of the table.
    pub(crate) fn of(table: &Database) -> Result<View, ReadError> {
        Ok(View { table: table.clone(), snapshot: table.store().snapshot()? })
    }

    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<&[u8]>, ReadError> {
        self.table.get(&self.snapshot, key)
    }

    pub(crate) fn range<'k>(&self, bounds: impl RangeBounds<&'k [u8]>) -> Range<'_> {
        self.table.range(&self.snapshot, bounds)
    }

    pub(crate) fn prefix(&self, prefix: &[u8]) -> Range<'_> {
        self.table.prefix(&self.snapshot, prefix)
    }
}
