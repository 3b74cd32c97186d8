//! [`Reader`]: reads what is there at the moment, again and again, at the price of the lookup.

use crate::database::TableRef;
use crate::{Codec, Database, ReadError, Snapshot, Store};

/// A view that follows the store: each [`view`](Reader::view) shows everything whose ticket had
/// resolved before it.
///
/// For a thread or a worker that reads often. As long as nothing is committed it goes on with the
/// same snapshot; after a commit it renews it, without the engine's lock. What is borrowed from it ends
/// with the next call, so no snapshot of it outlives its use; between two calls it holds on to the
/// pages of the last one, so let one that pauses [`rest`](Reader::rest).
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

    /// What is there at the moment, frozen for as long as it is borrowed.
    ///
    /// Waits for the writer as [`Store::snapshot`] does, where there is anything to wait for.
    ///
    /// # Errors
    ///
    /// As [`Store::snapshot`].
    pub fn view(&mut self) -> Result<&Snapshot, ReadError> {
        self.store.environment().deferred().wait()?;
        self.committed()
    }

    /// The value under `key` in the default database.
    ///
    /// Waits for the writer only if this very key has just been written.
    ///
    /// # Errors
    ///
    /// As [`Snapshot::get`] and [`Store::snapshot`].
    pub fn get(&mut self, key: &[u8]) -> Result<Option<&[u8]>, ReadError> {
        let table_ref = self.store.environment().entries();
        self.get_at(table_ref, key)
    }

    /// The same in another database.
    ///
    /// # Errors
    ///
    /// As [`Database::get`] and [`Store::snapshot`].
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
        let deferred = self.store.environment().deferred();
        if deferred.has(table_ref.table, key) {
            deferred.wait()?;
        }
        // Only now: what was not, or no longer, held back above is in the last commit.
        self.committed()?.get_in(table_ref, key)
    }

    /// As [`view`](Reader::view), without what the writer holds back.
    fn committed(&mut self) -> Result<&Snapshot, ReadError> {
        if !self.snapshot.as_ref().is_some_and(Snapshot::is_fresh) {
            // Given back first: it is the one that is renewed.
            self.snapshot = None;
            self.snapshot = Some(Snapshot::of_committed(self.store.environment())?);
        }
        match &self.snapshot {
            Some(snapshot) => Ok(snapshot),
            None => unreachable!("it was set above"),
        }
    }

    /// Lets go of what it holds until it is used again.
    pub fn rest(&mut self) {
        self.snapshot = None;
    }
}
