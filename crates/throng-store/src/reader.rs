//! [`Reader`]: reads what is there at the moment, again and again, at the price of the lookup.

use crate::{ReadError, Snapshot, Store};

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
    /// # Errors
    ///
    /// As [`Store::snapshot`].
    pub fn view(&mut self) -> Result<&Snapshot, ReadError> {
        if !self.snapshot.as_ref().is_some_and(Snapshot::is_fresh) {
            // Given back first: it is the one that is renewed.
            self.snapshot = None;
            self.snapshot = Some(self.store.snapshot()?);
        }
        match &self.snapshot {
            Some(snapshot) => Ok(snapshot),
            None => unreachable!("it was set above"),
        }
    }

    /// The value under `key` in the default database.
    ///
    /// # Errors
    ///
    /// As [`Snapshot::get`] and [`Store::snapshot`].
    pub fn get(&mut self, key: &[u8]) -> Result<Option<&[u8]>, ReadError> {
        self.view()?.get(key)
    }

    /// Lets go of what it holds until it is used again.
    pub fn rest(&mut self) {
        self.snapshot = None;
    }
}
