//! [`TableRef`]: a table of LMDB and its kind, by which batches, records and readers name a database.

/// Number of an open table; valid in every transaction begun after it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Table(pub(crate) u32);

/// Kind of a database, fixed when it is created; see [`DatabaseOptions`](crate::DatabaseOptions).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Values with checksums.
    Checked,
    /// Values without checksums.
    Plain,
    /// Several values under a key, without checksums.
    Duplicates,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableRef {
    pub(crate) table: Table,
    pub(crate) kind: Kind,
}

impl Kind {
    /// First character of the stored name of a database of this kind.
    pub(crate) fn mark(self) -> char {
        match self {
            Kind::Checked => '+',
            Kind::Plain => '-',
            Kind::Duplicates => '*',
        }
    }

    /// Parses a stored name; `None` if it is not that of a named database.
    pub(crate) fn of(stored: &str) -> Option<(Kind, &str)> {
        [Kind::Checked, Kind::Plain, Kind::Duplicates]
            .into_iter()
            .find_map(|kind| Some((kind, stored.strip_prefix(kind.mark())?)))
    }
}
