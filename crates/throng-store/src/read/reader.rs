//! [`Reader`]: repeated reads of the latest state, at the price of the lookup.

use crate::database::TableRef;
use crate::{Codec, Database, ReadError, Snapshot, Store};

/// A view that follows the store: each [`view`](Reader::view) shows everything whose ticket had
/// resolved before it.
///
/// For a thread or a worker that reads often. Until the next commit the reader reuses its snapshot;
/// after a commit it renews the snapshot, without the engine's lock. Borrowed keys and values live
/// until the next call, so no snapshot outlives its use. Between two calls the reader retains the
/// pages and the changes in memory of its last snapshot, so call [`rest`](Reader::rest) before a
/// pause.
///
/// ```
/// # use throng_store::{Batch, Store};
/// # let directory = tempfile::tempdir()?;
/// # let store = Store::open(directory.path())?;
/// let mut reader = store.reader();
/// assert_eq!(reader.get(b"key")?, None);
/// store.write(Batch::new().put("key", "value")).wait()?;
/// assert_eq!(reader.get(b"key")?, Some(&b"value"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Reader {
    store: Store,
    snapshot: Option<Snapshot>,
}

impl Reader {
    pub(crate) fn new(store: Store) -> Reader {
        Reader { store, snapshot: None }
    }

    /// Returns a snapshot of the latest state, frozen for as long as it is borrowed.
    ///
    /// # Errors
    ///
    /// See [`Store::snapshot`].
    pub fn view(&mut self) -> Result<&Snapshot, ReadError> {
        if !self.snapshot.as_ref().is_some_and(Snapshot::is_fresh) {
            // The old snapshot is returned first, because its transaction is the one that is
            // renewed.
            self.snapshot = None;
            self.snapshot = Some(Snapshot::begin(self.store.environment())?);
        }
        match &self.snapshot {
            Some(snapshot) => Ok(snapshot),
            None => unreachable!("it was set above"),
        }
    }

    /// Returns the value under `key` in the default database.
    ///
    /// # Errors
    ///
    /// See [`Snapshot::get`] and [`Store::snapshot`].
    pub fn get(&mut self, key: &[u8]) -> Result<Option<&[u8]>, ReadError> {
        let table_ref = self.store.environment().entries();
        self.get_at(table_ref, key)
    }

    /// Returns the value under `key` in `database`; see [`get`](Reader::get).
    ///
    /// # Errors
    ///
    /// See [`Database::get`] and [`Store::snapshot`].
    pub fn get_in<K: Codec, V: Codec>(
        &mut self,
        database: &Database<K, V>,
        key: &K::Item,
    ) -> Result<Option<V::Decoded<'_>>, ReadError> {
        if database.store().id() != self.store.id() {
            return Err(ReadError::OtherStore);
        }
        let bytes = K::encode(key, |key| self.get_at(database.table_ref(), key))??;
        bytes.map(|bytes| V::decode(bytes).map_err(ReadError::from)).transpose()
    }

    fn get_at(&mut self, table_ref: TableRef, key: &[u8]) -> Result<Option<&[u8]>, ReadError> {
        self.view()?.get_in(table_ref, key)
    }

    /// Releases the snapshot, and with it the old pages, until the next read.
    pub fn rest(&mut self) {
        self.snapshot = None;
    }
}
