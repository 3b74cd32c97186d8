//! Cursors: [`Cursor`] walks a table, [`WriteCursor`] also changes it.

use std::ffi::c_uint;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use lmdb_master_sys as ffi;

use super::txn::bytes;
use super::{Error, Table, blank, borrowed};

/// A place in a table, for as long as its transaction is borrowed.
#[derive(Debug)]
pub(crate) struct Cursor<'t> {
    cursor: NonNull<ffi::MDB_cursor>,
    /// A borrow of the transaction; neither `Send` nor `Sync`.
    txn: PhantomData<(&'t (), *mut ())>,
    /// The page of the last key it came to; 0 before.
    page: usize,
}

/// Where a [`Cursor`] shall go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Move {
    First,
    Last,
    Next,
    Prev,
    Current,
    /// Past the other values of this key.
    NextKey,
    PrevKey,
    /// Within the values of this key.
    FirstValue,
    LastValue,
    NextValue,
    PrevValue,
}

/// A key and a value.
pub(crate) type Entry<'t> = (&'t [u8], &'t [u8]);

impl<'t> Cursor<'t> {
    /// # Safety
    ///
    /// The transaction is alive and stays borrowed for the lifetime.
    pub(super) unsafe fn open(txn: *mut ffi::MDB_txn, table: Table) -> Result<Cursor<'t>, Error> {
        let mut cursor = ptr::null_mut();
        // SAFETY: the caller's; `cursor` is where the result goes.
        let code = unsafe { ffi::mdb_cursor_open(txn, table.0 as c_uint, &mut cursor) };
        Error::check(code).map_err(Error::of_table)?;
        match NonNull::new(cursor) {
            Some(cursor) => Ok(Cursor { cursor, txn: PhantomData, page: 0 }),
            None => Err(Error::Other("the engine made no cursor".into())),
        }
    }

    /// Moves; `None` where there is nothing. A cursor that stands nowhere has no current entry.
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

    /// Moves to the key, and to the first of its values.
    pub(crate) fn seek(&mut self, key: &[u8]) -> Result<Option<Entry<'t>>, Error> {
        if key.is_empty() {
            return Ok(None);
        }
        self.get(borrowed(key), blank(), ffi::MDB_SET_KEY)
    }

    /// Moves to the first key that is not below this one.
    pub(crate) fn seek_range(&mut self, key: &[u8]) -> Result<Option<Entry<'t>>, Error> {
        if key.is_empty() {
            return self.step(Move::First);
        }
        self.get(borrowed(key), blank(), ffi::MDB_SET_RANGE)
    }

    /// Moves to this very pair, in a table with several values under a key, none of them empty.
    pub(crate) fn seek_pair(&mut self, key: &[u8], value: &[u8]) -> Result<bool, Error> {
        // LMDB takes that for an error, depending on how many values there are.
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
        // LMDB leaves the key as it was given, which may not outlive this call.
        if found.is_some() { self.step(Move::Current) } else { Ok(None) }
    }

    /// How many values the key has at which it stands.
    pub(crate) fn values(&mut self) -> Result<u64, Error> {
        let mut count = 0;
        // SAFETY: the cursor is open; `count` is where the result goes.
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
        // SAFETY: the cursor is open and its transaction is borrowed for 't, so what LMDB points
        // to stays (invariant 4). It does not write to what was given.
        unsafe {
            let cursor = self.cursor.as_ptr();
            match ffi::mdb_cursor_get(cursor, &mut key, &mut value, operation) {
                // What LMDB answers of a cursor that stands nowhere.
                code if is_current && code == EINVAL => return Ok(None),
                code => {
                    if !Error::check_found(code)? {
                        return Ok(None);
                    }
                }
            }
            // Within the values of a key, LMDB does not always name the key again.
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

    /// Notes the page, and asks for all of it where a walk has just entered it.
    ///
    /// A row is read with some hundred instructions, a sum over its value among them, so that no
    /// processor looks ahead as far as the next row: without this each is waited for by itself.
    /// What stays within a page asks for nothing.
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
        // SAFETY: open, and closed once; the transaction is still alive (it is borrowed).
        unsafe { ffi::mdb_cursor_close(self.cursor.as_ptr()) }
    }
}

/// A [`Cursor`] that borrows its transaction alone. Keys that come in order are put without a
/// search from the root.
#[derive(Debug)]
pub(crate) struct WriteCursor<'t>(Cursor<'t>);

/// How a [`WriteCursor`] puts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Put {
    /// In place of what there is, or beside it in a table with several values under a key.
    Over,
    /// Above all keys there are; fills pages to the end instead of to the middle.
    Append,
}

impl<'t> WriteCursor<'t> {
    pub(super) fn new(cursor: Cursor<'t>) -> WriteCursor<'t> {
        WriteCursor(cursor)
    }

    /// The largest key.
    pub(crate) fn last_key(&mut self) -> Result<Option<&[u8]>, Error> {
        Ok(self.0.step(Move::Last)?.map(|(key, _)| key))
    }

    /// Puts the value; where a key has several, beside them, unless it is there.
    pub(crate) fn put(&mut self, key: &[u8], value: &[u8], how: Put) -> Result<(), Error> {
        let (mut key, mut value) = (borrowed(key), borrowed(value));
        // SAFETY: the cursor is open and has its transaction alone; LMDB copies both.
        Error::check(unsafe {
            ffi::mdb_cursor_put(self.0.cursor.as_ptr(), &mut key, &mut value, how.flags())
        })
    }

    /// Removes the key with all its values, if it is there.
    pub(crate) fn delete(&mut self, key: &[u8], duplicates: bool) -> Result<(), Error> {
        match self.0.seek(key)? {
            Some(_) => self.delete_current(if duplicates { ffi::MDB_NODUPDATA } else { 0 }),
            None => Ok(()),
        }
    }

    /// Removes this very pair, if it is there.
    pub(crate) fn delete_value(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        if self.0.seek_pair(key, value)? { self.delete_current(0) } else { Ok(()) }
    }

    fn delete_current(&mut self, flags: c_uint) -> Result<(), Error> {
        // SAFETY: the cursor is open, stands at an entry, and has its transaction alone.
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

/// The same number on every system that LMDB runs on.
const EINVAL: i32 = 22;

/// What is asked for together: the smallest page that LMDB has.
const PREFETCH_BYTES: usize = 4096;

/// Asks for the bytes from here on, which need not be there: that is a hint, not an access.
#[cfg(target_arch = "x86_64")]
fn prefetch(page: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    for line in (0..PREFETCH_BYTES).step_by(64) {
        // SAFETY: the instruction never faults, whatever the address, and changes nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(page.wrapping_add(line).cast()) }
    }
}

/// There is no such hint for others in the language yet.
#[cfg(not(target_arch = "x86_64"))]
fn prefetch(_: *const u8) {}
