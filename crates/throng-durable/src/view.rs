//! [`View`]: the records of a store at one moment.

use std::ops::{Bound, RangeBounds};

use throng_store::{Range, ReadError, Snapshot};

use crate::tables::Tables;

/// A snapshot, and the tables whose records it shows.
#[derive(Debug)]
pub(crate) struct View {
    tables: Tables,
    snapshot: Snapshot,
}

impl View {
    /// Takes a snapshot of the tables.
    pub(crate) fn of(tables: &Tables) -> Result<View, ReadError> {
        Ok(View { tables: tables.clone(), snapshot: tables.store().snapshot()? })
    }

    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<&[u8]>, ReadError> {
        self.tables.at(key).get(&self.snapshot, key)
    }

    /// Returns the records in a range, which has a start.
    pub(crate) fn range<'k>(&self, bounds: impl RangeBounds<&'k [u8]>) -> Range<'_> {
        let (Bound::Included(start) | Bound::Excluded(start)) = bounds.start_bound() else {
            unreachable!("a range over all tables")
        };
        self.tables.at(start).range(&self.snapshot, bounds)
    }

    pub(crate) fn prefix(&self, prefix: &[u8]) -> Range<'_> {
        self.tables.at(prefix).prefix(&self.snapshot, prefix)
    }
}
