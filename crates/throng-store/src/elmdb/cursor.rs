//! [`Cursor`]: a position in a database, moved by the caller.
//!
//! The engine's cursor is left in an arbitrary position when it finds nothing; this cursor
//! remembers its position, so that each move means the same from everywhere.

use std::fmt;
use std::marker::PhantomData;

use crate::disk::lmdb::{Entry, Move};
use crate::read::merge;
use crate::read::range::{Source, decode};
use crate::table::{Kind, TableRef};
use crate::{Bytes, Codec, Database, KEY_BYTES_MAX, ReadError, Snapshot, Update};

/// A position in a database of a [`Snapshot`] or of an [`Update`]: at an
/// entry, before the first, or after the last. In an update its own writes are included.
///
/// Each method moves the cursor and returns the entry at its new position. A move costs one move of
/// a tree cursor.
///
/// ```
/// # use throng_store::{Batch, Store, Str, elmdb::Cursor};
/// # let directory = tempfile::tempdir()?;
/// # let store = Store::open(directory.path())?;
/// let names = store.database::<Str, Str>("names")?;
/// store.write(Batch::new().put(&names, "a", "1").put(&names, "c", "3")).wait()?;
/// let snapshot = store.snapshot()?;
/// let mut cursor = Cursor::new(&names, &snapshot)?;
/// assert_eq!(cursor.seek_range("b")?, Some(("c", "3")));
/// assert_eq!(cursor.prev()?, Some(("a", "1")));
/// assert_eq!(cursor.prev()?, None);
/// assert_eq!(cursor.next()?, cursor.first()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Cursor<'s, K: Codec = Bytes, V: Codec = Bytes> {
    source: Source<'s>,
    table_ref: TableRef,
    cursor: merge::Cursor<'s>,
    stands: Stands,
    codecs: PhantomData<fn() -> (K, V)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stands {
    /// Before the first entry, which is also the initial position.
    Before,
    At,
    Behind,
}

type Decoded<'s, K, V> =
    Result<Option<(<K as Codec>::Decoded<'s>, <V as Codec>::Decoded<'s>)>, ReadError>;

// A cursor is not an iterator: it moves both ways, and a move can fail.
#[allow(clippy::should_implement_trait)]
impl<'s, K: Codec, V: Codec> Cursor<'s, K, V> {
    /// Opens a cursor over `database` in a snapshot, positioned before the first entry.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if the engine fails, and [`ReadError::OtherStore`] if the database belongs to another
    /// store.
    pub fn new(database: &Database<K, V>, snapshot: &'s Snapshot) -> Result<Self, ReadError> {
        database.check(snapshot)?;
        Cursor::over(Source::Snapshot(snapshot), database.table_ref())
    }

    /// Opens a cursor over `database` in an update, positioned before the first entry.
    ///
    /// # Errors
    ///
    /// See [`new`](Cursor::new).
    pub fn of_update(database: &Database<K, V>, update: &'s Update<'_>) -> Result<Self, ReadError> {
        update.check(database)?;
        Cursor::over(Source::State(update.state()), database.table_ref())
    }

    fn over(source: Source<'s>, table_ref: TableRef) -> Result<Self, ReadError> {
        source.check()?;
        let cursor = source.cursor(table_ref)?;
        Ok(Cursor { source, table_ref, cursor, stands: Stands::Before, codecs: PhantomData })
    }

    /// Moves to the first entry.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if the entry cannot be read.
    pub fn first(&mut self) -> Decoded<'s, K, V> {
        self.go(Move::First, Stands::Behind)
    }

    /// Moves to the last entry.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if the entry cannot be read.
    pub fn last(&mut self) -> Decoded<'s, K, V> {
        self.go(Move::Last, Stands::Before)
    }

    /// Moves to the next entry; from before the first entry, to the first.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if the entry cannot be read.
    pub fn next(&mut self) -> Decoded<'s, K, V> {
        self.forward(Move::Next)
    }

    /// Moves to the previous entry; from after the last entry, to the last.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if the entry cannot be read.
    pub fn prev(&mut self) -> Decoded<'s, K, V> {
        self.backward(Move::Prev)
    }

    /// Moves to the first value of the next key; the same as [`next`](Cursor::next) if a key has
    /// one value.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if the entry cannot be read.
    pub fn next_key(&mut self) -> Decoded<'s, K, V> {
        self.forward(Move::NextKey)
    }

    /// Moves to the last value of the previous key; the same as [`prev`](Cursor::prev) if a key has
    /// one value.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if the entry cannot be read.
    pub fn prev_key(&mut self) -> Decoded<'s, K, V> {
        self.backward(Move::PrevKey)
    }

    /// Returns the entry at the current position.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if the entry cannot be read.
    pub fn current(&mut self) -> Decoded<'s, K, V> {
        self.within(Move::Current)
    }

    /// Moves to the next value of the current key; if there is none, the cursor stays.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if the entry cannot be read.
    pub fn next_value(&mut self) -> Decoded<'s, K, V> {
        self.among_values(Move::NextValue)
    }

    /// Moves to the previous value of the current key; if there is none, the cursor stays.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if the entry cannot be read.
    pub fn prev_value(&mut self) -> Decoded<'s, K, V> {
        self.among_values(Move::PrevValue)
    }

    /// Moves to the first value of the current key.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if the entry cannot be read.
    pub fn first_value(&mut self) -> Decoded<'s, K, V> {
        self.among_values(Move::FirstValue)
    }

    /// Moves to the last value of the current key.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if the entry cannot be read.
    pub fn last_value(&mut self) -> Decoded<'s, K, V> {
        self.among_values(Move::LastValue)
    }

    /// Returns the number of values of the current key; 0 if the cursor is not at an entry.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if the entry cannot be read.
    pub fn values(&mut self) -> Result<u64, ReadError> {
        self.source.check()?;
        match self.table_ref.kind {
            _ if self.stands != Stands::At => Ok(0),
            Kind::Duplicates => self.cursor.values().map_err(ReadError::from_engine),
            Kind::Checked | Kind::Plain => Ok(1),
        }
    }

    /// Moves to the entry of `key`; if the key does not exist, to after the last entry.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if the entry cannot be read.
    pub fn seek(&mut self, key: &K::Item) -> Decoded<'s, K, V> {
        let entry = K::encode(key, |key| match self.ready()? {
            cursor if key.len() <= KEY_BYTES_MAX => {
                cursor.seek(key).map_err(ReadError::from_engine)
            }
            _ => Ok(None),
        })??;
        self.arrive(entry, Stands::Behind)
    }

    /// Moves to the first entry whose key is `key` or above.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if the entry cannot be read.
    pub fn seek_range(&mut self, key: &K::Item) -> Decoded<'s, K, V> {
        let entry =
            K::encode(key, |key| self.ready()?.seek_range(key).map_err(ReadError::from_engine))??;
        self.arrive(entry, Stands::Behind)
    }

    /// Moves to the first value of `key` that is `value` or above; if there is none, to after the
    /// last entry.
    ///
    /// # Errors
    ///
    /// [`ReadError`] if the entry cannot be read.
    pub fn seek_value_range(&mut self, key: &K::Item, value: &V::Item) -> Decoded<'s, K, V> {
        let (source, table_ref) = (self.source, self.table_ref);
        let entry = K::encode(key, |key| {
            V::encode(value, |value| {
                let cursor = self.ready()?;
                if key.is_empty() {
                    return Ok(None);
                }
                if table_ref.kind == Kind::Duplicates {
                    return cursor.seek_pair_range(key, value).map_err(ReadError::from_engine);
                }
                match cursor.seek(key).map_err(ReadError::from_engine)? {
                    Some((key, stored)) if source.value(table_ref, key, stored)? >= value => {
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

    /// Makes a move that keeps the cursor at its key.
    fn within(&mut self, to: Move) -> Decoded<'s, K, V> {
        if self.stands != Stands::At {
            return Ok(None);
        }
        match self.ready()?.step(to).map_err(ReadError::from_engine)? {
            Some(entry) => self.arrive(Some(entry), Stands::Behind),
            None => Ok(None),
        }
    }

    fn go(&mut self, to: Move, otherwise: Stands) -> Decoded<'s, K, V> {
        let entry = self.ready()?.step(to).map_err(ReadError::from_engine)?;
        self.arrive(entry, otherwise)
    }

    fn ready(&mut self) -> Result<&mut merge::Cursor<'s>, ReadError> {
        self.source.check()?;
        Ok(&mut self.cursor)
    }

    fn arrive(&mut self, entry: Option<Entry<'s>>, otherwise: Stands) -> Decoded<'s, K, V> {
        self.stands = if entry.is_some() { Stands::At } else { otherwise };
        let Some((key, stored)) = entry else { return Ok(None) };
        decode::<K, V>(self.source, self.table_ref, key, stored).map(Some)
    }
}

impl<K: Codec, V: Codec> fmt::Debug for Cursor<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cursor").field("stands", &self.stands).finish_non_exhaustive()
    }
}
