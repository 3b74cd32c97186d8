//! [`Env`]: an open environment, which is a mapped data file and a table of its readers.

use std::convert::Infallible;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};

use lmdb_master_sys as ffi;

use super::{Error, ReadTxn, Table, WriteTxn};
use crate::disk::claim::Claim;

/// How to open an environment.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) map_bytes: usize,
    pub(crate) readers_max: u32,
    pub(crate) tables_max: u32,
    /// Commits do not wait for the disk.
    pub(crate) no_sync: bool,
    /// The map can be written, and commits write there.
    pub(crate) write_map: bool,
    pub(crate) no_read_ahead: bool,
}

/// See the module above.
#[derive(Debug)]
pub(crate) struct Env {
    env: NonNull<ffi::MDB_env>,
    read_only: bool,
    /// Keeps two read transactions from opening tables at once (invariant 5).
    opening: Mutex<()>,
    /// No idle transaction shall be kept: whoever holds the last one closes the environment.
    retired: AtomicBool,
    /// Hangs up once the environment is closed: fields are dropped after it.
    _open: Sender<Infallible>,
}

/// Tells when an environment is closed: by hanging up.
pub(crate) type Closed = Receiver<Infallible>;

// SAFETY: LMDB's environment may be used by several threads at once, and closed by any; what it
// asks for beyond that is in the invariants 3 and 5.
unsafe impl Send for Env {}
// SAFETY: as above.
unsafe impl Sync for Env {}

impl Env {
    /// Opens the environment in the directory that is claimed, making it if the claim is to write.
    ///
    /// Where the map is larger than the addresses that can be had, a smaller one is taken.
    pub(crate) fn open(claim: &Claim, settings: &Settings) -> Result<(Arc<Env>, Closed), Error> {
        let mut map_bytes = settings.map_bytes;
        loop {
            match Env::open_mapped(claim, settings, map_bytes) {
                Err(Error::Io(error))
                    if error.kind() == io::ErrorKind::OutOfMemory
                        && map_bytes > MAP_BYTES_LEAST =>
                {
                    // Whole units of 64 KiB again, being halves of a multiple or the least.
                    map_bytes = (map_bytes / 2).next_multiple_of(64 << 10);
                }
                other => return other,
            }
        }
    }

    fn open_mapped(
        claim: &Claim,
        settings: &Settings,
        map_bytes: usize,
    ) -> Result<(Arc<Env>, Closed), Error> {
        let path = c_path(claim.path())?;
        let read_only = claim.is_read_only();
        let mut flags = ffi::MDB_NOTLS;
        for (flag, wanted) in [
            (ffi::MDB_RDONLY, read_only),
            (ffi::MDB_NOSYNC | ffi::MDB_NOMETASYNC, settings.no_sync),
            (ffi::MDB_WRITEMAP, settings.write_map && settings.no_sync && !read_only),
            (ffi::MDB_NORDAHEAD, settings.no_read_ahead),
        ] {
            flags |= if wanted { flag } else { 0 };
        }
        let mut env = ptr::null_mut();
        // SAFETY: `env` is where the result goes.
        Error::check(unsafe { ffi::mdb_env_create(&mut env) })?;
        let Some(pointer) = NonNull::new(env) else {
            return Err(Error::Other("the engine made no environment".into()));
        };
        // Closes it on each way out.
        let (sender, closed) = mpsc::channel();
        let opened = Env {
            _open: sender,
            env: pointer,
            read_only,
            opening: Mutex::new(()),
            retired: AtomicBool::new(false),
        };
        // SAFETY: the environment was made above, is not open yet, and nobody else has it. The
        // path ends in a zero. What mapping a file asks for is invariant 2.
        unsafe {
            Error::check(ffi::mdb_env_set_mapsize(env, map_bytes))?;
            Error::check(ffi::mdb_env_set_maxreaders(env, settings.readers_max))?;
            Error::check(ffi::mdb_env_set_maxdbs(env, settings.tables_max))?;
            Error::check(ffi::mdb_env_open(env, path.as_ptr(), flags, 0o600))?;
        }
        Ok((Arc::new(opened), closed))
    }

    pub(super) fn as_ptr(&self) -> *mut ffi::MDB_env {
        self.env.as_ptr()
    }

    /// Begins to read what is committed.
    pub(crate) fn begin_read(self: &Arc<Self>) -> Result<ReadTxn, Error> {
        ReadTxn::begin(self)
    }

    /// Begins to write; waits for whoever else writes.
    pub(crate) fn begin_write(&self) -> Result<WriteTxn<'_>, Error> {
        WriteTxn::begin(self)
    }

    /// Makes a table and opens it for good, in a transaction of which `also` does the rest.
    ///
    /// As durable as a commit: not at all where those do not wait for the disk.
    pub(crate) fn make_table(
        &self,
        name: &str,
        make: Make,
        also: impl FnOnce(&mut WriteTxn<'_>) -> Result<(), Error>,
    ) -> Result<Table, Error> {
        let _opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        let mut txn = self.begin_write()?;
        let table = txn.open_table(name, Some(make))?;
        also(&mut txn)?;
        txn.commit()?;
        table.ok_or_else(|| Error::Other("the engine made no table".into()))
    }

    /// Opens a table for good, in a transaction of its own; `None` if there is none.
    pub(crate) fn open_table(&self, name: &str) -> Result<Option<Table>, Error> {
        let _opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if self.read_only {
            let txn = ReadTxn::begin_bare(self.as_ptr())?;
            // SAFETY: the transaction was begun above and is committed or aborted once. Invariant 5
            // holds by the lock.
            return unsafe {
                let table = open_in(txn, name, 0);
                match &table {
                    // The commit of a reader keeps the tables it opened, and nothing else.
                    Ok(Some(_)) => Error::check(ffi::mdb_txn_commit(txn))?,
                    _ => ffi::mdb_txn_abort(txn),
                }
                table
            };
        }
        let mut txn = self.begin_write()?;
        let table = txn.open_table(name, None)?;
        if table.is_some() {
            txn.commit()?;
        }
        Ok(table)
    }

    /// Frees the slots of readers whose processes are dead; returns how many.
    pub(crate) fn clear_stale_readers(&self) -> Result<u32, Error> {
        let mut dead: c_int = 0;
        // SAFETY: the environment is open; `dead` is where the result goes.
        Error::check(unsafe { ffi::mdb_reader_check(self.as_ptr(), &mut dead) })?;
        Ok(dead.max(0) as u32)
    }

    /// Waits until all that is committed is on the disk.
    pub(crate) fn sync(&self) -> Result<(), Error> {
        // SAFETY: the environment is open.
        Error::check(unsafe { ffi::mdb_env_sync(self.as_ptr(), 1) })
    }

    /// Writes a copy of what is committed into the file; without what is free, if `compact`.
    pub(crate) fn copy_to(&self, file: &File, compact: bool) -> Result<(), Error> {
        let flags: c_uint = if compact { ffi::MDB_CP_COMPACT } else { 0 };
        #[cfg(unix)]
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(file);
        #[cfg(windows)]
        let descriptor = std::os::windows::io::AsRawHandle::as_raw_handle(file).cast();
        // SAFETY: the environment is open, and so is the file, for the length of the call.
        Error::check(unsafe { ffi::mdb_env_copyfd2(self.as_ptr(), descriptor, flags) })
    }

    /// The size of the map, in bytes.
    pub(crate) fn map_bytes(&self) -> u64 {
        self.info().map_or(0, |info| info.me_mapsize as u64)
    }

    /// The number of the last transaction that was committed.
    pub(crate) fn last_txn(&self) -> u64 {
        self.info().map_or(0, |info| info.me_last_txnid as u64)
    }

    /// How many bytes of the file are in use or were: up to the last page.
    pub(crate) fn used_bytes(&self) -> u64 {
        let pages = self.info().map_or(0, |info| info.me_last_pgno as u64 + 1);
        pages * self.page_bytes()
    }

    /// How many slots of readers are taken, here and by other processes.
    pub(crate) fn readers(&self) -> u32 {
        self.info().map_or(0, |info| info.me_numreaders)
    }

    /// The commit that each transaction reads which is under way, here and in other processes.
    pub(crate) fn reader_txns(&self) -> Result<Vec<u64>, Error> {
        /// Takes a line of process, thread and commit; others are headings, or of idle slots.
        unsafe extern "C" fn line(line: *const c_char, txns: *mut c_void) -> c_int {
            // SAFETY: LMDB passes text that ends in a zero, and the pointer it was given below,
            // which nobody else uses meanwhile.
            let (line, txns) = unsafe { (CStr::from_ptr(line), &mut *txns.cast::<Vec<u64>>()) };
            let txn = line.to_str().ok().and_then(|line| line.split_whitespace().nth(2));
            txns.extend(txn.and_then(|txn| txn.parse::<u64>().ok()));
            0
        }
        let mut txns = Vec::<u64>::new();
        // SAFETY: the environment is open; `line` is called before this returns, with the pointer
        // to `txns`.
        let code = unsafe {
            ffi::mdb_reader_list(self.as_ptr(), Some(line), (&raw mut txns).cast::<c_void>())
        };
        // No error of the engine's: it has none here but for an environment that is not open.
        if code < 0 { Err(Error::Other("the readers cannot be listed".into())) } else { Ok(txns) }
    }

    /// The size of a page.
    pub(crate) fn page_bytes(&self) -> u64 {
        let mut stat = MaybeUninit::<ffi::MDB_stat>::zeroed();
        // SAFETY: the environment is open; plain numbers, for which zero is a value, are filled in.
        let stat = unsafe {
            ffi::mdb_env_stat(self.as_ptr(), stat.as_mut_ptr());
            stat.assume_init()
        };
        u64::from(stat.ms_psize)
    }

    fn info(&self) -> Option<ffi::MDB_envinfo> {
        let mut info = MaybeUninit::<ffi::MDB_envinfo>::zeroed();
        // SAFETY: the environment is open; numbers and a pointer that nobody follows are filled in.
        unsafe {
            let code = ffi::mdb_env_info(self.as_ptr(), info.as_mut_ptr());
            (code == ffi::MDB_SUCCESS).then(|| info.assume_init())
        }
    }

    /// From here on idle transactions are dropped, not kept.
    pub(crate) fn retire(&self) {
        // Release: whoever sees it under the lock of a pool also sees that the pool was emptied
        // under that lock, or empties it himself.
        self.retired.store(true, Ordering::Release);
    }

    pub(crate) fn is_retired(&self) -> bool {
        // Acquire: see `retire`.
        self.retired.load(Ordering::Acquire)
    }
}

impl Drop for Env {
    fn drop(&mut self) {
        // SAFETY: invariant 1: no transaction is left. Made by `mdb_env_create`, closed once.
        unsafe { ffi::mdb_env_close(self.env.as_ptr()) }
    }
}

/// What a new table is to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Make {
    /// Several values under one key, in order.
    pub(crate) duplicates: bool,
}

/// Below this, no smaller map is tried.
const MAP_BYTES_LEAST: usize = 64 << 20;

/// Opens a table in a transaction.
///
/// # Safety
///
/// The transaction is alive and used by nobody else; see invariant 5.
pub(super) unsafe fn open_in(
    txn: *mut ffi::MDB_txn,
    name: &str,
    flags: c_uint,
) -> Result<Option<Table>, Error> {
    let name = CString::new(name).map_err(|_| Error::Incompatible)?;
    let mut table = 0;
    // SAFETY: the caller's, and the name ends in a zero.
    let code = unsafe { ffi::mdb_dbi_open(txn, name.as_ptr(), flags, &mut table) };
    Ok(Error::check_found(code)?.then_some(Table(table)))
}

#[cfg(unix)]
fn c_path(path: &Path) -> Result<CString, Error> {
    use std::os::unix::ffi::OsStrExt;
    CString::new(path.as_os_str().as_bytes()).map_err(|error| Error::Io(error.into()))
}

#[cfg(not(unix))]
fn c_path(path: &Path) -> Result<CString, Error> {
    let unfit =
        || Error::Io(io::Error::new(io::ErrorKind::InvalidInput, "the path is not Unicode"));
    CString::new(path.to_str().ok_or_else(unfit)?).map_err(|error| Error::Io(error.into()))
}
