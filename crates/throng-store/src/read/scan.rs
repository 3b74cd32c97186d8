//! [`Scan`]: an iteration over many entries in chunks, each in a snapshot of its own.
//!
//! Only the last key passes from a chunk to the next. So a scan retains old pages no longer than a
//! chunk is kept, and continues over the writes committed meanwhile.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Bound;

use crate::read::range::{OwnedBounds, Range, Source, borrow};
use crate::table::TableRef;
use crate::{Bytes, Codec, ReadError, Snapshot, Store};

/// Iterator over the entries between two keys, in [`Chunk`]s, from
/// [`Database::scan`](crate::Database::scan).
///
/// **A scan is not a single snapshot**: each chunk shows the moment at which it was taken, and the
/// next chunk continues after its last key. So every key that exists during the whole scan is
/// yielded exactly once; a key that is put or deleted during the scan may or may not be yielded.
/// For a consistent view of all entries, use a [`Range`], which retains old pages for as long as it
/// lives.
///
/// ```
/// # use throng_store::{Batch, Store, Str, U64};
/// # let directory = tempfile::tempdir()?;
/// # let store = Store::open(directory.path())?;
/// let jobs = store.database::<U64, Str>("jobs")?;
/// store.write((0..10).fold(Batch::new(), |batch, number| batch.put(&jobs, &number, "job"))).wait()?;
///
/// let mut numbers = Vec::new();
/// for chunk in jobs.scan(..).chunk(4) {
///     let chunk = chunk?;
///     for entry in &chunk {
///         let (number, _) = entry?;
///         numbers.push(number);
///         jobs.delete(&number).wait()?;
///     }
/// }
/// assert!(numbers.into_iter().eq(0..10));
/// assert!(jobs.is_empty(&store.snapshot()?)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Yields `Err` once, and then nothing, if no snapshot can be taken or the keys cannot be read.
/// Costs two moves of a tree cursor for each entry, because the end of a chunk is determined first.
#[must_use = "iterators do nothing unless they are advanced"]
pub struct Scan<K: Codec = Bytes, V: Codec = Bytes> {
    store: Store,
    table_ref: TableRef,
    /// Bounds of the remaining entries; `None` at the end.
    left: Option<OwnedBounds>,
    /// An error to yield first.
    failed: Option<ReadError>,
    entries: usize,
    backward: bool,
    codecs: PhantomData<fn() -> (K, V)>,
}

/// Consecutive entries of a [`Scan`], all from the same snapshot. Drop the chunk before you take
/// the next, because a chunk keeps its snapshot.
pub struct Chunk<K: Codec = Bytes, V: Codec = Bytes> {
    snapshot: Snapshot,
    table_ref: TableRef,
    bounds: OwnedBounds,
    backward: bool,
    codecs: PhantomData<fn() -> (K, V)>,
}

/// Iterator over the entries of a [`Chunk`], in the direction of its scan.
#[must_use = "iterators do nothing unless they are advanced"]
#[derive(Debug)]
pub struct Entries<'c, K: Codec = Bytes, V: Codec = Bytes> {
    range: Range<'c, K, V>,
    backward: bool,
}

const ENTRIES: usize = 1_000;

impl<K: Codec, V: Codec> Scan<K, V> {
    pub(crate) fn new(
        store: Store,
        table_ref: TableRef,
        bounds: Result<OwnedBounds, ReadError>,
    ) -> Scan<K, V> {
        let (left, failed) = match bounds {
            Ok(bounds) => (Some(bounds), None),
            Err(error) => (None, Some(error)),
        };
        let (entries, backward) = (ENTRIES, false);
        Scan { store, table_ref, left, failed, entries, backward, codecs: PhantomData }
    }

    /// Sets the number of entries in a chunk, at least one; 1,000 by default.
    ///
    /// The values of a key are never split, so a chunk of a database with [several
    /// values](crate::DatabaseOptions::duplicates) under a key may have more entries.
    pub fn chunk(mut self, entries: usize) -> Scan<K, V> {
        self.entries = entries.max(1);
        self
    }

    /// Makes the scan go from the last key to the first.
    pub fn backward(mut self) -> Scan<K, V> {
        self.backward = true;
        self
    }

    fn next_chunk(&mut self) -> Result<Option<Chunk<K, V>>, ReadError> {
        let Some((start, end)) = self.left.take() else { return Ok(None) };
        let snapshot = self.store.snapshot()?;
        let bounds = (borrow(&start), borrow(&end));
        let mut walk =
            Range::<Bytes, Bytes>::new(Source::Snapshot(&snapshot), self.table_ref, bounds);
        let mut last = None;
        for _ in 0..self.entries {
            let entry = if self.backward { walk.step_back() } else { walk.step_front() }?;
            let Some((key, _)) = entry else { break };
            last = Some(key);
        }
        let Some(last) = last.map(<[u8]>::to_vec) else { return Ok(None) };
        drop(walk);
        let (bounds, left) = if self.backward {
            ((Bound::Included(last.clone()), end), (start, Bound::Excluded(last)))
        } else {
            ((start, Bound::Included(last.clone())), (Bound::Excluded(last), end))
        };
        self.left = Some(left);
        let (table_ref, backward) = (self.table_ref, self.backward);
        Ok(Some(Chunk { snapshot, table_ref, bounds, backward, codecs: PhantomData }))
    }
}

impl<K: Codec, V: Codec> Iterator for Scan<K, V> {
    type Item = Result<Chunk<K, V>, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(error) = self.failed.take() {
            return Some(Err(error));
        }
        self.next_chunk().transpose()
    }
}

impl<K: Codec, V: Codec> fmt::Debug for Scan<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scan").field("left", &self.left).finish_non_exhaustive()
    }
}

impl<K: Codec, V: Codec> Chunk<K, V> {
    /// Iterates over the entries of the chunk. A chunk has at least one entry.
    pub fn iter(&self) -> Entries<'_, K, V> {
        let bounds = (borrow(&self.bounds.0), borrow(&self.bounds.1));
        Entries {
            range: Range::new(Source::Snapshot(&self.snapshot), self.table_ref, bounds),
            backward: self.backward,
        }
    }

    /// Returns the snapshot of the chunk.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }
}

impl<'c, K: Codec, V: Codec> IntoIterator for &'c Chunk<K, V> {
    type Item = <Entries<'c, K, V> as Iterator>::Item;
    type IntoIter = Entries<'c, K, V>;

    fn into_iter(self) -> Entries<'c, K, V> {
        self.iter()
    }
}

impl<K: Codec, V: Codec> fmt::Debug for Chunk<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chunk").field("bounds", &self.bounds).finish_non_exhaustive()
    }
}

impl<'c, K: Codec, V: Codec> Iterator for Entries<'c, K, V> {
    type Item = <Range<'c, K, V> as Iterator>::Item;

    fn next(&mut self) -> Option<Self::Item> {
        if self.backward { self.range.next_back() } else { self.range.next() }
    }
}
