//! Cursors: [`Cursor`] iterates over a table, [`WriteCursor`] also changes it.

use std::ffi::c_uint;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use lmdb_master_sys as ffi;

use super::txn::bytes;
use super::{Error, Table, blank, borrowed};

/// A position in a table, for as long as its transaction is borrowed.
#[derive(Debug)]
pub(crate) struct Cursor<'t> {
    cursor: NonNull<ffi::MDB_cursor>,
    /// Borrow of the transaction; the pointer makes the type neither `Send` nor `Sync`.
    txn: PhantomData<(&'t (), *mut ())>,
    /// Address of the page of the last key; 0 before the first move.
    page: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Move {
    First,
    Last,
    Next,
    Prev,
    Current,
    /// The first value of the next key.
    NextKey,
    PrevKey,
    /// The first value of the current key.
    FirstValue,
    LastValue,
    NextValue,
    PrevValue,
}

pub(crate) type Entry<'t> = (&'t [u8], &'t [u8]);

impl<'t> Cursor<'t> {
    /// Opens a cursor over a table.
    ///
    /// # Safety
    ///
    /// The transaction is alive and stays borrowed for the lifetime.
    pub(super) unsafe fn open(txn: *mut ffi::MDB_txn, table: Table) -> Result<Cursor<'t>, Error> {
        let mut cursor = ptr::null_mut();
        // SAFETY: the caller guarantees the transaction; LMDB stores the result in `cursor`.
        let code = unsafe { ffi::mdb_cursor_open(txn, table.0 as c_uint, &mut cursor) };
        Error::check(code).map_err(Error::of_table)?;
        match NonNull::new(cursor) {
            Some(cursor) => Ok(Cursor { cursor, txn: PhantomData, page: 0 }),
            None => Err(Error::Other("the engine made no cursor".into())),
        }
    }

    /// Moves; `None` if there is no entry. A cursor without a position has no current entry.
    pub(crate) fn step(&mut self, to: Move) -> Result<Option<Entry<'t>>, Error> {
        let operation = match to {
            Move::First => ffi::MDB_FIRST,
            Move::Last => ffi::MDB_LAST,
            Move::Next => ffi::MDB_NEXT,
            Move::Prev => ffi::MDB_PREV,
            Move::Current => ffi::MDB_GET_CURRENT,
            Move::NextKey => ffi::MDB_NEXT_NODUP,
            Move::PrevKey => ffi::MDB_PREV_NODUP,
            Move::FirstValue => ffi::MDB_FIRST_DUP,
            Move::LastValue => ffi::MDB_LAST_DUP,
            Move::NextValue => ffi::MDB_NEXT_DUP,
            Move::PrevValue => ffi::MDB_PREV_DUP,
        };
        self.get(blank(), blank(), operation)
    }

    pub(crate) fn seek(&mut self, key: &[u8]) -> Result<Option<Entry<'t>>, Error> {
        if key.is_empty() {
            return Ok(None);
        }
        self.get(borrowed(key), blank(), ffi::MDB_SET_KEY)
    }

    pub(crate) fn seek_range(&mut self, key: &[u8]) -> Result<Option<Entry<'t>>, Error> {
        if key.is_empty() {
            return self.step(Move::First);
        }
        self.get(borrowed(key), blank(), ffi::MDB_SET_RANGE)
    }

    /// Moves to this pair, in a table with several values under a key, none of them empty.
    pub(crate) fn seek_pair(&mut self, key: &[u8], value: &[u8]) -> Result<bool, Error> {
        // LMDB reports empty bytes as an error, depending on the number of values.
        if key.is_empty() || value.is_empty() {
            return Ok(false);
        }
        let found = self.get(borrowed(key), borrowed(value), ffi::MDB_GET_BOTH)?;
        Ok(found.is_some())
    }

    /// Moves to the first value of the key that is not below this one.
    pub(crate) fn seek_pair_range(
        &mut self,
        key: &[u8],
        value: &[u8],
    ) -> Result<Option<Entry<'t>>, Error> {
        if value.is_empty() {
            return self.seek(key);
        }
        let found = self.get(borrowed(key), borrowed(value), ffi::MDB_GET_BOTH_RANGE)?;
        // LMDB leaves the key pointing to the caller's bytes, which may not outlive this call.
        if found.is_some() { self.step(Move::Current) } else { Ok(None) }
    }

    pub(crate) fn values(&mut self) -> Result<u64, Error> {
        let mut count = 0;
        // SAFETY: the cursor is open (`self` owns it); LMDB stores the result in `count`.
        Error::check(unsafe { ffi::mdb_cursor_count(self.cursor.as_ptr(), &mut count) })?;
        Ok(count as u64)
    }

    fn get(
        &mut self,
        mut key: ffi::MDB_val,
        mut value: ffi::MDB_val,
        operation: ffi::MDB_cursor_op,
    ) -> Result<Option<Entry<'t>>, Error> {
        let (given, is_current) = (key.mv_data, operation == ffi::MDB_GET_CURRENT);
        // SAFETY: the cursor is open and its transaction is borrowed for 't, so the bytes that LMDB
        // points to stay valid (invariant 4). LMDB does not write to the given key and value.
        unsafe {
            let cursor = self.cursor.as_ptr();
            match ffi::mdb_cursor_get(cursor, &mut key, &mut value, operation) {
                // LMDB's error for a cursor without a position.
                code if is_current && code == EINVAL => return Ok(None),
                code => {
                    if !Error::check_found(code)? {
                        return Ok(None);
                    }
                }
            }
            // Between values of a key, LMDB does not always return the key.
            if key.mv_data == given && !is_current {
                let mut unused = blank();
                let again = ffi::MDB_GET_CURRENT;
                Error::check(ffi::mdb_cursor_get(cursor, &mut key, &mut unused, again))?;
            }
            let (key, value) = (bytes(&key), bytes(&value));
            let goes_on = matches!(operation, ffi::MDB_NEXT | ffi::MDB_PREV);
            self.came_to(key, goes_on);
            Ok(Some((key, value)))
        }
    }

    /// Records the page of the key, and prefetches the whole page when a walk enters it.
    ///
    /// Reading a row takes some hundred instructions, including the checksum of its value, so a
    /// processor does not look ahead to the next row: without prefetching, each row is a separate
    /// cache miss. A move within a page prefetches nothing.
    fn came_to(&mut self, key: &[u8], goes_on: bool) {
        let page = key.as_ptr().addr() & !(PREFETCH_BYTES - 1);
        if page == self.page {
            return;
        }
        if goes_on && self.page != 0 {
            prefetch(key.as_ptr().with_addr(page));
        }
        self.page = page;
    }
}

impl Drop for Cursor<'_> {
    fn drop(&mut self) {
        // SAFETY: the cursor is open, is closed once, and its transaction is still alive, because
        // the cursor borrows it (invariant 4).
        unsafe { ffi::mdb_cursor_close(self.cursor.as_ptr()) }
    }
}

/// A [`Cursor`] with an exclusive borrow of its transaction. Keys in ascending order are put
/// without a search from the root.
#[derive(Debug)]
pub(crate) struct WriteCursor<'t>(Cursor<'t>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Put {
    /// Replaces the value; in a table with several values under a key, adds to them.
    Over,
    /// Appends above all existing keys; fills pages to the end instead of to the middle.
    Append,
}

impl<'t> WriteCursor<'t> {
    pub(super) fn new(cursor: Cursor<'t>) -> WriteCursor<'t> {
        WriteCursor(cursor)
    }

    pub(crate) fn last_key(&mut self) -> Result<Option<&[u8]>, Error> {
        Ok(self.0.step(Move::Last)?.map(|(key, _)| key))
    }

    /// Puts the value; in a table with several values under a key, adds it unless it exists.
    pub(crate) fn put(&mut self, key: &[u8], value: &[u8], how: Put) -> Result<(), Error> {
        let (mut key, mut value) = (borrowed(key), borrowed(value));
        // SAFETY: the cursor is open and borrows its transaction exclusively (invariant 4); LMDB
        // copies key and value.
        Error::check(unsafe {
            ffi::mdb_cursor_put(self.0.cursor.as_ptr(), &mut key, &mut value, how.flags())
        })
    }

    /// Removes the key with all its values, if it exists.
    pub(crate) fn delete(&mut self, key: &[u8], duplicates: bool) -> Result<(), Error> {
        match self.0.seek(key)? {
            Some(_) => self.delete_current(if duplicates { ffi::MDB_NODUPDATA } else { 0 }),
            None => Ok(()),
        }
    }

    pub(crate) fn delete_value(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        if self.0.seek_pair(key, value)? { self.delete_current(0) } else { Ok(()) }
    }

    fn delete_current(&mut self, flags: c_uint) -> Result<(), Error> {
        // SAFETY: the cursor is open, is at an entry, and borrows its transaction exclusively
        // (invariant 4).
        Error::check(unsafe { ffi::mdb_cursor_del(self.0.cursor.as_ptr(), flags) })
    }
}

impl Put {
    fn flags(self) -> c_uint {
        match self {
            Put::Over => 0,
            Put::Append => ffi::MDB_APPEND,
        }
    }
}

/// The error `EINVAL`, the same number on every system that LMDB supports.
const EINVAL: i32 = 22;

/// Number of bytes to prefetch together: the smallest page of LMDB.
const PREFETCH_BYTES: usize = 4096;

/// Prefetches the page at this address, which need not be mapped: a prefetch is a hint, not an
/// access.
#[cfg(target_arch = "x86_64")]
fn prefetch(page: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    for line in (0..PREFETCH_BYTES).step_by(64) {
        // SAFETY: the instruction never faults, whatever the address, and changes no memory.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(page.wrapping_add(line).cast()) }
    }
}

/// Does nothing: other architectures have no stable prefetch hint in Rust.
#[cfg(not(target_arch = "x86_64"))]
fn prefetch(_: *const u8) {}
