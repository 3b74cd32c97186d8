//! [`View`]: the records of a store at one moment.

use std::ops::{Bound, RangeBounds};

use throng_store::{Range, ReadError, Snapshot};

use crate::layout;
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

    /// Shows the records with a prefix behind a cursor, which is the rest of a key.
    pub(crate) fn page<T>(
        &self,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
        show: impl Fn(&[u8], Result<&[u8], ReadError>) -> Result<Option<T>, ReadError>,
    ) -> Result<Vec<T>, ReadError> {
        let (start, end) = ([prefix, after.unwrap_or_default()].concat(), layout::after(prefix));
        let start =
            if after.is_some() { Bound::Excluded(&start[..]) } else { Bound::Included(&start[..]) };
        let mut range = self.range((start, Bound::Excluded(&end[..])));
        let mut page = Vec::new();
        while page.len() < limit
            && let Some(key) = range.next_key()
        {
            let key = key?;
            let record = self.get(key).map(Option::unwrap_or_default);
            page.extend(show(&key[prefix.len()..], record)?);
        }
        Ok(page)
    }
}
