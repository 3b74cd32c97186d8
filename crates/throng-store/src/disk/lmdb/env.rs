//! [`Env`]: an open environment, which is a mapped data file and a table of its readers.

use std::convert::Infallible;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};

use lmdb_master_sys as ffi;

use super::{Error, ReadTxn, Table, WriteTxn};
use crate::disk::claim::Claim;
use crate::disk::damage::Damage;
use crate::disk::reader_table::ReaderTable;
use crate::disk::{DATA_FILE, identity, pages};
use crate::platform::Platform;

#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) map_bytes: usize,
    pub(crate) readers_max: u32,
    pub(crate) tables_max: u32,
    pub(crate) no_sync: bool,
    pub(crate) write_map: bool,
    pub(crate) no_read_ahead: bool,
    /// Whether the directory is another program's, which locks nothing but LMDB's table of readers.
    pub(crate) is_foreign: bool,
    pub(crate) platform: Arc<Platform>,
}

#[derive(Debug)]
pub(crate) struct Env {
    env: NonNull<ffi::MDB_env>,
    read_only: bool,
    /// The data file, and its path in the claimed directory; `None` until LMDB has opened it.
    data: Option<(File, PathBuf)>,
    platform: Arc<Platform>,
    /// Keeps two read transactions from opening tables at once (invariant 5).
    opening: Mutex<()>,
    /// Whether idle transactions are dropped, not kept: dropping the last one closes the
    /// environment.
    retired: AtomicBool,
    /// Held while LMDB has the files open: fields are dropped after the `drop` of `Env`.
    _table: ReaderTable,
    /// Disconnects once the environment is closed; the last field to be dropped.
    _open: Sender<Infallible>,
}

/// Signals by disconnecting that an environment is closed.
pub(crate) type Closed = Receiver<Infallible>;

// SAFETY: several threads may use an LMDB environment at once, and any thread may close it; the
// remaining conditions are invariants 3 and 5.
unsafe impl Send for Env {}
// SAFETY: as for `Send`: concurrent use is allowed under invariants 3 and 5.
unsafe impl Sync for Env {}

impl Env {
    /// Opens the environment in the claimed directory, and creates it if the claim is for writing.
    ///
    /// If not enough address space is available for the map, a smaller map is used. Half of the address
    /// space that a limit leaves stays free: a map that takes all lets the next allocation end the process. A map
    /// to write is not larger than a file may become.
    pub(crate) fn open(claim: &Claim, settings: &Settings) -> Result<(Arc<Env>, Closed), Error> {
        pages::check_length(&claim.path().join(DATA_FILE)).map_err(|damage| match damage {
            Damage::Foreign => Error::NotData,
            Damage::Found(reason) => Error::Corrupt(reason),
            Damage::Io(error) => Error::Io(error),
        })?;
        // Whole pages, for any page size in use.
        let half = |left: usize| (left / 2).max(1).next_multiple_of(64 << 10);
        let mut most = address_bytes_left().map_or(usize::MAX, half);
        if !claim.is_read_only() {
            let longest = file_bytes_max().and_then(|bytes| usize::try_from(bytes).ok());
            most = most.min(longest.map_or(usize::MAX, |bytes| (bytes & !0xffff).max(64 << 10)));
        }
        let mut map_bytes = settings.map_bytes.min(most);
        loop {
            match Env::open_mapped(claim, settings, map_bytes) {
                Err(Error::Io(error))
                    if error.kind() == io::ErrorKind::OutOfMemory
                        && map_bytes > MAP_BYTES_LEAST =>
                {
                    // The result is a multiple of 64 KiB again.
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
        let table = match settings.is_foreign {
            false => ReaderTable::join(claim).map_err(Error::Io)?,
            true => ReaderTable::default(),
        };
        let mut flags = ffi::MDB_NOTLS;
        for (flag, wanted) in [
            (ffi::MDB_RDONLY, read_only),
            (ffi::MDB_NOLOCK, !table.is_shared()),
            (ffi::MDB_NOSYNC | ffi::MDB_NOMETASYNC, settings.no_sync),
            (ffi::MDB_WRITEMAP, settings.write_map && settings.no_sync && !read_only),
            (ffi::MDB_NORDAHEAD, settings.no_read_ahead),
        ] {
            flags |= if wanted { flag } else { 0 };
        }
        let mut env = ptr::null_mut();
        // SAFETY: LMDB stores the result in `env`, which outlives the call.
        Error::check(unsafe { ffi::mdb_env_create(&mut env) })?;
        let Some(pointer) = NonNull::new(env) else {
            return Err(Error::Other("the engine made no environment".into()));
        };
        // Dropping this value closes the environment on every return path.
        let (sender, closed) = mpsc::channel();
        let mut opened = Env {
            _open: sender,
            _table: table,
            env: pointer,
            read_only,
            data: None,
            platform: settings.platform.clone(),
            opening: Mutex::new(()),
            retired: AtomicBool::new(false),
        };
        // SAFETY: the environment was created above, is not open yet, and no other thread has it.
        // The path ends in a zero byte. Mapping a file relies on invariant 2.
        unsafe {
            Error::check(ffi::mdb_env_set_mapsize(env, map_bytes))?;
            Error::check(ffi::mdb_env_set_maxreaders(env, settings.readers_max))?;
            Error::check(ffi::mdb_env_set_maxdbs(env, settings.tables_max))?;
            Error::check(ffi::mdb_env_open(env, path.as_ptr(), flags, 0o600))?;
        }
        let path = claim.path().join(DATA_FILE);
        opened.data = Some((File::open(&path).map_err(Error::Io)?, path));
        Ok((Arc::new(opened), closed))
    }

    pub(super) fn as_ptr(&self) -> *mut ffi::MDB_env {
        self.env.as_ptr()
    }

    pub(crate) fn platform(&self) -> &Platform {
        &self.platform
    }

    /// Checks that the data file has a name, so that what LMDB has is not lost.
    pub(crate) fn check(&self) -> io::Result<()> {
        match &self.data {
            Some((data, _)) if !identity::has_name(data)? => Err(identity::lost(DATA_FILE)),
            _ => Ok(()),
        }
    }

    /// Checks that the data file has its name in the claimed directory.
    pub(super) fn check_name(&self) -> io::Result<()> {
        match &self.data {
            Some((data, path)) if !identity::is_at(data, path)? => Err(identity::lost(DATA_FILE)),
            _ => Ok(()),
        }
    }

    pub(crate) fn file_bytes(&self) -> io::Result<u64> {
        self.data.as_ref().map_or(Ok(0), |(data, _)| data.metadata().map(|metadata| metadata.len()))
    }

    pub(crate) fn begin_read(self: &Arc<Self>) -> Result<ReadTxn, Error> {
        ReadTxn::begin(self)
    }

    /// Begins a write transaction; waits for the end of any other.
    pub(crate) fn begin_write(&self) -> Result<WriteTxn<'_>, Error> {
        WriteTxn::begin(self)
    }

    /// Creates a table and opens it permanently, in a transaction that `also` completes.
    ///
    /// The table is as durable as a commit: not at all if commits do not wait for the disk.
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

    /// Opens a table permanently; `None` if it does not exist.
    pub(crate) fn open_table(&self, name: &str) -> Result<Option<Table>, Error> {
        self.open_tables(|open| open(name))
    }

    /// Opens tables permanently: `all` opens each by its name, and gets `None` for one that does not exist.
    /// After an error of `all`, none of them is open.
    ///
    /// All are opened in one transaction, because a transaction costs a step for each table that is open.
    pub(crate) fn open_tables<T>(
        &self,
        all: impl FnOnce(&mut dyn FnMut(&str) -> Result<Option<Table>, Error>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let _opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.read_only {
            let mut txn = self.begin_write()?;
            let opened = all(&mut |name| txn.open_table(name, None))?;
            txn.commit()?;
            return Ok(opened);
        }
        let txn = ReadTxn::begin_bare(self.as_ptr())?;
        // SAFETY: the transaction was begun above, and lives until after this call. The lock `opening`
        // upholds invariant 5.
        let opened = all(&mut |name| unsafe { open_in(txn, name, 0) });
        // SAFETY: the transaction was begun above, and is committed or aborted exactly once. The commit of a
        // read transaction keeps the tables it opened, and nothing else.
        unsafe {
            match &opened {
                Ok(_) => Error::check(ffi::mdb_txn_commit(txn))?,
                Err(_) => ffi::mdb_txn_abort(txn),
            }
        }
        opened
    }

    /// Frees the slots of readers whose processes are dead; returns their number.
    pub(crate) fn clear_stale_readers(&self) -> Result<u32, Error> {
        let mut dead: c_int = 0;
        // SAFETY: the environment is open (invariant 1: `self` lives); LMDB stores the result in
        // `dead`.
        Error::check(unsafe { ffi::mdb_reader_check(self.as_ptr(), &mut dead) })?;
        Ok(dead.max(0) as u32)
    }

    pub(crate) fn sync(&self) -> Result<(), Error> {
        // SAFETY: the environment is open (invariant 1: `self` lives).
        Error::check(unsafe { ffi::mdb_env_sync(self.as_ptr(), 1) })
    }

    /// Writes a copy of the last commit into the file; without free pages, if `compact`.
    pub(crate) fn copy_to(&self, file: &File, compact: bool) -> Result<(), Error> {
        let flags: c_uint = if compact { ffi::MDB_CP_COMPACT } else { 0 };
        #[cfg(unix)]
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(file);
        #[cfg(windows)]
        let descriptor = std::os::windows::io::AsRawHandle::as_raw_handle(file).cast();
        // SAFETY: the environment is open (invariant 1: `self` lives), and `file` is open for the
        // length of the call.
        Error::check(unsafe { ffi::mdb_env_copyfd2(self.as_ptr(), descriptor, flags) })
    }

    pub(crate) fn map_bytes(&self) -> u64 {
        self.info().map_or(0, |info| info.me_mapsize as u64)
    }

    pub(crate) fn last_txn(&self) -> u64 {
        self.info().map_or(0, |info| info.me_last_txnid as u64)
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        let pages = self.info().map_or(0, |info| info.me_last_pgno as u64 + 1);
        pages * self.page_bytes()
    }

    /// Returns the number of reader slots taken, here and by other processes.
    pub(crate) fn readers(&self) -> u32 {
        self.info().map_or(0, |info| info.me_numreaders)
    }

    /// Returns the commits read by the transactions in progress, here and in other processes.
    pub(crate) fn reader_txns(&self) -> Result<Vec<u64>, Error> {
        /// Parses a line with process, thread and commit; other lines are headings, or idle slots.
        unsafe extern "C" fn line(line: *const c_char, txns: *mut c_void) -> c_int {
            // SAFETY: LMDB passes text that ends in a zero byte, and the pointer to `txns` from the
            // call below, which has no other user meanwhile.
            let (line, txns) = unsafe { (CStr::from_ptr(line), &mut *txns.cast::<Vec<u64>>()) };
            let txn = line.to_str().ok().and_then(|line| line.split_whitespace().nth(2));
            txns.extend(txn.and_then(|txn| txn.parse::<u64>().ok()));
            0
        }
        let mut txns = Vec::<u64>::new();
        // SAFETY: the environment is open (invariant 1: `self` lives); `line` is called only before
        // this call returns, with the pointer to `txns`.
        let code = unsafe {
            ffi::mdb_reader_list(self.as_ptr(), Some(line), (&raw mut txns).cast::<c_void>())
        };
        // The call has no error of the engine but for an environment that is not open.
        if code < 0 { Err(Error::Other("the readers cannot be listed".into())) } else { Ok(txns) }
    }

    pub(crate) fn page_bytes(&self) -> u64 {
        let mut stat = MaybeUninit::<ffi::MDB_stat>::zeroed();
        // SAFETY: the environment is open (invariant 1: `self` lives); LMDB fills in plain
        // integers, for which zero is valid.
        let stat = unsafe {
            ffi::mdb_env_stat(self.as_ptr(), stat.as_mut_ptr());
            stat.assume_init()
        };
        u64::from(stat.ms_psize)
    }

    fn info(&self) -> Option<ffi::MDB_envinfo> {
        let mut info = MaybeUninit::<ffi::MDB_envinfo>::zeroed();
        // SAFETY: the environment is open (invariant 1: `self` lives); LMDB fills in integers and a
        // pointer that is never dereferenced.
        unsafe {
            let code = ffi::mdb_env_info(self.as_ptr(), info.as_mut_ptr());
            (code == ffi::MDB_SUCCESS).then(|| info.assume_init())
        }
    }

    /// Makes pools drop idle transactions from here on.
    pub(crate) fn retire(&self) {
        // Release: a thread that sees the flag under a pool's lock also sees that the pool was
        // emptied under that lock, or empties it itself (pairs with `is_retired`).
        self.retired.store(true, Ordering::Release);
    }

    pub(crate) fn is_retired(&self) -> bool {
        // Acquire: pairs with the store in `retire`.
        self.retired.load(Ordering::Acquire)
    }
}

impl Drop for Env {
    fn drop(&mut self) {
        // SAFETY: no transaction is left (invariant 1). The environment was created by
        // `mdb_env_create`, and is closed once.
        unsafe { ffi::mdb_env_close(self.env.as_ptr()) }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Make {
    pub(crate) duplicates: bool,
}

/// Smallest map that is tried after a larger map failed.
const MAP_BYTES_LEAST: usize = 64 << 20;

/// Returns the limit on the length of a file of this process.
#[cfg(unix)]
pub(crate) fn file_bytes_max() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Fsize).current
}

/// Returns `None`: this system has no such limit.
#[cfg(not(unix))]
pub(crate) fn file_bytes_max() -> Option<u64> {
    None
}

/// Returns the address space that a limit of this process leaves, in bytes.
#[cfg(unix)]
fn address_bytes_left() -> Option<usize> {
    use rustix::process::{Resource, getrlimit};
    let limit = usize::try_from(getrlimit(Resource::As).current?).ok()?;
    // On Linux, the first number is the size of the process in pages.
    let taken = std::fs::read_to_string("/proc/self/statm").ok();
    let pages = taken.and_then(|taken| taken.split_whitespace().next()?.parse::<usize>().ok());
    Some(limit.saturating_sub(pages.unwrap_or(0) * rustix::param::page_size()))
}

/// Returns `None`: this system has no such limit.
#[cfg(not(unix))]
fn address_bytes_left() -> Option<usize> {
    None
}

/// Opens a table in a transaction.
///
/// # Safety
///
/// The transaction is alive and has no other user; see invariant 5.
pub(super) unsafe fn open_in(
    txn: *mut ffi::MDB_txn,
    name: &str,
    flags: c_uint,
) -> Result<Option<Table>, Error> {
    let name = CString::new(name).map_err(|_| Error::Incompatible)?;
    let mut table = 0;
    // SAFETY: the caller guarantees the transaction; the name ends in a zero byte.
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
