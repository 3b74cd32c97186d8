//! Transactions: [`ReadTxn`] over a frozen tree, [`IdleTxn`] that keeps its slot, [`WriteTxn`].

use std::ffi::c_uint;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;

use lmdb_master_sys as ffi;

use super::env::open_in;
use super::{Cursor, Env, Error, Make, Table, WriteCursor, blank, borrowed};

/// A frozen view. It takes a slot of readers until it is dropped.
#[derive(Debug)]
pub(crate) struct ReadTxn(Reader);

/// A [`ReadTxn`] that sees nothing and holds nothing back, but keeps its slot: renewing it takes
/// no lock.
#[derive(Debug)]
pub(crate) struct IdleTxn(Reader);

#[derive(Debug)]
struct Reader {
    txn: NonNull<ffi::MDB_txn>,
    /// Invariant 1.
    env: Arc<Env>,
}

// SAFETY: invariant 3: with `MDB_NOTLS` a read transaction belongs to no thread.
unsafe impl Send for Reader {}

impl ReadTxn {
    pub(super) fn begin(env: &Arc<Env>) -> Result<ReadTxn, Error> {
        let txn = ReadTxn::begin_bare(env.as_ptr())?;
        match NonNull::new(txn) {
            Some(txn) => Ok(ReadTxn(Reader { txn, env: env.clone() })),
            None => Err(Error::Other("the engine made no transaction".into())),
        }
    }

    /// A transaction that the caller ends, in an environment that is open.
    pub(super) fn begin_bare(env: *mut ffi::MDB_env) -> Result<*mut ffi::MDB_txn, Error> {
        let mut txn = ptr::null_mut();
        // SAFETY: the environment is open, says the caller; `txn` is where the result goes.
        Error::check(unsafe {
            ffi::mdb_txn_begin(env, ptr::null_mut(), ffi::MDB_RDONLY, &mut txn)
        })?;
        Ok(txn)
    }

    pub(crate) fn env(&self) -> &Arc<Env> {
        &self.0.env
    }

    /// The number of the commit it sees.
    pub(crate) fn id(&self) -> u64 {
        // SAFETY: the transaction is alive.
        unsafe { ffi::mdb_txn_id(self.0.txn.as_ptr()) as u64 }
    }

    /// The value under the key. The key may have any length.
    pub(crate) fn get(&self, table: Table, key: &[u8]) -> Result<Option<&[u8]>, Error> {
        // SAFETY: the transaction is alive and ours; the bytes stay by invariant 4.
        unsafe { get(self.0.txn.as_ptr(), table, key) }
    }

    pub(crate) fn cursor(&self, table: Table) -> Result<Cursor<'_>, Error> {
        // SAFETY: the transaction is alive, and borrowed for as long as the cursor is.
        unsafe { Cursor::open(self.0.txn.as_ptr(), table) }
    }

    /// How many entries the table has.
    pub(crate) fn len(&self, table: Table) -> Result<u64, Error> {
        // SAFETY: the transaction is alive.
        unsafe { stat(self.0.txn.as_ptr(), table) }.map(|stat| stat.ms_entries as u64)
    }

    /// How many bytes of pages the table has.
    pub(crate) fn bytes(&self, table: Table) -> Result<u64, Error> {
        // SAFETY: the transaction is alive.
        let stat = unsafe { stat(self.0.txn.as_ptr(), table) }?;
        let pages = stat.ms_branch_pages + stat.ms_leaf_pages + stat.ms_overflow_pages;
        Ok(pages as u64 * u64::from(stat.ms_psize))
    }

    /// Lets go of what it sees.
    pub(crate) fn reset(self) -> IdleTxn {
        // SAFETY: the transaction is alive, nothing borrows it, and only `renew` follows.
        unsafe { ffi::mdb_txn_reset(self.0.txn.as_ptr()) };
        IdleTxn(self.0)
    }
}

impl IdleTxn {
    /// Sees what is committed at this moment.
    ///
    /// # Errors
    ///
    /// The transaction is dropped then.
    pub(crate) fn renew(self) -> Result<ReadTxn, Error> {
        // SAFETY: it was reset and nothing else (the type says so).
        Error::check(unsafe { ffi::mdb_txn_renew(self.0.txn.as_ptr()) })?;
        Ok(ReadTxn(self.0))
    }

    pub(crate) fn env(&self) -> &Arc<Env> {
        &self.0.env
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // SAFETY: alive or reset, nothing borrows it, and aborted once. Cursors are closed: they
        // borrow it.
        unsafe { ffi::mdb_txn_abort(self.txn.as_ptr()) }
    }
}

/// The one transaction that writes. Rolled back unless committed.
#[derive(Debug)]
pub(crate) struct WriteTxn<'e> {
    txn: NonNull<ffi::MDB_txn>,
    /// Invariant 1; and by the pointer neither `Send` nor `Sync` (invariant 3).
    env: PhantomData<(&'e Env, *mut ())>,
}

impl<'e> WriteTxn<'e> {
    pub(super) fn begin(env: &'e Env) -> Result<WriteTxn<'e>, Error> {
        let mut txn = ptr::null_mut();
        // SAFETY: the environment is open; `txn` is where the result goes.
        Error::check(unsafe { ffi::mdb_txn_begin(env.as_ptr(), ptr::null_mut(), 0, &mut txn) })?;
        match NonNull::new(txn) {
            Some(txn) => Ok(WriteTxn { txn, env: PhantomData }),
            None => Err(Error::Other("the engine made no transaction".into())),
        }
    }

    pub(super) fn as_ptr(&self) -> *mut ffi::MDB_txn {
        self.txn.as_ptr()
    }

    /// Opens a table, making it if asked to; `None` if there is none. Others may use it once this
    /// transaction is committed, and nobody if it is rolled back.
    pub(crate) fn open_table(
        &mut self,
        name: &str,
        make: Option<Make>,
    ) -> Result<Option<Table>, Error> {
        let flags = match make {
            Some(Make { duplicates: true }) => ffi::MDB_CREATE | ffi::MDB_DUPSORT,
            Some(Make { duplicates: false }) => ffi::MDB_CREATE,
            None => 0,
        };
        // SAFETY: the transaction is alive and ours, and the only one that writes (invariant 5).
        unsafe { open_in(self.as_ptr(), name, flags) }
    }

    /// The value under the key, as this transaction has it.
    pub(crate) fn get(&self, table: Table, key: &[u8]) -> Result<Option<&[u8]>, Error> {
        // SAFETY: the transaction is alive and ours; the bytes stay by invariant 4.
        unsafe { get(self.as_ptr(), table, key) }
    }

    /// A cursor to read with; nothing can be written while it is there.
    pub(crate) fn cursor(&self, table: Table) -> Result<Cursor<'_>, Error> {
        // SAFETY: the transaction is alive, and borrowed for as long as the cursor is. So nothing
        // is written before the cursor is closed, and the bytes stay (invariant 4).
        unsafe { Cursor::open(self.as_ptr(), table) }
    }

    /// A cursor to write with.
    pub(crate) fn cursor_mut(&mut self, table: Table) -> Result<WriteCursor<'_>, Error> {
        // SAFETY: the transaction is alive, and borrowed alone for as long as the cursor is.
        unsafe { Cursor::open(self.as_ptr(), table) }.map(WriteCursor::new)
    }

    /// Removes all entries of the table.
    pub(crate) fn clear(&mut self, table: Table) -> Result<(), Error> {
        // SAFETY: the transaction is alive, nothing borrows it; the table is emptied, not closed.
        Error::check(unsafe { ffi::mdb_drop(self.as_ptr(), table.0 as c_uint, 0) })
    }

    /// Ends it for good. An error has rolled it back, unless the environment answers
    /// [`Error::Panic`] afterwards.
    pub(crate) fn commit(self) -> Result<(), Error> {
        let txn = ManuallyDrop::new(self);
        // SAFETY: the transaction is alive, nothing borrows it, and it is freed here only.
        Error::check(unsafe { ffi::mdb_txn_commit(txn.as_ptr()) })
    }
}

impl Drop for WriteTxn<'_> {
    fn drop(&mut self) {
        // SAFETY: alive, nothing borrows it; a committed one does not get here.
        unsafe { ffi::mdb_txn_abort(self.as_ptr()) }
    }
}

/// # Safety
///
/// The transaction is alive, used by this thread alone, and the bytes stay for the lifetime.
unsafe fn get<'t>(
    txn: *mut ffi::MDB_txn,
    table: Table,
    key: &[u8],
) -> Result<Option<&'t [u8]>, Error> {
    let (mut key, mut value) = (borrowed(key), blank());
    // SAFETY: the caller's; LMDB does not write to the key. What it points `value` to are so many
    // bytes of the map or of a page of the transaction.
    unsafe {
        let code = ffi::mdb_get(txn, table.0 as c_uint, &mut key, &mut value);
        Ok(Error::check_found(code).map_err(Error::of_table)?.then(|| bytes(&value)))
    }
}

/// # Safety
///
/// The transaction is alive.
unsafe fn stat(txn: *mut ffi::MDB_txn, table: Table) -> Result<ffi::MDB_stat, Error> {
    let mut stat = MaybeUninit::<ffi::MDB_stat>::zeroed();
    // SAFETY: the caller's; plain numbers, for which zero is a value, are filled in.
    unsafe {
        let code = ffi::mdb_stat(txn, table.0 as c_uint, stat.as_mut_ptr());
        Error::check(code).map_err(Error::of_table)?;
        Ok(stat.assume_init())
    }
}

/// # Safety
///
/// LMDB has filled the value in, and what it points to stays for the lifetime.
pub(super) unsafe fn bytes<'t>(value: &ffi::MDB_val) -> &'t [u8] {
    if value.mv_size == 0 {
        return &[];
    }
    // SAFETY: the caller's.
    unsafe { slice::from_raw_parts(value.mv_data.cast::<u8>(), value.mv_size) }
}
