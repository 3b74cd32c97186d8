//! [`Database`]: a named table of a store, with codecs for its keys and values.
//!
//! A handle is a number with types, and the store it belongs to. The batches that name it remember
//! whose it is, so it cannot write into another store; nor does it read another one's snapshots.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};

use crate::disk::lmdb::Table;
use crate::read::range::{OwnedBounds, Source, borrow, prefix_bounds};
use crate::{
    Batch, Bytes, Children, Codec, Cursor, Matches, Range, ReadError, Scan, Snapshot, Store, Ticket,
};

/// A named database of a [`Store`]: an ordered map beside others, written in the same batches.
///
/// From [`Store::database`]. `K` and `V` are [codecs](Codec); by default keys and values are bytes.
///
/// ```
/// use throng_store::{Batch, Store, Str, U64};
/// # let directory = tempfile::tempdir()?;
/// # let store = Store::open(directory.path())?;
/// let names = store.database::<U64, Str>("names")?;
/// let ages = store.database::<Str, U64>("ages")?;
/// store.write(Batch::new().put_in(&names, &7, "ada").put_in(&ages, "ada", &36)).wait()?;
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

/// What a database is like; from its first opening on, see [`DatabaseOptions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Values under checksums.
    Checked,
    /// Values as they are.
    Plain,
    /// Several values under a key, as they are.
    Duplicates,
}

/// The table of a database and its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableRef {
    pub(crate) table: Table,
    pub(crate) kind: Kind,
}

/// What a named database is like, for [`Store::database_with`]. It stays so.
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
    /// One value under each key, with a checksum; made if it is not there.
    pub fn new() -> DatabaseOptions {
        DatabaseOptions::default()
    }

    /// Values without checksums: four bytes less each, two where they are of 32 bytes at most, and
    /// damage goes unnoticed.
    pub fn without_checksums(mut self) -> DatabaseOptions {
        self.kind = Kind::Plain;
        self
    }

    /// Several values under one key, each at most [`KEY_BYTES_MAX`](crate::KEY_BYTES_MAX) long,
    /// in the order of their bytes, and without checksums. LMDB calls it `MDB_DUPSORT`.
    pub fn duplicates(mut self) -> DatabaseOptions {
        self.kind = Kind::Duplicates;
        self
    }

    /// Refuses to make it: it must be there.
    pub fn existing(mut self) -> DatabaseOptions {
        self.make = false;
        self
    }

    /// Whether it has checksums.
    pub fn has_checksums(&self) -> bool {
        self.kind == Kind::Checked
    }

    /// Whether it has several values under a key.
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

impl<K: Codec, V: Codec> Database<K, V> {
    pub(crate) fn new(store: Store, table_ref: TableRef) -> Database<K, V> {
        Database { table_ref, store, codecs: PhantomData }
    }

    pub(crate) fn table_ref(&self) -> TableRef {
        self.table_ref
    }

    /// The store it belongs to.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Sets the key to the value; see [`Store::write`] for when and how.
    pub fn put(&self, key: &K::Item, value: &V::Item) -> Ticket {
        self.store.write(Batch::new().put_in(self, key, value))
    }

    /// Sets the key to the value, unless it has one; see [`Batch::put_new`].
    pub fn put_new(&self, key: &K::Item, value: &V::Item) -> Ticket {
        self.store.write(Batch::new().put_new_in(self, key, value))
    }

    /// Removes the key, with all its values.
    pub fn delete(&self, key: &K::Item) -> Ticket {
        self.store.write(Batch::new().delete_in(self, key))
    }

    /// Removes one value of the key, in a database of [several](DatabaseOptions::duplicates).
    pub fn delete_value(&self, key: &K::Item, value: &V::Item) -> Ticket {
        self.store.write(Batch::new().delete_value_in(self, key, value))
    }

    /// Removes everything. The database itself stays, empty. LMDB calls it `mdb_drop`.
    pub fn clear(&self) -> Ticket {
        self.store.write(Batch::new().clear_in(self))
    }

    /// The value under the key; the first, where there are several.
    ///
    /// # Errors
    ///
    /// [`ReadError`], also where the bytes are none of the codec's.
    pub fn get<'s>(
        &self,
        snapshot: &'s Snapshot,
        key: &K::Item,
    ) -> Result<Option<V::Decoded<'s>>, ReadError> {
        self.check(snapshot)?;
        let bytes = K::encode(key, |key| snapshot.get_in(self.table_ref, key))??;
        bytes.map(|bytes| V::decode(bytes).map_err(ReadError::from)).transpose()
    }

    /// The entries whose keys lie within the bounds, from either end.
    ///
    /// A key that has no encoding bounds nothing, and the first step says so.
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

    /// The entries whose encoded keys begin with these bytes, from either end.
    pub fn prefix<'s>(&self, snapshot: &'s Snapshot, prefix: &[u8]) -> Range<'s, K, V> {
        let source = Source::Snapshot(snapshot);
        match self.check(snapshot) {
            Ok(()) => Range::of_prefix(source, self.table_ref, prefix),
            Err(error) => Range::failed(source, self.table_ref, error),
        }
    }

    /// The entries whose keys lie within the bounds, in chunks, each from a snapshot of its own.
    ///
    /// A key that has no encoding bounds nothing, and the first chunk says so.
    ///
    /// ```
    /// use throng_store::{Batch, Store, Str, U64};
    /// # let directory = tempfile::tempdir()?;
    /// # let store = Store::open(directory.path())?;
    /// let squares = store.database::<U64, U64>("squares")?;
    /// let batch = Batch::new();
    /// store.write((0..9).fold(batch, |batch, n| batch.put_in(&squares, &n, &(n * n)))).wait()?;
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

    /// As [`scan`](Database::scan), of the encoded keys that begin with `prefix`.
    pub fn scan_prefix(&self, prefix: &[u8]) -> Scan<K, V> {
        Scan::new(self.store.clone(), self.table_ref, Ok(prefix_bounds(prefix)))
    }

    /// As [`Snapshot::children`], of its encoded keys.
    pub fn children<'s>(
        &self,
        snapshot: &'s Snapshot,
        prefix: &[u8],
        separator: u8,
    ) -> Children<'s> {
        let children = Children::new(snapshot, self.table_ref, prefix, separator);
        match self.check(snapshot) {
            Ok(()) => children,
            Err(error) => children.failed(error),
        }
    }

    /// As [`Snapshot::matching`], of its encoded keys and values; where a key has several values,
    /// one of them is to be the pattern's.
    pub fn matching<'s>(
        &self,
        snapshot: &'s Snapshot,
        prefix: &[u8],
        separator: u8,
        patterns: &[(&[u8], &[u8])],
    ) -> Matches<'s> {
        self.children(snapshot, prefix, separator).matching(patterns)
    }

    /// The values of one key, from either end; at most one unless it is a database of
    /// [several](DatabaseOptions::duplicates).
    pub fn values<'s>(&self, snapshot: &'s Snapshot, key: &K::Item) -> Range<'s, K, V> {
        self.range(snapshot, key..=key)
    }

    /// A cursor, which stands nowhere yet.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if the engine fails.
    pub fn cursor<'s>(&self, snapshot: &'s Snapshot) -> Result<Cursor<'s, K, V>, ReadError> {
        self.check(snapshot)?;
        Cursor::new(snapshot, self.table_ref)
    }

    /// How many entries there are; of several values under a key, each counts.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if the engine fails.
    pub fn len(&self, snapshot: &Snapshot) -> Result<u64, ReadError> {
        self.check(snapshot)?;
        snapshot.len_in(self.table_ref)
    }

    /// How many bytes its pages take in the data file.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if the engine fails.
    pub fn bytes(&self, snapshot: &Snapshot) -> Result<u64, ReadError> {
        self.check(snapshot)?;
        snapshot.bytes_in(self.table_ref)
    }

    /// Whether there is no entry.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if the engine fails.
    pub fn is_empty(&self, snapshot: &Snapshot) -> Result<bool, ReadError> {
        self.len(snapshot).map(|len| len == 0)
    }

    /// A number means nothing in another store.
    fn check(&self, snapshot: &Snapshot) -> Result<(), ReadError> {
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

impl Kind {
    /// What its names begin with on the disk.
    pub(crate) fn mark(self) -> char {
        match self {
            Kind::Checked => '+',
            Kind::Plain => '-',
            Kind::Duplicates => '*',
        }
    }

    /// What a name on the disk stands for, if for a named database.
    pub(crate) fn of(stored: &str) -> Option<(Kind, &str)> {
        [Kind::Checked, Kind::Plain, Kind::Duplicates]
            .into_iter()
            .find_map(|kind| Some((kind, stored.strip_prefix(kind.mark())?)))
    }
}

/// The bounds as bytes.
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
