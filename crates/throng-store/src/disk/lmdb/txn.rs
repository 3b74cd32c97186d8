//! Transactions: [`ReadTxn`] over a frozen tree, [`IdleTxn`] that keeps its reader slot,
//! [`WriteTxn`].

use std::ffi::c_uint;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;

use lmdb_master_sys as ffi;

use super::env::open_in;
use super::{Cursor, Env, Error, FREE, Make, Move, Table, WriteCursor, blank, borrowed};

/// A frozen view. Takes a reader slot until it is dropped.
#[derive(Debug)]
pub(crate) struct ReadTxn(Reader);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    pub(crate) duplicates: bool,
    pub(crate) is_bytewise: bool,
}

/// A reset [`ReadTxn`]: it sees nothing and retains no pages, but keeps its slot, so renewing it
/// takes no lock.
#[derive(Debug)]
pub(crate) struct IdleTxn(Reader);

#[derive(Debug)]
struct Reader {
    txn: NonNull<ffi::MDB_txn>,
    /// Keeps the environment open (invariant 1).
    env: Arc<Env>,
}

// SAFETY: with `MDB_NOTLS` a read transaction is bound to no thread (invariant 3).
unsafe impl Send for Reader {}

impl ReadTxn {
    pub(super) fn begin(env: &Arc<Env>) -> Result<ReadTxn, Error> {
        let txn = ReadTxn::begin_bare(env.as_ptr())?;
        match NonNull::new(txn) {
            Some(txn) => Ok(ReadTxn(Reader { txn, env: env.clone() })),
            None => Err(Error::Other("the engine made no transaction".into())),
        }
    }

    /// Begins a transaction that the caller must end, in an open environment.
    pub(super) fn begin_bare(env: *mut ffi::MDB_env) -> Result<*mut ffi::MDB_txn, Error> {
        #[cfg(test)]
        begins::count();
        let mut txn = ptr::null_mut();
        // SAFETY: the caller guarantees that the environment is open; LMDB stores the result in
        // `txn`.
        Error::check(unsafe {
            ffi::mdb_txn_begin(env, ptr::null_mut(), ffi::MDB_RDONLY, &mut txn)
        })?;
        Ok(txn)
    }

    pub(crate) fn env(&self) -> &Arc<Env> {
        &self.0.env
    }

    pub(crate) fn id(&self) -> u64 {
        // SAFETY: the transaction is alive: `self` owns it, and its environment is open (invariant
        // 1).
        unsafe { ffi::mdb_txn_id(self.0.txn.as_ptr()) as u64 }
    }

    /// Returns the value under the key. The key may have any length.
    pub(crate) fn get(&self, table: Table, key: &[u8]) -> Result<Option<&[u8]>, Error> {
        // SAFETY: the transaction is alive, because `self` owns it; the bytes stay valid by
        // invariant 4.
        unsafe { get(self.0.txn.as_ptr(), table, key) }
    }

    pub(crate) fn cursor(&self, table: Table) -> Result<Cursor<'_>, Error> {
        // SAFETY: the transaction is alive, and the cursor's lifetime borrows it (invariant 4).
        unsafe { Cursor::open(self.0.txn.as_ptr(), table) }
    }

    pub(crate) fn len(&self, table: Table) -> Result<u64, Error> {
        // SAFETY: the transaction is alive: `self` owns it, and its environment is open (invariant
        // 1).
        unsafe { stat(self.0.txn.as_ptr(), table) }.map(|stat| stat.ms_entries as u64)
    }

    /// Returns how the table orders its entries.
    pub(crate) fn order(&self, table: Table) -> Result<Order, Error> {
        let mut flags: c_uint = 0;
        // SAFETY: the transaction is alive: `self` owns it, and its environment is open (invariant
        // 1); LMDB stores the result in `flags`.
        let code =
            unsafe { ffi::mdb_dbi_flags(self.0.txn.as_ptr(), table.0 as c_uint, &mut flags) };
        Error::check(code).map_err(Error::of_table)?;
        let other_order =
            ffi::MDB_INTEGERKEY | ffi::MDB_REVERSEKEY | ffi::MDB_INTEGERDUP | ffi::MDB_REVERSEDUP;
        Ok(Order {
            duplicates: flags & ffi::MDB_DUPSORT != 0,
            is_bytewise: flags & other_order == 0,
        })
    }

    pub(crate) fn bytes(&self, table: Table) -> Result<u64, Error> {
        // SAFETY: the transaction is alive: `self` owns it, and its environment is open (invariant
        // 1).
        let stat = unsafe { stat(self.0.txn.as_ptr(), table) }?;
        let pages = stat.ms_branch_pages + stat.ms_leaf_pages + stat.ms_overflow_pages;
        Ok(pages as u64 * u64::from(stat.ms_psize))
    }

    /// Returns the number of pages that the next commit may take again: commits before that of the `oldest` view
    /// have freed them.
    pub(crate) fn free_pages(&self, oldest: u64) -> Result<u64, Error> {
        let mut cursor = self.cursor(FREE)?;
        let word = |bytes: &[u8]| bytes.first_chunk().map_or(0, |word| usize::from_ne_bytes(*word));
        let mut pages = 0;
        let mut next = cursor.step(Move::First)?;
        while let Some((commit, list)) = next
            && (word(commit) as u64) < oldest
        {
            // A list begins with its length.
            pages += word(list) as u64;
            next = cursor.step(Move::Next)?;
        }
        Ok(pages)
    }

    /// Releases the view and keeps the slot.
    pub(crate) fn reset(self) -> IdleTxn {
        // SAFETY: the transaction is alive, nothing borrows it (`self` is consumed), and only
        // `renew` follows.
        unsafe { ffi::mdb_txn_reset(self.0.txn.as_ptr()) };
        IdleTxn(self.0)
    }
}

impl IdleTxn {
    /// Renews the transaction, so that it sees the last commit.
    ///
    /// # Errors
    ///
    /// The engine's error; the transaction is dropped.
    pub(crate) fn renew(self) -> Result<ReadTxn, Error> {
        // SAFETY: the transaction was reset and not used since, as the type `IdleTxn` guarantees.
        Error::check(unsafe { ffi::mdb_txn_renew(self.0.txn.as_ptr()) })?;
        Ok(ReadTxn(self.0))
    }

    pub(crate) fn env(&self) -> &Arc<Env> {
        &self.0.env
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // SAFETY: the transaction is alive or reset, is aborted once, and has no open cursors,
        // because they would borrow it (invariant 4).
        unsafe { ffi::mdb_txn_abort(self.txn.as_ptr()) }
    }
}

/// The write transaction, which is rolled back when it is dropped uncommitted.
#[derive(Debug)]
pub(crate) struct WriteTxn<'e> {
    txn: NonNull<ffi::MDB_txn>,
    /// The environment (invariant 1).
    env: &'e Env,
    /// A pointer, which makes the type neither `Send` nor `Sync` (invariant 3).
    bound: PhantomData<*mut ()>,
}

impl<'e> WriteTxn<'e> {
    pub(super) fn begin(env: &'e Env) -> Result<WriteTxn<'e>, Error> {
        #[cfg(test)]
        begins::count();
        let mut txn = ptr::null_mut();
        // SAFETY: the environment is open (invariant 1: `env` is borrowed); LMDB stores the result
        // in `txn`.
        Error::check(unsafe { ffi::mdb_txn_begin(env.as_ptr(), ptr::null_mut(), 0, &mut txn) })?;
        let Some(txn) = NonNull::new(txn) else {
            return Err(Error::Other("the engine made no transaction".into()));
        };
        let txn = WriteTxn { txn, env, bound: PhantomData };
        env.check_name().map_err(Error::Io)?;
        Ok(txn)
    }

    pub(super) fn as_ptr(&self) -> *mut ffi::MDB_txn {
        self.txn.as_ptr()
    }

    /// Opens a table, and creates it if `make` is given; `None` if it does not exist. Other
    /// transactions may use the table once this transaction is committed, and never if it is rolled
    /// back.
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
        // SAFETY: `self` owns the live transaction, and it is the only write transaction (invariant
        // 5).
        unsafe { open_in(self.as_ptr(), name, flags) }
    }

    /// Opens a cursor for reading; it borrows the transaction, so nothing is written meanwhile.
    pub(crate) fn cursor(&self, table: Table) -> Result<Cursor<'_>, Error> {
        // SAFETY: the transaction is alive, and the cursor's lifetime borrows it. So nothing is
        // written before the cursor is closed, and the bytes stay valid (invariant 4).
        unsafe { Cursor::open(self.as_ptr(), table) }
    }

    pub(crate) fn cursor_mut(&mut self, table: Table) -> Result<WriteCursor<'_>, Error> {
        // SAFETY: the transaction is alive, and the cursor's lifetime borrows it exclusively
        // (invariant 4).
        unsafe { Cursor::open(self.as_ptr(), table) }.map(WriteCursor::new)
    }

    pub(crate) fn len(&self, table: Table) -> Result<u64, Error> {
        // SAFETY: the transaction is alive: `self` owns it, and its environment is open (invariant
        // 1).
        unsafe { stat(self.as_ptr(), table) }.map(|stat| stat.ms_entries as u64)
    }

    pub(crate) fn clear(&mut self, table: Table) -> Result<(), Error> {
        // SAFETY: the transaction is alive, and `&mut self` excludes borrows (invariant 4); the
        // table is emptied, not closed (invariant 5).
        Error::check(unsafe { ffi::mdb_drop(self.as_ptr(), table.0 as c_uint, 0) })
    }

    /// Commits the transaction. An error has rolled it back, unless the environment returns
    /// [`Error::Panic`] afterwards.
    pub(crate) fn commit(self) -> Result<(), Error> {
        self.env.platform().files.begin_commit().map_err(Error::Io)?;
        let txn = ManuallyDrop::new(self);
        // SAFETY: the transaction is alive, nothing borrows it (`self` is consumed), and
        // `ManuallyDrop` keeps `drop` from freeing it again.
        Error::check(unsafe { ffi::mdb_txn_commit(txn.as_ptr()) })
    }
}

impl Drop for WriteTxn<'_> {
    fn drop(&mut self) {
        // SAFETY: the transaction is alive and nothing borrows it; `commit` never drops a committed
        // transaction.
        unsafe { ffi::mdb_txn_abort(self.as_ptr()) }
    }
}

/// Returns the value under a key, in a read or write transaction.
///
/// # Safety
///
/// The transaction is alive, used only by this thread, and the bytes stay valid for the lifetime.
unsafe fn get<'t>(
    txn: *mut ffi::MDB_txn,
    table: Table,
    key: &[u8],
) -> Result<Option<&'t [u8]>, Error> {
    let (mut key, mut value) = (borrowed(key), blank());
    // SAFETY: the caller guarantees the transaction and the lifetime (invariant 4); LMDB does not
    // write to the key, and points `value` to that many bytes of the map or of a page of the
    // transaction.
    unsafe {
        let code = ffi::mdb_get(txn, table.0 as c_uint, &mut key, &mut value);
        Ok(Error::check_found(code).map_err(Error::of_table)?.then(|| bytes(&value)))
    }
}

/// Returns LMDB's statistics of a table.
///
/// # Safety
///
/// The transaction is alive.
unsafe fn stat(txn: *mut ffi::MDB_txn, table: Table) -> Result<ffi::MDB_stat, Error> {
    let mut stat = MaybeUninit::<ffi::MDB_stat>::zeroed();
    // SAFETY: the caller guarantees the transaction; LMDB fills in plain integers, for which zero
    // is valid.
    unsafe {
        let code = ffi::mdb_stat(txn, table.0 as c_uint, stat.as_mut_ptr());
        Error::check(code).map_err(Error::of_table)?;
        Ok(stat.assume_init())
    }
}

/// Returns the bytes of a value that LMDB has filled in.
///
/// # Safety
///
/// LMDB has filled in the value, and the bytes it points to stay valid for the lifetime.
pub(super) unsafe fn bytes<'t>(value: &ffi::MDB_val) -> &'t [u8] {
    if value.mv_size == 0 {
        return &[];
    }
    // SAFETY: the caller guarantees that the pointer and the length describe valid bytes (invariant
    // 4).
    unsafe { slice::from_raw_parts(value.mv_data.cast::<u8>(), value.mv_size) }
}

/// Number of transactions that a thread has begun, for tests.
#[cfg(test)]
pub(crate) mod begins {
    use std::cell::Cell;

    thread_local! {
        static BEGUN: Cell<usize> = const { Cell::new(0) };
    }

    pub(super) fn count() {
        BEGUN.set(BEGUN.get() + 1);
    }

    /// Returns the number since the last call.
    pub(crate) fn take() -> usize {
        BEGUN.take()
    }
}
