//! [`Snapshot`]: a frozen, zero-copy view, and [`Range`], its iterator from both ends.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use heed::types::Bytes;
use heed::{RoRange, RoRevRange, RoTxn, WithoutTls};

use crate::environment::Environment;
use crate::{KEY_BYTES_MAX, ReadError, record};

/// The store as it was at one moment. Later commits do not show in it.
///
/// Keys and values are borrowed from the memory map, nothing is copied. A snapshot can move to
/// another thread but is used by one at a time. Drop it soon, see [`Store::snapshot`].
///
/// [`Store::snapshot`]: crate::Store::snapshot
pub struct Snapshot {
    // Dropped in order: the transaction, then the environment with its claim on the directory.
    txn: RoTxn<'static, WithoutTls>,
    environment: Arc<Environment>,
}

impl Snapshot {
    pub(crate) fn begin(environment: &Arc<Environment>) -> Result<Snapshot, ReadError> {
        Ok(Snapshot { txn: environment.begin_read()?, environment: environment.clone() })
    }

    /// The value under `key`.
    ///
    /// # Errors
    ///
    /// [`ReadError::Corrupt`] if it is not what was written.
    pub fn get(&self, key: &[u8]) -> Result<Option<&[u8]>, ReadError> {
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Ok(None);
        }
        let record = self.environment.entries().get(&self.txn, key);
        match record.map_err(ReadError::from_engine)? {
            Some(record) => record::value(key, record).map(Some),
            None => Ok(None),
        }
    }

    /// The entries whose keys lie within `bounds`, in byte order, from either end.
    ///
    /// ```
    /// # use throng_store::{Batch, Store};
    /// # let directory = tempfile::tempdir()?;
    /// # let store = Store::open(directory.path())?;
    /// store.write(Batch::new().put("a", "1").put("b", "2").put("c", "3")).wait()?;
    /// let snapshot = store.snapshot()?;
    /// let keys = snapshot.range(&b"a"[..]..&b"c"[..]).rev().map(|entry| Ok(entry?.0));
    /// assert_eq!(keys.collect::<Result<Vec<_>, throng_store::ReadError>>()?, [b"b", b"a"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn range<'k>(&self, bounds: impl RangeBounds<&'k [u8]>) -> Range<'_> {
        let start = lower_bound(bounds.start_bound().map(|key| *key));
        let bounds = upper_bound(bounds.end_bound().map(|key| *key)).map(|end| (start, end));
        Range { snapshot: self, bounds, front: End::new(), back: End::new() }
    }

    /// The entries whose keys begin with `prefix`, in byte order, from either end.
    pub fn prefix(&self, prefix: &[u8]) -> Range<'_> {
        // The first key beyond: the prefix without its trailing 0xff, the last byte raised by one.
        let kept = prefix.iter().rposition(|byte| *byte != 0xff).map_or(0, |last| last + 1);
        let mut beyond = prefix[..kept].to_vec();
        match beyond.last_mut() {
            Some(last) => {
                *last += 1;
                self.range((Bound::Included(prefix), Bound::Excluded(beyond.as_slice())))
            }
            None => self.range((Bound::Included(prefix), Bound::Unbounded)),
        }
    }

    /// How many entries there are.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if the engine fails.
    pub fn len(&self) -> Result<u64, ReadError> {
        self.environment.entries().len(&self.txn).map_err(ReadError::from_engine)
    }

    /// Whether there is no entry.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if the engine fails.
    pub fn is_empty(&self) -> Result<bool, ReadError> {
        self.len().map(|len| len == 0)
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot").field("transaction", &self.txn.id()).finish_non_exhaustive()
    }
}

/// Entries of a [`Snapshot`] in byte order of their keys; `.rev()` or
/// [`next_back`](DoubleEndedIterator::next_back) take them from the other end.
///
/// Yields `Err` for an entry that cannot be read. Stepping costs one move of a tree cursor; each
/// end opens its cursor when it is first used.
#[must_use = "iterators do nothing unless they are advanced"]
pub struct Range<'s> {
    snapshot: &'s Snapshot,
    /// `None` when no key can lie between.
    bounds: Option<Bounds>,
    front: End<'s, RoRange<'s, Bytes, Bytes>>,
    back: End<'s, RoRevRange<'s, Bytes, Bytes>>,
}

/// One end of a range: its cursor, once used, and the key it stands at.
struct End<'s, Cursor> {
    cursor: Option<Cursor>,
    key: Option<&'s [u8]>,
}

type Bounds = (Bound<Box<[u8]>>, Bound<Box<[u8]>>);
type Entry<'s> = (&'s [u8], &'s [u8]);

impl<'s> Iterator for Range<'s> {
    type Item = Result<Entry<'s>, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let bounds = borrow(self.bounds.as_ref()?);
        let Snapshot { txn, environment } = self.snapshot;
        let entry = self.front.step(|| environment.entries().range(txn, &bounds));
        self.yielded(entry)
    }
}

impl DoubleEndedIterator for Range<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let bounds = borrow(self.bounds.as_ref()?);
        let Snapshot { txn, environment } = self.snapshot;
        let entry = self.back.step(|| environment.entries().rev_range(txn, &bounds));
        self.yielded(entry)
    }
}

impl<'s> Range<'s> {
    /// Ends the iteration when one end has run out, failed, or met the other.
    fn yielded(&mut self, entry: Step<'s>) -> Option<Result<Entry<'s>, ReadError>> {
        let met =
            matches!((self.front.key, self.back.key), (Some(front), Some(back)) if front >= back);
        match entry {
            // The end that just stepped has reached the key the other one already yielded.
            Some(Ok(_)) if met => {
                self.bounds = None;
                None
            }
            Some(Ok((key, stored))) => Some(record::value(key, stored).map(|value| (key, value))),
            Some(Err(error)) => {
                self.bounds = None;
                Some(Err(ReadError::from_engine(error)))
            }
            None => {
                self.bounds = None;
                None
            }
        }
    }
}

type Step<'s> = Option<Result<Entry<'s>, heed::Error>>;

impl<'s, Cursor> End<'s, Cursor>
where
    Cursor: Iterator<Item = Result<Entry<'s>, heed::Error>>,
{
    fn new() -> Self {
        End { cursor: None, key: None }
    }

    /// Moves to the next entry of this end.
    fn step(&mut self, open: impl FnOnce() -> Result<Cursor, heed::Error>) -> Step<'s> {
        let cursor = match &mut self.cursor {
            Some(cursor) => cursor,
            None => match open() {
                Ok(cursor) => self.cursor.insert(cursor),
                Err(error) => return Some(Err(error)),
            },
        };
        let entry = cursor.next();
        if let Some(Ok((key, _))) = &entry {
            self.key = Some(key);
        }
        entry
    }
}

impl std::fmt::Debug for Range<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Range").field("bounds", &self.bounds).finish_non_exhaustive()
    }
}

fn borrow((start, end): &Bounds) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (start.as_ref().map(|key| &**key), end.as_ref().map(|key| &**key))
}

/// A lower bound that the engine accepts and that admits the same keys.
fn lower_bound(bound: Bound<&[u8]>) -> Bound<Box<[u8]>> {
    match bound {
        // Every key lies above the empty one.
        Bound::Included([]) | Bound::Excluded([]) | Bound::Unbounded => Bound::Unbounded,
        // No key is as long as this bound, so one that is not below it is above its prefix.
        Bound::Included(key) | Bound::Excluded(key) if key.len() > KEY_BYTES_MAX => {
            Bound::Excluded(key[..KEY_BYTES_MAX].into())
        }
        Bound::Included(key) => Bound::Included(key.into()),
        Bound::Excluded(key) => Bound::Excluded(key.into()),
    }
}

/// An upper bound that the engine accepts and that admits the same keys; `None` if none.
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
