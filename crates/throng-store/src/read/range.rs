//! [`Range`]: an iterator over the entries between two keys, from both ends.
//!
//! Each end has a cursor of its own, opened at its first use. The iteration ends when a cursor
//! reaches the position of the other.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Bound;

use crate::disk::lmdb::{Entry, Move};
use crate::read::merge;
use crate::read::state::State;
use crate::table::{Kind, TableRef};
use crate::{Bytes, Codec, KEY_BYTES_MAX, ReadError, Snapshot};

#[derive(Clone, Copy)]
pub(crate) enum Source<'s> {
    Snapshot(&'s Snapshot),
    /// The commit in progress, on the writer thread, with the update's own writes.
    State(State<'s>),
}

/// Iterator over entries of a [`Snapshot`] or of an [`Update`](crate::Update) in byte order of their keys; `.rev()` or
/// [`next_back`](DoubleEndedIterator::next_back) takes them from the other end. In an update its own
/// writes are included.
///
/// Yields `Err` for an entry that cannot be read, and continues after it if only that entry is
/// damaged. A step costs one move of a tree cursor.
#[must_use = "iterators do nothing unless they are advanced"]
pub struct Range<'s, K: Codec = Bytes, V: Codec = Bytes> {
    source: Source<'s>,
    table_ref: TableRef,
    /// Bounds of the remaining entries; `None` if no entries are left.
    bounds: Option<Bounds>,
    /// An error to yield first.
    failed: Option<ReadError>,
    front: End<'s>,
    back: End<'s>,
    codecs: PhantomData<fn() -> (K, V)>,
}

/// An end of a range: its cursor, once used, and the entry at its position.
#[derive(Default)]
struct End<'s> {
    cursor: Option<merge::Cursor<'s>>,
    at: Option<Entry<'s>>,
}

type Bounds = (Bound<Box<[u8]>>, Bound<Box<[u8]>>);
/// Bounds as the caller passed them, owned.
pub(crate) type OwnedBounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);
type Decoded<'s, K, V> = Result<(<K as Codec>::Decoded<'s>, <V as Codec>::Decoded<'s>), ReadError>;

impl<'s, K: Codec, V: Codec> Range<'s, K, V> {
    pub(crate) fn new(
        source: Source<'s>,
        table_ref: TableRef,
        (start, end): (Bound<&[u8]>, Bound<&[u8]>),
    ) -> Range<'s, K, V> {
        let bounds = upper_bound(end).map(|end| (lower_bound(start), end));
        Range {
            source,
            table_ref,
            bounds,
            failed: None,
            front: End::default(),
            back: End::default(),
            codecs: PhantomData,
        }
    }

    pub(crate) fn of_prefix(
        source: Source<'s>,
        table_ref: TableRef,
        prefix: &[u8],
    ) -> Range<'s, K, V> {
        let (start, end) = prefix_bounds(prefix);
        Range::new(source, table_ref, (borrow(&start), borrow(&end)))
    }

    /// Creates a range that yields an error and nothing else.
    pub(crate) fn failed(source: Source<'s>, table_ref: TableRef, error: ReadError) -> Self {
        let mut range = Range::new(source, table_ref, (Bound::Unbounded, Bound::Unbounded));
        range.bounds = None;
        range.failed = Some(error);
        range
    }

    /// Returns the next key from the front. Its value is not read, so damage of the value is not noticed.
    ///
    /// ```
    /// # use throng_store::{Batch, Store, Str};
    /// # let directory = tempfile::tempdir()?;
    /// # let store = Store::open(directory.path())?;
    /// let names = store.database::<Str, Str>("names")?;
    /// store.write(Batch::new().put(&names, "a", "1").put(&names, "b", "2")).wait()?;
    /// let snapshot = store.snapshot()?;
    /// let mut range = names.range(&snapshot, ..);
    /// assert_eq!(range.next_key().transpose()?, Some("a"));
    /// assert_eq!(range.next_key_back().transpose()?, Some("b"));
    /// assert!(range.next_key().is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn next_key(&mut self) -> Option<Result<K::Decoded<'s>, ReadError>> {
        let step = self.step_front();
        self.yielded_key(step)
    }

    /// Returns the next key from the back; see [`next_key`](Range::next_key).
    pub fn next_key_back(&mut self) -> Option<Result<K::Decoded<'s>, ReadError>> {
        let step = self.step_back();
        self.yielded_key(step)
    }

    /// Returns the next entry from the front, with its stored bytes; an error does not end the
    /// iteration.
    pub(crate) fn step_front(&mut self) -> Result<Option<Entry<'s>>, ReadError> {
        let Some((start, end)) = &self.bounds else { return Ok(None) };
        self.source.check()?;
        let entry = match &mut self.front.cursor {
            Some(cursor) => cursor.step(Move::Next),
            empty => {
                let cursor = empty.insert(self.source.cursor(self.table_ref)?);
                cursor.end_at(end);
                match start {
                    Bound::Unbounded => cursor.step(Move::First),
                    Bound::Included(key) => cursor.seek_range(key),
                    Bound::Excluded(key) => match cursor.seek_range(key) {
                        Ok(Some((found, _))) if found == &**key => cursor.step(Move::NextKey),
                        other => other,
                    },
                }
            }
        };
        let entry = entry.map_err(ReadError::from_engine)?.filter(|(key, _)| match end {
            Bound::Unbounded => true,
            Bound::Included(end) => *key <= &**end,
            Bound::Excluded(end) => *key < &**end,
        });
        self.front.at = entry;
        Ok(entry.filter(|entry| self.back.at.is_none_or(|back| *entry < back)))
    }

    /// Returns the next entry from the back; see [`step_front`](Range::step_front).
    pub(crate) fn step_back(&mut self) -> Result<Option<Entry<'s>>, ReadError> {
        let Some((start, end)) = &self.bounds else { return Ok(None) };
        self.source.check()?;
        let entry = match &mut self.back.cursor {
            Some(cursor) => cursor.step(Move::Prev),
            empty => {
                let cursor = empty.insert(self.source.cursor(self.table_ref)?);
                match end {
                    Bound::Unbounded => cursor.step(Move::Last),
                    Bound::Included(key) | Bound::Excluded(key) => match cursor.seek_range(key) {
                        Ok(Some((found, _)))
                            if matches!(end, Bound::Included(_)) && found == &**key =>
                        {
                            let several = self.table_ref.kind == Kind::Duplicates;
                            cursor.step(if several { Move::LastValue } else { Move::Current })
                        }
                        Ok(Some(_)) => cursor.step(Move::Prev),
                        Ok(None) => cursor.step(Move::Last),
                        Err(error) => Err(error),
                    },
                }
            }
        };
        let entry = entry.map_err(ReadError::from_engine)?.filter(|(key, _)| match start {
            Bound::Unbounded => true,
            Bound::Included(start) => *key >= &**start,
            Bound::Excluded(start) => *key > &**start,
        });
        self.back.at = entry;
        Ok(entry.filter(|entry| self.front.at.is_none_or(|front| *entry > front)))
    }

    /// Converts a step to the iterator's item; ends the iteration if no entries are left.
    fn yielded(&mut self, step: Result<Option<Entry<'s>>, ReadError>) -> Option<Decoded<'s, K, V>> {
        let entry = self.entry(step)?;
        let decode = |(key, stored)| decode::<K, V>(self.source, self.table_ref, key, stored);
        Some(entry.and_then(decode))
    }

    fn yielded_key(
        &mut self,
        step: Result<Option<Entry<'s>>, ReadError>,
    ) -> Option<Result<K::Decoded<'s>, ReadError>> {
        let entry = self.entry(step)?;
        Some(entry.and_then(|(key, _)| Ok(K::decode(key)?)))
    }

    fn entry(
        &mut self,
        step: Result<Option<Entry<'s>>, ReadError>,
    ) -> Option<Result<Entry<'s>, ReadError>> {
        // An error before the first step takes the place of the step.
        let step = self.failed.take().map_or(step, Err);
        if !matches!(step, Ok(Some(_))) {
            self.bounds = None;
        }
        step.transpose()
    }
}

impl<'s, K: Codec, V: Codec> Iterator for Range<'s, K, V> {
    type Item = Decoded<'s, K, V>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = self.step_front();
        self.yielded(step)
    }
}

impl<K: Codec, V: Codec> DoubleEndedIterator for Range<'_, K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let step = self.step_back();
        self.yielded(step)
    }
}

impl<K: Codec, V: Codec> fmt::Debug for Range<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Range").field("bounds", &self.bounds).finish_non_exhaustive()
    }
}

impl<'s> Source<'s> {
    /// Opens a cursor without a position.
    pub(crate) fn cursor(self, table_ref: TableRef) -> Result<merge::Cursor<'s>, ReadError> {
        match self {
            Source::Snapshot(snapshot) => snapshot.cursor_in(table_ref),
            Source::State(state) => state.cursor(table_ref).map_err(ReadError::from_engine),
        }
    }

    pub(crate) fn check(self) -> Result<(), ReadError> {
        match self {
            Source::Snapshot(snapshot) => snapshot.check(),
            Source::State(_) => Ok(()),
        }
    }

    pub(crate) fn value<'v>(
        self,
        table_ref: TableRef,
        key: &[u8],
        stored: &'v [u8],
    ) -> Result<&'v [u8], ReadError> {
        match self {
            Source::Snapshot(snapshot) => snapshot.value(table_ref, key, stored),
            Source::State(_) => table_ref.value(key, stored),
        }
    }
}

/// Returns the bounds of the keys that begin with the prefix.
pub(crate) fn prefix_bounds(prefix: &[u8]) -> OwnedBounds {
    let end = beyond(prefix.to_vec()).map_or(Bound::Unbounded, Bound::Excluded);
    (Bound::Included(prefix.to_vec()), end)
}

/// Returns the first key above all keys that begin with `prefix`, if there can be such a key:
/// `prefix` without its trailing 0xff bytes, and the last byte incremented.
pub(crate) fn beyond(mut prefix: Vec<u8>) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xff)?;
    prefix.truncate(last + 1);
    prefix[last] += 1;
    Some(prefix)
}

pub(crate) fn borrow(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

pub(crate) fn decode<'s, K: Codec, V: Codec>(
    source: Source<'_>,
    table_ref: TableRef,
    key: &'s [u8],
    stored: &'s [u8],
) -> Decoded<'s, K, V> {
    let value = source.value(table_ref, key, stored)?;
    Ok((K::decode(key)?, V::decode(value)?))
}

/// Returns a lower bound that the engine accepts and that admits the same keys.
fn lower_bound(bound: Bound<&[u8]>) -> Bound<Box<[u8]>> {
    match bound {
        // Every key lies above the empty one.
        Bound::Included([]) | Bound::Excluded([]) | Bound::Unbounded => Bound::Unbounded,
        // No key is as long as this bound, so a key that is not below the bound is above its
        // prefix.
        Bound::Included(key) | Bound::Excluded(key) if key.len() > KEY_BYTES_MAX => {
            Bound::Excluded(key[..KEY_BYTES_MAX].into())
        }
        Bound::Included(key) => Bound::Included(key.into()),
        Bound::Excluded(key) => Bound::Excluded(key.into()),
    }
}

/// Returns an upper bound that the engine accepts and that admits the same keys; `None` if it
/// admits none.
fn upper_bound(bound: Bound<&[u8]>) -> Option<Bound<Box<[u8]>>> {
    Some(match bound {
        Bound::Included([]) | Bound::Excluded([]) => return None,
        Bound::Unbounded => Bound::Unbounded,
        Bound::Included(key) | Bound::Excluded(key) if key.len() > KEY_BYTES_MAX => {
            Bound::Included(key[..KEY_BYTES_MAX].into())
        }
        Bound::Included(key) => Bound::Included(key.into()),
        Bound::Excluded(key) => Bound::Excluded(key.into()),
    })
}
