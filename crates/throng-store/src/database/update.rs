//! The reads and writes of an [`Update`], which name a database and are encoded by its codecs.

use std::ops::RangeBounds;

use crate::database::encode_bounds;
use crate::memtable::change::Operation;
use crate::read::range::{OwnedBounds, Source, borrow, prefix_bounds};
use crate::table::{Kind, TableRef};
use crate::{Codec, Database, Range, ReadError, Update};

impl Update<'_> {
    /// Returns the value under `key` in `database`; the first, if there are several.
    ///
    /// # Errors
    ///
    /// [`ReadError`], also if the codec cannot decode the bytes.
    pub fn get<K: Codec, V: Codec>(
        &self,
        database: &Database<K, V>,
        key: &K::Item,
    ) -> Result<Option<V::Decoded<'_>>, ReadError> {
        self.check(database)?;
        let bytes = K::encode(key, |key| self.read(database.table_ref(), key))??;
        bytes.map(|bytes| V::decode(bytes).map_err(ReadError::from)).transpose()
    }

    /// Sets `key` to `value` in `database`; if a key may have several values there, adds the value.
    pub fn put<K: Codec, V: Codec>(
        &mut self,
        database: &Database<K, V>,
        key: &K::Item,
        value: &V::Item,
    ) {
        let table_ref = database.table_ref();
        let several = table_ref.kind == Kind::Duplicates;
        let operation = if several { Operation::PutValue } else { Operation::Put };
        if self.add(|batch| batch.put(database, key, value)) {
            self.write_in(operation, database, key, Some(value));
        }
    }

    /// Removes `key` from `database`, with all its values.
    pub fn delete<K: Codec, V: Codec>(&mut self, database: &Database<K, V>, key: &K::Item) {
        let several = database.table_ref().kind == Kind::Duplicates;
        let operation = if several { Operation::DeleteAll } else { Operation::Delete };
        if self.add(|batch| batch.delete(database, key)) {
            self.write_in(operation, database, key, None);
        }
    }

    /// Removes this value of the key, in a database with several values under a key.
    pub fn delete_value<K: Codec, V: Codec>(
        &mut self,
        database: &Database<K, V>,
        key: &K::Item,
        value: &V::Item,
    ) {
        if self.add(|batch| batch.delete_value(database, key, value)) {
            self.write_in(Operation::DeleteValue, database, key, Some(value));
        }
    }

    /// Removes all entries of `database`. LMDB calls it `mdb_drop`.
    ///
    /// ```
    /// # use throng_store::{ReadError, Store, Str, U64};
    /// # let directory = tempfile::tempdir()?;
    /// # let store = Store::open(directory.path())?;
    /// let seats = store.database::<Str, U64>("seats")?;
    /// seats.put("ada", &1).wait()?;
    /// let taken = store.update({
    ///     let seats = seats.clone();
    ///     move |update| {
    ///         update.clear(&seats);
    ///         update.put(&seats, "alan", &1);
    ///         Ok::<_, ReadError>(update.range(&seats, ..).count())
    ///     }
    /// });
    /// assert_eq!(taken.wait()?, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn clear<K: Codec, V: Codec>(&mut self, database: &Database<K, V>) {
        if self.add(|batch| batch.clear(database)) {
            self.write(Operation::Clear, database.table_ref(), &[], &[]);
        }
    }

    /// Iterates over the entries of `database` whose keys lie within the bounds, from either end.
    ///
    /// ```
    /// # use throng_store::{Batch, ReadError, Store, Str, U64};
    /// # let directory = tempfile::tempdir()?;
    /// # let store = Store::open(directory.path())?;
    /// let jobs = store.database::<U64, Str>("jobs")?;
    /// store.write(Batch::new().put(&jobs, &1, "a").put(&jobs, &2, "b")).wait()?;
    /// // Takes the first job from the queue, exactly once among concurrent updates.
    /// let taken = store.update(move |update| {
    ///     let Some((number, job)) = update.range(&jobs, ..).next().transpose()? else {
    ///         return Ok::<_, ReadError>(None);
    ///     };
    ///     let job = job.to_owned();
    ///     update.delete(&jobs, &number);
    ///     Ok(Some(job))
    /// });
    /// assert_eq!(taken.wait()?, Some("a".to_owned()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn range<'k, K: Codec, V: Codec>(
        &self,
        database: &Database<K, V>,
        bounds: impl RangeBounds<&'k K::Item>,
    ) -> Range<'_, K, V>
    where
        K::Item: 'k,
    {
        let bounds = self.check(database).and_then(|()| encode_bounds::<K>(bounds));
        self.range_of(database.table_ref(), bounds)
    }

    /// Iterates over the entries of `database` whose encoded keys begin with `prefix`, from either
    /// end.
    pub fn prefix<K: Codec, V: Codec>(
        &self,
        database: &Database<K, V>,
        prefix: &[u8],
    ) -> Range<'_, K, V> {
        let bounds = self.check(database).map(|()| prefix_bounds(prefix));
        self.range_of(database.table_ref(), bounds)
    }

    fn range_of<K: Codec, V: Codec>(
        &self,
        table_ref: TableRef,
        bounds: Result<OwnedBounds, ReadError>,
    ) -> Range<'_, K, V> {
        let source = Source::State(self.state());
        match bounds {
            Ok((start, end)) => Range::new(source, table_ref, (borrow(&start), borrow(&end))),
            Err(error) => Range::failed(source, table_ref, error),
        }
    }

    /// Keeps a write that the batch has, for the closure's own reads.
    fn write_in<K: Codec, V: Codec>(
        &mut self,
        operation: Operation,
        database: &Database<K, V>,
        key: &K::Item,
        value: Option<&V::Item>,
    ) {
        let table_ref = database.table_ref();
        // The batch has encoded them, so they have encodings.
        let _ = K::encode(key, |key| match value {
            Some(value) => V::encode(value, |value| self.write(operation, table_ref, key, value)),
            None => {
                self.write(operation, table_ref, key, &[]);
                Ok(())
            }
        });
    }

    /// Refuses databases of another store, in which the table number has no meaning.
    pub(crate) fn check<K: Codec, V: Codec>(
        &self,
        database: &Database<K, V>,
    ) -> Result<(), ReadError> {
        let own = database.store().id() == self.store_id();
        if own { Ok(()) } else { Err(ReadError::OtherStore) }
    }
}
