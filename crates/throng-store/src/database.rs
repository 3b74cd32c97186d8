//! [`Database`]: a table of a store, with codecs for its keys and values.
//!
//! A handle is a table number with types and its store. A batch remembers the store of the
//! databases it names, so it cannot write into another store; a handle does not read snapshots of
//! another store.

mod batch;
mod update;

use std::borrow::Borrow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};

use crate::read::range::{OwnedBounds, Source, borrow, prefix_bounds};
use crate::table::{Kind, TableRef};
use crate::{
    Batch, Bytes, Codec, DatabaseError, LoadError, Range, ReadError, Scan, Snapshot, Store, Ticket,
};

/// A database of a [`Store`]: an ordered map beside others, written in the same batches.
///
/// [`Store::database`] opens it, or [`Store::default_database`]. It is a handle of the store, which stays open for it.
/// `K` and `V` are [codecs](Codec); by default keys and values are bytes.
///
/// ```
/// use throng_store::{Batch, Store, Str, U64};
/// # let directory = tempfile::tempdir()?;
/// # let store = Store::open(directory.path())?;
/// let names = store.database::<U64, Str>("names")?;
/// let ages = store.database::<Str, U64>("ages")?;
/// store.write(Batch::new().put(&names, &7, "ada").put(&ages, "ada", &36)).wait()?;
///
/// let snapshot = store.snapshot()?;
/// assert_eq!(names.get(&snapshot, &7)?, Some("ada"));
/// let oldest = ages.range(&snapshot, ..).map(|entry| entry.map(|(_, age)| age)).max_by_key(
///     |age| age.as_ref().ok().copied(),
/// );
/// assert_eq!(oldest.transpose()?, Some(36));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Database<K: Codec = Bytes, V: Codec = Bytes> {
    table_ref: TableRef,
    store: Store,
    codecs: PhantomData<fn() -> (K, V)>,
}

/// Options of a named database, for [`Store::database_with`]. The options are fixed when the
/// database is created.
#[derive(Clone, Debug)]
#[must_use = "options do nothing by themselves"]
pub struct DatabaseOptions {
    kind: Kind,
    make: bool,
}

impl Default for DatabaseOptions {
    fn default() -> DatabaseOptions {
        DatabaseOptions { kind: Kind::Checked, make: true }
    }
}

impl DatabaseOptions {
    /// Creates the default options: one value under each key, with a checksum; the database is
    /// created if it does not exist.
    pub fn new() -> DatabaseOptions {
        DatabaseOptions::default()
    }

    /// Stores values without checksums. Saves four bytes for each value, two for a value of at most
    /// 32 bytes; damage goes unnoticed.
    pub fn without_checksums(mut self) -> DatabaseOptions {
        self.kind = Kind::Plain;
        self
    }

    /// Stores several values under a key, each at most [`KEY_BYTES_MAX`](crate::KEY_BYTES_MAX)
    /// bytes long, in byte order, and without checksums. LMDB calls it `MDB_DUPSORT`.
    pub fn duplicates(mut self) -> DatabaseOptions {
        self.kind = Kind::Duplicates;
        self
    }

    /// Opens an existing database only: it is not created if it does not exist.
    pub fn existing(mut self) -> DatabaseOptions {
        self.make = false;
        self
    }

    /// Whether values have checksums.
    pub fn has_checksums(&self) -> bool {
        self.kind == Kind::Checked
    }

    /// Whether a key may have several values.
    pub fn has_duplicates(&self) -> bool {
        self.kind == Kind::Duplicates
    }

    pub(crate) fn of(kind: Kind) -> DatabaseOptions {
        DatabaseOptions { kind, make: true }
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    pub(crate) fn make(&self) -> bool {
        self.make
    }
}

/// Statistics of a single database, from [`Store::stat_databases`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DatabaseStat {
    /// Name of the database; `None` for the default database.
    pub name: Option<String>,
    /// Options of the database.
    pub options: DatabaseOptions,
    /// Number of entries; each of several values under a key counts.
    pub entries: u64,
    /// Size of the database's pages in the data file, in bytes.
    pub bytes: u64,
}

impl Store {
    /// Opens the database `name`, with one value under each key and checksums, and creates it if it
    /// does not exist.
    ///
    /// Creating a database blocks for a commit, so open databases at start-up.
    ///
    /// # Errors
    ///
    /// [`DatabaseError`], with a variant for each remedy.
    pub fn database<K: Codec, V: Codec>(
        &self,
        name: &str,
    ) -> Result<Database<K, V>, DatabaseError> {
        self.database_with(name, &DatabaseOptions::new())
    }

    /// Opens the database `name` with these options.
    ///
    /// ```
    /// use throng_store::{DatabaseOptions, Store, Str, U64};
    /// # let directory = tempfile::tempdir()?;
    /// # let store = Store::open(directory.path())?;
    /// let tags = store.database_with::<Str, U64>("tags", &DatabaseOptions::new().duplicates())?;
    /// for post in [7, 3, 5] {
    ///     tags.put("rust", &post).wait()?;
    /// }
    /// let snapshot = store.snapshot()?;
    /// let posts = tags.values(&snapshot, "rust").map(|entry| Ok(entry?.1));
    /// assert_eq!(posts.collect::<Result<Vec<_>, throng_store::ReadError>>()?, [3, 5, 7]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [`database`](Store::database).
    pub fn database_with<K: Codec, V: Codec>(
        &self,
        name: &str,
        options: &DatabaseOptions,
    ) -> Result<Database<K, V>, DatabaseError> {
        let table_ref = self.environment().open_database(name, options.kind(), options.make())?;
        Ok(Database::new(self.clone(), table_ref))
    }

    /// Returns the default database, which every store has. It has no name, one value under each key and
    /// checksums.
    pub fn default_database<K: Codec, V: Codec>(&self) -> Database<K, V> {
        Database::new(self.clone(), self.environment().entries())
    }

    /// Returns the names of all named databases, in order.
    pub fn databases(&self) -> Vec<String> {
        self.environment().databases().into_iter().map(|(name, _)| name).collect()
    }

    /// Returns statistics of all databases: first the default database, then the others in order of
    /// their names.
    ///
    /// # Errors
    ///
    /// See [`snapshot`](Store::snapshot).
    pub fn stat_databases(&self) -> Result<Vec<DatabaseStat>, ReadError> {
        let environment = &self.environment();
        let snapshot = self.snapshot()?;
        let named =
            environment.databases().into_iter().map(|(name, table_ref)| (Some(name), table_ref));
        std::iter::once((None, environment.entries()))
            .chain(named)
            .map(|(name, table_ref)| {
                let options = DatabaseOptions::of(table_ref.kind);
                let (entries, bytes) = (snapshot.len_in(table_ref)?, snapshot.bytes_in(table_ref)?);
                Ok(DatabaseStat { name, options, entries, bytes })
            })
            .collect()
    }
}

impl<K: Codec, V: Codec> Database<K, V> {
    pub(crate) fn new(store: Store, table_ref: TableRef) -> Database<K, V> {
        Database { table_ref, store, codecs: PhantomData }
    }

    pub(crate) fn table_ref(&self) -> TableRef {
        self.table_ref
    }

    /// Returns the store of this database.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Sets the key to the value; see [`Store::write`] for when the write is durable.
    pub fn put(&self, key: &K::Item, value: &V::Item) -> Ticket {
        self.store.write(Batch::new().put(self, key, value))
    }

    /// Sets the key to the value, unless the key exists; see [`Batch::put_new`].
    pub fn put_new(&self, key: &K::Item, value: &V::Item) -> Ticket {
        self.store.write(Batch::new().put_new(self, key, value))
    }

    /// Removes the key, with all its values.
    pub fn delete(&self, key: &K::Item) -> Ticket {
        self.store.write(Batch::new().delete(self, key))
    }

    /// Removes a single value of the key, in a database with [several
    /// values](DatabaseOptions::duplicates) under a key.
    pub fn delete_value(&self, key: &K::Item, value: &V::Item) -> Ticket {
        self.store.write(Batch::new().delete_value(self, key, value))
    }

    /// Removes all entries. The database itself stays, empty. LMDB calls it `mdb_drop`.
    pub fn clear(&self) -> Ticket {
        self.store.write(Batch::new().clear(self))
    }

    /// Stores entries whose encoded keys ascend, and returns their number: a bulk load, which goes straight
    /// into LMDB and fills its pages.
    ///
    /// The entries need neither the queue nor the log. They are stored in chunks of up to 8 MiB and
    /// 65,536 entries, each as durable as the store when the next one begins; other writers wait for a
    /// chunk at a time. A load is not atomic: readers see each chunk just before it is durable, and after
    /// a crash the first chunks are there. A key that exists gets the new value. Where a key may have several
    /// values, these ascend within their key, and are added to those that exist.
    ///
    /// ```
    /// # use throng_store::{LoadFailure, Store, Str, U64};
    /// # let directory = tempfile::tempdir()?;
    /// # let store = Store::open(directory.path())?;
    /// let born = store.database::<Str, U64>("born")?;
    /// assert_eq!(born.load([("ada", 1815), ("alan", 1912)])?, 2);
    /// let ended = born.load([("grace", 1906), ("barbara", 1939)]).unwrap_err();
    /// assert!(ended.loaded == 1 && matches!(ended.failure, LoadFailure::Order));
    /// assert_eq!(born.get(&store.snapshot()?, "grace")?, Some(1906));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`LoadError`] with the number of entries that are stored, which are those before the first that
    /// is not.
    ///
    /// # Panics
    ///
    /// Panics if the iterator or a codec does; the entries before are stored, unless that fails too.
    pub fn load(
        &self,
        entries: impl IntoIterator<Item = (impl Borrow<K::Item>, impl Borrow<V::Item>)>,
    ) -> Result<u64, LoadError> {
        self.store.load_into::<K, V>(self.table_ref, entries)
    }

    /// Returns the value under the key; the first value, if there are several.
    ///
    /// # Errors
    ///
    /// [`ReadError`], also if the codec cannot decode the bytes.
    pub fn get<'s>(
        &self,
        snapshot: &'s Snapshot,
        key: &K::Item,
    ) -> Result<Option<V::Decoded<'s>>, ReadError> {
        self.check(snapshot)?;
        let bytes = K::encode(key, |key| snapshot.get_in(self.table_ref, key))??;
        bytes.map(|bytes| V::decode(bytes).map_err(ReadError::from)).transpose()
    }

    /// Iterates over the entries whose keys lie within the bounds, from either end.
    ///
    /// If a bound has no encoding, the first step fails.
    pub fn range<'s, 'k>(
        &self,
        snapshot: &'s Snapshot,
        bounds: impl RangeBounds<&'k K::Item>,
    ) -> Range<'s, K, V>
    where
        K::Item: 'k,
    {
        let source = Source::Snapshot(snapshot);
        match self.check(snapshot).and_then(|()| encode_bounds::<K>(bounds)) {
            Ok((start, end)) => Range::new(source, self.table_ref, (borrow(&start), borrow(&end))),
            Err(error) => Range::failed(source, self.table_ref, error),
        }
    }

    /// Iterates over the entries whose encoded keys begin with `prefix`, from either end.
    pub fn prefix<'s>(&self, snapshot: &'s Snapshot, prefix: &[u8]) -> Range<'s, K, V> {
        let source = Source::Snapshot(snapshot);
        match self.check(snapshot) {
            Ok(()) => Range::of_prefix(source, self.table_ref, prefix),
            Err(error) => Range::failed(source, self.table_ref, error),
        }
    }

    /// Walks the entries whose keys lie within the bounds, in chunks, each from a snapshot of its
    /// own.
    ///
    /// If a bound has no encoding, the first chunk fails.
    ///
    /// ```
    /// use throng_store::{Batch, Store, Str, U64};
    /// # let directory = tempfile::tempdir()?;
    /// # let store = Store::open(directory.path())?;
    /// let squares = store.database::<U64, U64>("squares")?;
    /// let batch = Batch::new();
    /// store.write((0..9).fold(batch, |batch, n| batch.put(&squares, &n, &(n * n)))).wait()?;
    /// let mut sums = Vec::new();
    /// for chunk in squares.scan(&1..).chunk(3).backward() {
    ///     let mut sum = 0;
    ///     for entry in &chunk? {
    ///         sum += entry?.1;
    ///     }
    ///     sums.push(sum);
    /// }
    /// assert_eq!(sums, [64 + 49 + 36, 25 + 16 + 9, 4 + 1]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn scan<'k>(&self, bounds: impl RangeBounds<&'k K::Item>) -> Scan<K, V>
    where
        K::Item: 'k,
    {
        Scan::new(self.store.clone(), self.table_ref, encode_bounds::<K>(bounds))
    }

    /// Walks the entries whose encoded keys begin with `prefix`; see [`scan`](Database::scan).
    pub fn scan_prefix(&self, prefix: &[u8]) -> Scan<K, V> {
        Scan::new(self.store.clone(), self.table_ref, Ok(prefix_bounds(prefix)))
    }

    /// Iterates over the values of a single key, from either end; at most one value unless the
    /// database has [several](DatabaseOptions::duplicates) under a key.
    pub fn values<'s>(&self, snapshot: &'s Snapshot, key: &K::Item) -> Range<'s, K, V> {
        self.range(snapshot, key..=key)
    }

    /// Returns the number of entries; each of several values under a key counts.
    ///
    /// Costs a search for each key that was changed since the last checkpoint; with several values under a key, a walk
    /// through the database if there are any such changes.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if the engine fails.
    pub fn len(&self, snapshot: &Snapshot) -> Result<u64, ReadError> {
        self.check(snapshot)?;
        snapshot.len_in(self.table_ref)
    }

    /// Returns the size of the database's pages in the data file, in bytes.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if the engine fails.
    pub fn bytes(&self, snapshot: &Snapshot) -> Result<u64, ReadError> {
        self.check(snapshot)?;
        snapshot.bytes_in(self.table_ref)
    }

    /// Whether the database is empty.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if the engine fails.
    pub fn is_empty(&self, snapshot: &Snapshot) -> Result<bool, ReadError> {
        self.range(snapshot, ..).next_key().transpose().map(|first| first.is_none())
    }

    /// Refuses snapshots of another store, in which the table number has no meaning.
    pub(crate) fn check(&self, snapshot: &Snapshot) -> Result<(), ReadError> {
        if snapshot.store_id() == self.store.id() { Ok(()) } else { Err(ReadError::OtherStore) }
    }
}

impl<K: Codec, V: Codec> Clone for Database<K, V> {
    fn clone(&self) -> Self {
        Database::new(self.store.clone(), self.table_ref)
    }
}

impl<K: Codec, V: Codec> fmt::Debug for Database<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("table", &self.table_ref).finish_non_exhaustive()
    }
}

/// Encodes the bounds of a range of keys.
pub(crate) fn encode_bounds<'k, K: Codec>(
    bounds: impl RangeBounds<&'k K::Item>,
) -> Result<OwnedBounds, ReadError>
where
    K::Item: 'k,
{
    let encode = |bound: Bound<&&K::Item>| {
        Ok::<_, ReadError>(match bound {
            Bound::Included(key) => Bound::Included(K::encode(key, <[u8]>::to_vec)?),
            Bound::Excluded(key) => Bound::Excluded(K::encode(key, <[u8]>::to_vec)?),
            Bound::Unbounded => Bound::Unbounded,
        })
    };
    Ok((encode(bounds.start_bound())?, encode(bounds.end_bound())?))
}
