//! [`State`]: the content of the store at a moment: LMDB with the memtables over it.

use crate::disk::lmdb::{self, Error, Move, ReadTxn};
use crate::memtable::{Found, Layers};
use crate::read::merge;
use crate::table::{Kind, TableRef};

/// A transaction of LMDB and the layers over it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State<'s> {
    pub(crate) txn: &'s ReadTxn,
    pub(crate) layers: &'s Layers,
}

impl<'s> State<'s> {
    /// Returns the stored bytes under a key, with their checksum; the first value if the key has several.
    /// The key may have any length.
    pub(crate) fn stored(self, table_ref: TableRef, key: &[u8]) -> Result<Option<&'s [u8]>, Error> {
        if table_ref.kind == Kind::Duplicates {
            return Ok(self.cursor(table_ref)?.seek(key)?.map(|(_, value)| value));
        }
        match self.layers.get(table_ref.table, key) {
            Found::Value(stored) => Ok(Some(stored)),
            Found::Deleted => Ok(None),
            Found::Unchanged => known(self.txn.get(table_ref.table, key)).map(Option::flatten),
        }
    }

    /// Opens a cursor without a position.
    pub(crate) fn cursor(self, table_ref: TableRef) -> Result<merge::Cursor<'s>, Error> {
        let engine = || known(self.txn.cursor(table_ref.table));
        merge::Cursor::new(table_ref, self.layers.walk(table_ref.table), engine)
    }

    /// Returns the number of entries. Costs a search for each key that was changed since the last
    /// checkpoint.
    pub(crate) fn len(self, table_ref: TableRef) -> Result<u64, Error> {
        let mut walk = self.layers.walk(table_ref.table);
        let stored = known(self.txn.len(table_ref.table))?.unwrap_or(0);
        if walk.is_empty() {
            return Ok(stored);
        }
        if table_ref.kind == Kind::Duplicates {
            let (mut cursor, mut entries) = (self.cursor(table_ref)?, 0);
            let mut found = cursor.step(Move::First)?;
            while found.is_some() {
                entries += 1;
                found = cursor.step(Move::Next)?;
            }
            return Ok(entries);
        }
        let mut engine = match walk.is_cleared() {
            true => None,
            false => known(self.txn.cursor(table_ref.table))?,
        };
        let mut entries = if engine.is_some() { stored } else { 0 };
        walk.go_first();
        while let Some(change) = walk.step() {
            let existed = match &mut engine {
                Some(engine) => engine.seek(change.key)?.is_some(),
                None => false,
            };
            entries = entries + u64::from(change.operation.puts()) - u64::from(existed);
        }
        Ok(entries)
    }
}

/// Returns `None` if the table was created after the transaction began.
fn known<T>(result: Result<T, lmdb::Error>) -> Result<Option<T>, lmdb::Error> {
    match result {
        Err(lmdb::Error::UnknownTable) => Ok(None),
        other => other.map(Some),
    }
}
