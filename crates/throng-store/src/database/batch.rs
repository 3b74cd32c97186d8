//! The operations of a [`Batch`], which name a database and are encoded by its codecs.

use crate::write::batch::Code;
use crate::{Batch, Codec, Database};

impl Batch {
    /// Adds an operation that sets `key` to `value`. In a database with several values under a key, the
    /// operation adds the value to the others.
    #[must_use]
    pub fn put<K: Codec, V: Codec>(
        self,
        database: &Database<K, V>,
        key: &K::Item,
        value: &V::Item,
    ) -> Batch {
        self.push_encoded(Code::Put, database, key, Some(value))
    }

    /// Adds an operation that sets `key` to `value` if the key does not exist; if it does, the
    /// whole batch is refused as [`WriteError::KeyExists`](crate::WriteError::KeyExists).
    ///
    /// The state before the batch decides; earlier operations of the batch do not count.
    ///
    /// ```
    /// # use throng_store::{Batch, Bytes, Store, Str, WriteError};
    /// # let directory = tempfile::tempdir()?;
    /// # let store = Store::open(directory.path())?;
    /// let names = store.database::<Str, Bytes>("names")?;
    /// let claim = || store.write(Batch::new().put_new(&names, "ada", b"1815").add(&names, "all", 1));
    /// claim().wait()?;
    /// assert!(matches!(claim().wait(), Err(WriteError::KeyExists(_))));
    /// assert_eq!(names.get(&store.snapshot()?, "all")?, Some(&1i64.to_le_bytes()[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn put_new<K: Codec, V: Codec>(
        self,
        database: &Database<K, V>,
        key: &K::Item,
        value: &V::Item,
    ) -> Batch {
        self.push_encoded(Code::PutNew, database, key, Some(value))
    }

    /// Adds an operation that removes `key` with all its values, if it exists.
    #[must_use]
    pub fn delete<K: Codec, V: Codec>(self, database: &Database<K, V>, key: &K::Item) -> Batch {
        self.push_encoded(Code::Delete, database, key, None)
    }

    /// Adds an operation that removes `value` from the values of `key`, if it is one of them.
    #[must_use]
    pub fn delete_value<K: Codec, V: Codec>(
        self,
        database: &Database<K, V>,
        key: &K::Item,
        value: &V::Item,
    ) -> Batch {
        self.push_encoded(Code::DeleteValue, database, key, Some(value))
    }

    /// Adds an operation that changes the counter under `key` by `difference`, relative to its
    /// value at the commit. The database has one value under each key.
    ///
    /// Any number of writers can count concurrently without reading first. A counter is a value of
    /// eight bytes, a little-endian `i64`, which wraps around; a key without a value, or with a
    /// value of another length, counts as zero.
    ///
    /// ```
    /// # use throng_store::{Batch, Bytes, Store, Str, U64};
    /// # let directory = tempfile::tempdir()?;
    /// # let store = Store::open(directory.path())?;
    /// let posts = store.database::<U64, Str>("posts")?;
    /// let counts = store.database::<Str, Bytes>("counts")?;
    /// let posted = Batch::new().put(&posts, &1, "hello").add(&counts, "posts", 1);
    /// let again = Batch::new().put(&posts, &2, "world").add(&counts, "posts", 1);
    /// let (posted, again) = (store.write(posted), store.write(again));
    /// (posted.wait()?, again.wait()?);
    /// assert_eq!(counts.get(&store.snapshot()?, "posts")?, Some(&2i64.to_le_bytes()[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn add<K: Codec, V: Codec>(
        mut self,
        database: &Database<K, V>,
        key: &K::Item,
        difference: i64,
    ) -> Batch {
        self.belongs_to(database.store().id());
        let encoded = K::encode(key, |key| {
            self.push(Code::Add, database.table_ref(), key, &difference.to_le_bytes());
        });
        self.encoded(encoded);
        self
    }

    /// Adds an operation that removes all entries of `database`.
    #[must_use]
    pub fn clear<K: Codec, V: Codec>(mut self, database: &Database<K, V>) -> Batch {
        self.belongs_to(database.store().id());
        self.push_unchecked(Code::Clear, database.table_ref(), &[], &[]);
        self
    }

    fn push_encoded<K: Codec, V: Codec>(
        mut self,
        code: Code,
        database: &Database<K, V>,
        key: &K::Item,
        value: Option<&V::Item>,
    ) -> Batch {
        self.belongs_to(database.store().id());
        let table_ref = database.table_ref();
        let encoded = K::encode(key, |key| match value {
            Some(value) => V::encode(value, |value| self.push(code, table_ref, key, value)),
            None => {
                self.push(code, table_ref, key, &[]);
                Ok(())
            }
        });
        self.encoded(encoded.and_then(|inner| inner));
        self
    }
}
