//! [`Cursor`]: a place in a database, moved by hand.
//!
//! The engine's cursor is left in places of its own when it finds nothing; this one remembers
//! where it stands, so that each move means the same from everywhere.

use std::fmt;
use std::marker::PhantomData;

use crate::database::{Kind, TableRef};
use crate::disk::lmdb::{self, Entry, Move};
use crate::read::range::{Source, decode};
use crate::{Bytes, Codec, KEY_BYTES_MAX, ReadError, Snapshot};

/// A place in a database of a [`Snapshot`]: at an entry, before the first, or behind the last.
///
/// Each method moves and returns the entry at which it then stands. Costs one move of a tree
/// cursor.
///
/// ```
/// # use throng_store::{Batch, Store};
/// # let directory = tempfile::tempdir()?;
/// # let store = Store::open(directory.path())?;
/// store.write(Batch::new().put("a", "1").put("c", "3")).wait()?;
/// let snapshot = store.snapshot()?;
/// let mut cursor = snapshot.cursor()?;
/// assert_eq!(cursor.seek_range(b"b")?, Some((&b"c"[..], &b"3"[..])));
/// assert_eq!(cursor.prev()?, Some((&b"a"[..], &b"1"[..])));
/// assert_eq!(cursor.prev()?, None);
/// assert_eq!(cursor.next()?, cursor.first()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Cursor<'s, K: Codec = Bytes, V: Codec = Bytes> {
    snapshot: &'s Snapshot,
    table_ref: TableRef,
    /// `None` where the database was made after the snapshot.
    cursor: Option<lmdb::Cursor<'s>>,
    stands: Stands,
    codecs: PhantomData<fn() -> (K, V)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stands {
    /// Before the first; so does one that was not moved yet.
    Before,
    At,
    Behind,
}

type Decoded<'s, K, V> =
    Result<Option<(<K as Codec>::Decoded<'s>, <V as Codec>::Decoded<'s>)>, ReadError>;

// A cursor is no iterator: it goes both ways, and what it returns can fail.
#[allow(clippy::should_implement_trait)]
impl<'s, K: Codec, V: Codec> Cursor<'s, K, V> {
    pub(crate) fn new(snapshot: &'s Snapshot, table_ref: TableRef) -> Result<Self, ReadError> {
        let cursor = snapshot.cursor_in(table_ref)?;
        Ok(Cursor { snapshot, table_ref, cursor, stands: Stands::Before, codecs: PhantomData })
    }

    /// The first entry.
    ///
    /// # Errors
    ///
    /// [`ReadError`], as for all moves.
    pub fn first(&mut self) -> Decoded<'s, K, V> {
        self.go(Move::First, Stands::Behind)
    }

    /// The last entry.
    ///
    /// # Errors
    ///
    /// [`ReadError`].
    pub fn last(&mut self) -> Decoded<'s, K, V> {
        self.go(Move::Last, Stands::Before)
    }

    /// The next entry; the first, from before it.
    ///
    /// # Errors
    ///
    /// [`ReadError`].
    pub fn next(&mut self) -> Decoded<'s, K, V> {
        self.forward(Move::Next)
    }

    /// The entry before; the last, from behind it.
    ///
    /// # Errors
    ///
    /// [`ReadError`].
    pub fn prev(&mut self) -> Decoded<'s, K, V> {
        self.backward(Move::Prev)
    }

    /// The first value of the next key; as [`next`](Cursor::next) where a key has one value.
    ///
    /// # Errors
    ///
    /// [`ReadError`].
    pub fn next_key(&mut self) -> Decoded<'s, K, V> {
        self.forward(Move::NextKey)
    }

    /// The last value of the key before; as [`prev`](Cursor::prev) where a key has one value.
    ///
    /// # Errors
    ///
    /// [`ReadError`].
    pub fn prev_key(&mut self) -> Decoded<'s, K, V> {
        self.backward(Move::PrevKey)
    }

    /// The entry at which it stands.
    ///
    /// # Errors
    ///
    /// [`ReadError`].
    pub fn current(&mut self) -> Decoded<'s, K, V> {
        self.within(Move::Current)
    }

    /// The next value of this key; where there is none, it stays where it is.
    ///
    /// # Errors
    ///
    /// [`ReadError`].
    pub fn next_value(&mut self) -> Decoded<'s, K, V> {
        self.among_values(Move::NextValue)
    }

    /// The value of this key before; where there is none, it stays where it is.
    ///
    /// # Errors
    ///
    /// [`ReadError`].
    pub fn prev_value(&mut self) -> Decoded<'s, K, V> {
        self.among_values(Move::PrevValue)
    }

    /// The first value of this key.
    ///
    /// # Errors
    ///
    /// [`ReadError`].
    pub fn first_value(&mut self) -> Decoded<'s, K, V> {
        self.among_values(Move::FirstValue)
    }

    /// The last value of this key.
    ///
    /// # Errors
    ///
    /// [`ReadError`].
    pub fn last_value(&mut self) -> Decoded<'s, K, V> {
        self.among_values(Move::LastValue)
    }

    /// How many values this key has; 0 where it stands at none.
    ///
    /// # Errors
    ///
    /// [`ReadError`].
    pub fn values(&mut self) -> Result<u64, ReadError> {
        self.snapshot.check()?;
        match &mut self.cursor {
            Some(cursor) if self.stands == Stands::At => {
                if self.table_ref.kind == Kind::Duplicates {
                    cursor.values().map_err(ReadError::from_engine)
                } else {
                    Ok(1)
                }
            }
            _ => Ok(0),
        }
    }

    /// The entry of this very key; where there is none, it then stands behind the last.
    ///
    /// # Errors
    ///
    /// [`ReadError`].
    pub fn seek(&mut self, key: &K::Item) -> Decoded<'s, K, V> {
        let entry = K::encode(key, |key| match self.ready()? {
            Some(cursor) if key.len() <= KEY_BYTES_MAX => {
                cursor.seek(key).map_err(ReadError::from_engine)
            }
            _ => Ok(None),
        })??;
        self.arrive(entry, Stands::Behind)
    }

    /// The first entry whose key is not below this one.
    ///
    /// # Errors
    ///
    /// [`ReadError`].
    pub fn seek_range(&mut self, key: &K::Item) -> Decoded<'s, K, V> {
        let entry = K::encode(key, |key| match self.ready()? {
            Some(cursor) => cursor.seek_range(key).map_err(ReadError::from_engine),
            None => Ok(None),
        })??;
        self.arrive(entry, Stands::Behind)
    }

    /// The first value of this very key that is not below `value`; where there is none, it then
    /// stands behind the last.
    ///
    /// # Errors
    ///
    /// [`ReadError`].
    pub fn seek_value_range(&mut self, key: &K::Item, value: &V::Item) -> Decoded<'s, K, V> {
        let (snapshot, table_ref) = (self.snapshot, self.table_ref);
        let entry = K::encode(key, |key| {
            V::encode(value, |value| {
                let Some(cursor) = self.ready()?.filter(|_| !key.is_empty()) else {
                    return Ok(None);
                };
                if table_ref.kind == Kind::Duplicates {
                    return cursor.seek_pair_range(key, value).map_err(ReadError::from_engine);
                }
                match cursor.seek(key).map_err(ReadError::from_engine)? {
                    Some((key, stored)) if snapshot.value(table_ref, key, stored)? >= value => {
                        Ok(Some((key, stored)))
                    }
                    _ => Ok(None),
                }
            })
        })???;
        self.arrive(entry, Stands::Behind)
    }

    fn forward(&mut self, to: Move) -> Decoded<'s, K, V> {
        match self.stands {
            Stands::Before => self.go(Move::First, Stands::Behind),
            Stands::At => self.go(to, Stands::Behind),
            Stands::Behind => Ok(None),
        }
    }

    fn backward(&mut self, to: Move) -> Decoded<'s, K, V> {
        match self.stands {
            Stands::Before => Ok(None),
            Stands::At => self.go(to, Stands::Before),
            Stands::Behind => self.go(Move::Last, Stands::Before),
        }
    }

    fn among_values(&mut self, to: Move) -> Decoded<'s, K, V> {
        if self.table_ref.kind == Kind::Duplicates {
            return self.within(to);
        }
        // The only value is the first and the last.
        match to {
            Move::FirstValue | Move::LastValue => self.current(),
            _ => Ok(None),
        }
    }

    /// A move that leaves it at its key.
    fn within(&mut self, to: Move) -> Decoded<'s, K, V> {
        if self.stands != Stands::At {
            return Ok(None);
        }
        let Some(cursor) = self.ready()? else { return Ok(None) };
        match cursor.step(to).map_err(ReadError::from_engine)? {
            Some(entry) => self.arrive(Some(entry), Stands::Behind),
            None => Ok(None),
        }
    }

    fn go(&mut self, to: Move, otherwise: Stands) -> Decoded<'s, K, V> {
        let Some(cursor) = self.ready()? else { return Ok(None) };
        let entry = cursor.step(to).map_err(ReadError::from_engine)?;
        self.arrive(entry, otherwise)
    }

    fn ready(&mut self) -> Result<Option<&mut lmdb::Cursor<'s>>, ReadError> {
        self.snapshot.check()?;
        Ok(self.cursor.as_mut())
    }

    fn arrive(&mut self, entry: Option<Entry<'s>>, otherwise: Stands) -> Decoded<'s, K, V> {
        self.stands = if entry.is_some() { Stands::At } else { otherwise };
        let Some((key, stored)) = entry else { return Ok(None) };
        decode::<K, V>(Source::Snapshot(self.snapshot), self.table_ref, key, stored).map(Some)
    }
}

impl<K: Codec, V: Codec> fmt::Debug for Cursor<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cursor").field("stands", &self.stands).finish_non_exhaustive()
    }
}
