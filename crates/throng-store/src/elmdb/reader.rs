//! [`Reader`]: repeated reads of the latest state, at the price of the lookup.

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
/// # use throng_store::{Store, Str, elmdb::Reader};
/// # let directory = tempfile::tempdir()?;
/// # let store = Store::open(directory.path())?;
/// let names = store.database::<Str, Str>("names")?;
/// let mut reader = Reader::new(&store);
/// assert_eq!(reader.get(&names, "key")?, None);
/// names.put("key", "value").wait()?;
/// assert_eq!(reader.get(&names, "key")?, Some("value"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Reader {
    store: Store,
    snapshot: Option<Snapshot>,
}

impl Reader {
    /// Creates a reader, which takes its first snapshot at the first read.
    pub fn new(store: &Store) -> Reader {
        Reader { store: store.clone(), snapshot: None }
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
            self.snapshot = Some(Snapshot::begin(self.store.readers())?);
        }
        match &self.snapshot {
            Some(snapshot) => Ok(snapshot),
            None => unreachable!("it was set above"),
        }
    }

    /// Returns the value under `key`.
    ///
    /// # Errors
    ///
    /// See [`Database::get`] and [`Store::snapshot`].
    pub fn get<K: Codec, V: Codec>(
        &mut self,
        database: &Database<K, V>,
        key: &K::Item,
    ) -> Result<Option<V::Decoded<'_>>, ReadError> {
        database.get(self.view()?, key)
    }

    /// Releases the snapshot, and with it the old pages, until the next read.
    pub fn rest(&mut self) {
        self.snapshot = None;
    }
}
