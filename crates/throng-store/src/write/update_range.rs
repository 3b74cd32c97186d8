//! [`UpdateRange`] and [`UpdateCursor`]: iterating over a store during an update.
//!
//! The writes of the update are kept beside the transaction until its closure has returned
//! ([`Written`]). So an iteration merges two sorted sequences, the stored entries and the written
//! entries: if both have a key, the written entry wins, and hides the key if it is a deletion.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap, btree_map};
use std::fmt;
use std::marker::PhantomData;
use std::ops::Bound;

use crate::database::{Kind, TableRef};
use crate::disk::lmdb::{Table, WriteTxn};
use crate::read::range::{OwnedBounds, Range, Source, borrow};
use crate::{Codec, ReadError};

type Bytes = Box<[u8]>;

/// Writes of an update to databases with one value under each key: the new value of each key, or
/// `None` if it was deleted.
#[derive(Debug, Default)]
pub(crate) struct Written(HashMap<Table, BTreeMap<Bytes, Option<Bytes>>>);

impl Written {
    /// Returns the write under the key, if there is any.
    pub(crate) fn get(&self, table: Table, key: &[u8]) -> Option<Option<&[u8]>> {
        self.0.get(&table)?.get(key).map(Option::as_deref)
    }

    pub(crate) fn insert(&mut self, table_ref: TableRef, key: &[u8], value: Option<&[u8]>) {
        if table_ref.kind != Kind::Duplicates {
            let table = self.0.entry(table_ref.table).or_default();
            table.insert(key.into(), value.map(Box::from));
        }
    }

    fn range(
        &self,
        table: Table,
        bounds: &OwnedBounds,
    ) -> btree_map::Range<'_, Bytes, Option<Bytes>> {
        static NONE: BTreeMap<Bytes, Option<Bytes>> = BTreeMap::new();
        let (start, end) = bounds;
        let table = match (start, end) {
            // The map would panic on these bounds.
            (Bound::Excluded(start), Bound::Excluded(end)) if start >= end => &NONE,
            (
                Bound::Included(start) | Bound::Excluded(start),
                Bound::Included(end) | Bound::Excluded(end),
            ) if start > end => &NONE,
            _ => self.0.get(&table).unwrap_or(&NONE),
        };
        if table.is_empty() {
            return NONE.range::<[u8], _>(..);
        }
        table.range::<[u8], _>((borrow(start), borrow(end)))
    }
}

/// Iterator over entries inside an [`Update`](crate::Update), from either end, in byte order of
/// their keys. The update's own writes are included.
///
/// In a database with [several values](crate::DatabaseOptions::duplicates) under a key, the
/// iterator yields the entries from before this update. A step costs one move of a tree cursor.
#[must_use = "iterators do nothing unless they are advanced"]
pub struct UpdateRange<'u, K: Codec = crate::Bytes, V: Codec = crate::Bytes> {
    there: Ends<Range<'u>>,
    written: Ends<btree_map::Range<'u, Bytes, Option<Bytes>>>,
    codecs: PhantomData<fn() -> (K, V)>,
}

/// An iterator whose outermost items can be put back, at both ends.
struct Ends<I: DoubleEndedIterator> {
    rest: I,
    front: Option<I::Item>,
    back: Option<I::Item>,
}

type Decoded<'u, K, V> = (<K as Codec>::Decoded<'u>, <V as Codec>::Decoded<'u>);

impl<I: DoubleEndedIterator> Ends<I> {
    fn new(rest: I) -> Ends<I> {
        Ends { rest, front: None, back: None }
    }

    fn take(&mut self, forward: bool) -> Option<I::Item> {
        if forward {
            self.front.take().or_else(|| self.rest.next()).or_else(|| self.back.take())
        } else {
            self.back.take().or_else(|| self.rest.next_back()).or_else(|| self.front.take())
        }
    }

    /// Undoes a `take` from the same end.
    fn put_back(&mut self, item: Option<I::Item>, forward: bool) {
        *(if forward { &mut self.front } else { &mut self.back }) = item;
    }
}

impl<'u, K: Codec, V: Codec> UpdateRange<'u, K, V> {
    pub(crate) fn new(
        txn: &'u WriteTxn<'u>,
        written: &'u Written,
        table_ref: TableRef,
        bounds: Result<OwnedBounds, ReadError>,
    ) -> UpdateRange<'u, K, V> {
        let source = Source::Update(txn);
        let (there, written) = match bounds {
            Ok(bounds) => {
                let there = Range::new(source, table_ref, (borrow(&bounds.0), borrow(&bounds.1)));
                (there, written.range(table_ref.table, &bounds))
            }
            Err(error) => {
                let nothing = (Bound::Unbounded, Bound::Excluded(Vec::new()));
                (Range::failed(source, table_ref, error), written.range(table_ref.table, &nothing))
            }
        };
        UpdateRange { there: Ends::new(there), written: Ends::new(written), codecs: PhantomData }
    }

    fn step(&mut self, forward: bool) -> Option<Result<Decoded<'u, K, V>, ReadError>> {
        loop {
            let there = match self.there.take(forward) {
                Some(Err(error)) => return Some(Err(error)),
                Some(Ok(entry)) => Some(entry),
                None => None,
            };
            let written = self.written.take(forward);
            // The order of the two entries, seen from this end.
            let order = match (&there, &written) {
                (None, None) => return None,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((there, _)), Some((written, _))) => {
                    let order = (*there).cmp(&***written);
                    if forward { order } else { order.reverse() }
                }
            };
            if order.is_lt() {
                self.written.put_back(written, forward);
                return there.map(|(key, value)| decode::<K, V>(key, value));
            }
            if order.is_gt() {
                self.there.put_back(there.map(Ok), forward);
            }
            if let Some((key, Some(value))) = written {
                return Some(decode::<K, V>(key, value));
            }
        }
    }
}

fn decode<'u, K: Codec, V: Codec>(
    key: &'u [u8],
    value: &'u [u8],
) -> Result<Decoded<'u, K, V>, ReadError> {
    Ok((K::decode(key)?, V::decode(value)?))
}

impl<'u, K: Codec, V: Codec> Iterator for UpdateRange<'u, K, V> {
    type Item = Result<Decoded<'u, K, V>, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(true)
    }
}

impl<K: Codec, V: Codec> DoubleEndedIterator for UpdateRange<'_, K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(false)
    }
}

impl<K: Codec, V: Codec> fmt::Debug for UpdateRange<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpdateRange").finish_non_exhaustive()
    }
}

/// Cursor over the entries inside an [`Update`](crate::Update), the update's own writes included.
/// The cursor stands at an entry, before the first, or after the last.
///
/// Each method moves the cursor and returns the entry at its new position. The cursor moves from
/// key to key, and shows the first of several values. Each move costs a search from the root,
/// unlike a move of a [`Cursor`](crate::Cursor); for many moves in a row use a range.
pub struct UpdateCursor<'u, K: Codec = crate::Bytes, V: Codec = crate::Bytes> {
    txn: &'u WriteTxn<'u>,
    written: &'u Written,
    table_ref: TableRef,
    stands: Stands,
    codecs: PhantomData<fn() -> (K, V)>,
}

#[derive(Debug)]
enum Stands {
    Before,
    At(Vec<u8>),
    Behind,
}

type Moved<'u, K, V> = Result<Option<Decoded<'u, K, V>>, ReadError>;

// A cursor is not an iterator: it moves both ways, and a move can fail.
#[allow(clippy::should_implement_trait)]
impl<'u, K: Codec, V: Codec> UpdateCursor<'u, K, V> {
    pub(crate) fn new(txn: &'u WriteTxn<'u>, written: &'u Written, table_ref: TableRef) -> Self {
        UpdateCursor { txn, written, table_ref, stands: Stands::Before, codecs: PhantomData }
    }

    /// Moves to the first entry.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if the entry cannot be read.
    pub fn first(&mut self) -> Moved<'u, K, V> {
        self.go((Bound::Unbounded, Bound::Unbounded), true)
    }

    /// Moves to the last entry.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if the entry cannot be read.
    pub fn last(&mut self) -> Moved<'u, K, V> {
        self.go((Bound::Unbounded, Bound::Unbounded), false)
    }

    /// Moves to the next key; from before the first entry, to the first.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if the entry cannot be read.
    pub fn next(&mut self) -> Moved<'u, K, V> {
        match &self.stands {
            Stands::Before => self.first(),
            Stands::At(key) => self.go((Bound::Excluded(key.clone()), Bound::Unbounded), true),
            Stands::Behind => Ok(None),
        }
    }

    /// Moves to the previous key; from after the last entry, to the last.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if the entry cannot be read.
    pub fn prev(&mut self) -> Moved<'u, K, V> {
        match &self.stands {
            Stands::Before => Ok(None),
            Stands::At(key) => self.go((Bound::Unbounded, Bound::Excluded(key.clone())), false),
            Stands::Behind => self.last(),
        }
    }

    /// Returns the entry at the current position.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if the entry cannot be read.
    pub fn current(&mut self) -> Moved<'u, K, V> {
        match &self.stands {
            Stands::At(key) => {
                let key = Bound::Included(key.clone());
                self.go((key.clone(), key), true)
            }
            _ => Ok(None),
        }
    }

    /// Moves to the entry of `key`; if the key does not exist, to after the last entry.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if the entry cannot be read.
    pub fn seek(&mut self, key: &K::Item) -> Moved<'u, K, V> {
        let key = Bound::Included(K::encode(key, <[u8]>::to_vec)?);
        self.go((key.clone(), key), true)
    }

    /// Moves to the first entry whose key is `key` or above.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if the entry cannot be read.
    pub fn seek_range(&mut self, key: &K::Item) -> Moved<'u, K, V> {
        let key = K::encode(key, <[u8]>::to_vec)?;
        self.go((Bound::Included(key), Bound::Unbounded), true)
    }

    fn go(&mut self, bounds: OwnedBounds, forward: bool) -> Moved<'u, K, V> {
        let mut range = UpdateRange::<crate::Bytes, crate::Bytes>::new(
            self.txn,
            self.written,
            self.table_ref,
            Ok(bounds),
        );
        let entry = if forward { range.next() } else { range.next_back() };
        match entry.transpose()? {
            // A backward step arrives at the last value of the key.
            Some((key, _)) if !forward && self.table_ref.kind == Kind::Duplicates => {
                let key = Bound::Included(key.to_vec());
                self.go((key.clone(), key), true)
            }
            Some((key, value)) => {
                self.stands = Stands::At(key.to_vec());
                decode::<K, V>(key, value).map(Some)
            }
            None => {
                self.stands = if forward { Stands::Behind } else { Stands::Before };
                Ok(None)
            }
        }
    }
}

impl<K: Codec, V: Codec> fmt::Debug for UpdateCursor<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpdateCursor").field("stands", &self.stands).finish_non_exhaustive()
    }
}
