//! [`Snapshot`]: a frozen, zero-copy view.

use std::fmt;
use std::sync::Arc;

use crate::disk::lmdb::{self, ReadTxn};
use crate::disk::record;
use crate::memtable::Layers;
use crate::read::merge;
use crate::read::readers::Readers;
use crate::read::state::State;
use crate::table::{Kind, TableRef};
use crate::{KEY_BYTES_MAX, ReadError};

/// The store as it was at a single moment. Later commits are not visible in it.
///
/// Keys and values are borrowed from the memory map or from the changes in memory; nothing is
/// copied. A snapshot can move to another thread but is used by one thread at a time. Drop it soon, see [`Store::snapshot`].
///
/// The methods of [`Database`](crate::Database) read a database in a snapshot.
///
/// [`Store::snapshot`]: crate::Store::snapshot
pub struct Snapshot {
    /// Transaction of LMDB; `None` while the snapshot is being dropped.
    txn: Option<ReadTxn>,
    /// The changes in memory that lie over the transaction.
    layers: Layers,
    /// The readers, which keep the claim on the directory longer than the transaction lives.
    readers: Arc<Readers>,
    /// Time at which the snapshot expires; see [`Readers::is_expired`].
    expiry: u64,
}

impl Snapshot {
    pub(crate) fn begin(readers: &Arc<Readers>) -> Result<Snapshot, ReadError> {
        Snapshot::until(readers, readers.expiry())
    }

    /// Begins a snapshot that never expires, for a long read of the whole store.
    pub(crate) fn begin_unbounded(readers: &Arc<Readers>) -> Result<Snapshot, ReadError> {
        Snapshot::until(readers, u64::MAX)
    }

    fn until(readers: &Arc<Readers>, expiry: u64) -> Result<Snapshot, ReadError> {
        let (txn, layers) = readers.begin()?;
        Ok(Snapshot { txn: Some(txn), layers, expiry, readers: readers.clone() })
    }

    /// Returns the position of the last change that this snapshot shows. Changes are counted over the life
    /// of the store, so later commits have greater positions.
    pub fn commit(&self) -> u64 {
        self.layers.upto
    }

    pub(crate) fn store_id(&self) -> u64 {
        self.readers.id()
    }

    pub(crate) fn get_in(
        &self,
        table_ref: TableRef,
        key: &[u8],
    ) -> Result<Option<&[u8]>, ReadError> {
        match self.stored_in(table_ref, key)? {
            Some(stored) => self.value(table_ref, key, stored).map(Some),
            None => Ok(None),
        }
    }

    /// Whether the key exists; its value is not read.
    pub(crate) fn has_in(&self, table_ref: TableRef, key: &[u8]) -> Result<bool, ReadError> {
        Ok(self.stored_in(table_ref, key)?.is_some())
    }

    /// Returns the stored bytes under the key, with their checksum.
    fn stored_in(&self, table_ref: TableRef, key: &[u8]) -> Result<Option<&[u8]>, ReadError> {
        self.check()?;
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Ok(None);
        }
        self.state().stored(table_ref, key).map_err(ReadError::from_engine)
    }

    pub(crate) fn len_in(&self, table_ref: TableRef) -> Result<u64, ReadError> {
        self.check()?;
        self.state().len(table_ref).map_err(ReadError::from_engine)
    }

    pub(crate) fn bytes_in(&self, table_ref: TableRef) -> Result<u64, ReadError> {
        self.check()?;
        match self.txn().bytes(table_ref.table) {
            Err(lmdb::Error::UnknownTable) => Ok(0),
            other => other.map_err(ReadError::from_engine),
        }
    }

    /// Opens a cursor without a position.
    pub(crate) fn cursor_in(&self, table_ref: TableRef) -> Result<merge::Cursor<'_>, ReadError> {
        self.check()?;
        self.state().cursor(table_ref).map_err(ReadError::from_engine)
    }

    /// Extracts the value from its stored bytes, and verifies its checksum if the options say so.
    pub(crate) fn value<'r>(
        &self,
        table_ref: TableRef,
        key: &[u8],
        stored: &'r [u8],
    ) -> Result<&'r [u8], ReadError> {
        match table_ref.kind {
            Kind::Checked if self.readers.verify_reads() => record::value(key, stored),
            Kind::Checked => record::unverified(key, stored),
            Kind::Plain | Kind::Duplicates => Ok(stored),
        }
    }

    pub(crate) fn check(&self) -> Result<(), ReadError> {
        if self.readers.is_expired(self.txn(), self.expiry) {
            Err(ReadError::Expired)
        } else {
            Ok(())
        }
    }

    /// Whether the snapshot shows everything that is visible now.
    pub(crate) fn is_fresh(&self) -> bool {
        self.readers.is_fresh(self.txn(), self.layers.upto)
    }

    /// Reads a whole database and verifies its checksums; returns `entries` plus the number of its
    /// entries.
    pub(crate) fn verify(
        &self,
        table_ref: TableRef,
        mut entries: u64,
        progress: &mut impl FnMut(u64),
    ) -> Result<u64, ReadError> {
        let mut cursor = self.cursor_in(table_ref)?;
        let mut entry = cursor.step(lmdb::Move::First).map_err(ReadError::from_engine)?;
        while let Some((key, stored)) = entry {
            table_ref.value(key, stored)?;
            entries += 1;
            if entries.is_multiple_of(PROGRESS_ENTRIES) {
                progress(entries);
            }
            entry = cursor.step(lmdb::Move::Next).map_err(ReadError::from_engine)?;
        }
        Ok(entries)
    }

    fn state(&self) -> State<'_> {
        State { txn: self.txn(), layers: &self.layers }
    }

    fn txn(&self) -> &ReadTxn {
        match &self.txn {
            Some(txn) => txn,
            None => unreachable!("only dropping it takes the transaction"),
        }
    }
}

const PROGRESS_ENTRIES: u64 = 1_024;

impl Drop for Snapshot {
    fn drop(&mut self) {
        if let Some(txn) = self.txn.take() {
            self.readers.end_read(txn);
        }
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("commit", &self.commit()).finish_non_exhaustive()
    }
}
