//! [`Environment`]: the opened LMDB environment and the claim on its directory.
//!
//! The only file of this crate with unsafe code, for the one call that maps the data file.
//!
//! A data directory holds:
//!
//! | file       | content                                                        |
//! |------------|----------------------------------------------------------------|
//! | `LOCK`     | empty; locked while a store is open (see `lock.rs`)            |
//! | `data.mdb` | LMDB: the database `format` (see `format.rs`) and `entries`    |
//! | `lock.mdb` | LMDB's table of readers                                        |
//!
//! In `entries`, keys are the user's, values are records (see `record.rs`).

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use heed::types::Bytes;
use heed::{CompactionOption, Database, Env, EnvOpenOptions, RoTxn, RwTxn, WithoutTls};

use crate::error::io_error;
use crate::lock::DirectoryLock;
use crate::{OpenError, Options, ReadError, format};

/// The name the engine gives to its data file.
const DATA_FILE: &str = "data.mdb";

/// The table of the user's keys and values.
pub(crate) type Entries = Database<'static, Bytes, Bytes>;

/// An open environment. The fields are dropped in order: the map is closed before the claim ends.
#[derive(Debug)]
pub(crate) struct Environment {
    env: Env<WithoutTls>,
    entries: Entries,
    _claim: DirectoryLock,
}

impl Environment {
    /// Opens the environment in `directory`, making both if need be.
    pub(crate) fn open(directory: &Path, options: &Options) -> Result<Environment, OpenError> {
        let refused = |source| OpenError::Io { path: directory.into(), source };
        fs::create_dir_all(directory).map_err(refused)?;
        let claim = DirectoryLock::acquire(directory)?;
        let path: PathBuf = fs::canonicalize(directory).map_err(refused)?;
        let engine = |error| match error {
            // Someone in this process uses the engine around this crate.
            heed::Error::EnvAlreadyOpened => OpenError::InUse { path: directory.into() },
            error => refused(io_error(error)),
        };

        let mut open = EnvOpenOptions::new().read_txn_without_tls();
        open.map_size(options.map_bytes_rounded())
            .max_readers(options.snapshots_max)
            .max_dbs(format::DATABASES);
        // SAFETY: mapping a file is sound as long as nobody changes it behind the map's back. The
        // claim taken above keeps every other store out until after this environment is closed,
        // and the map is read-only (no WRITEMAP), so no stray write of ours can reach it. A user
        // who edits `data.mdb` by other means while it is open is beyond what a library can
        // prevent; `Store` documents it.
        let env = unsafe { open.open(&path) }.map_err(engine)?;

        // Slots of readers that were killed would pin old pages for ever.
        env.clear_stale_readers().map_err(engine)?;
        let entries = format::open_entries(&env, directory)?;
        sync_names(&path).map_err(refused)?;
        Ok(Environment { env, entries, _claim: claim })
    }

    pub(crate) fn entries(&self) -> &Entries {
        &self.entries
    }

    pub(crate) fn begin_write(&self) -> Result<RwTxn<'_>, heed::Error> {
        self.env.write_txn()
    }

    /// A read transaction that keeps the environment alive by itself.
    ///
    /// The caller keeps `self` alive as well, for the claim.
    pub(crate) fn begin_read(self: &Arc<Self>) -> Result<RoTxn<'static, WithoutTls>, ReadError> {
        let begin = || self.env.clone().static_read_txn();
        match begin() {
            // Another process may have died with slots in its hands; look once more after it.
            Err(heed::Error::Mdb(heed::MdbError::ReadersFull)) => {
                self.env.clear_stale_readers().map_err(ReadError::from_engine)?;
                begin().map_err(ReadError::from_engine)
            }
            other => other.map_err(ReadError::from_engine),
        }
    }

    /// Whether the engine has given up, reading included, until it is opened anew.
    pub(crate) fn has_broken_off(&self) -> bool {
        matches!(self.env.write_txn(), Err(heed::Error::Mdb(heed::MdbError::Panic)))
    }

    /// Copies the current state into a data file in `directory`, durably.
    pub(crate) fn copy_to(&self, directory: &Path) -> io::Result<()> {
        fs::create_dir_all(directory)?;
        let path = directory.join(DATA_FILE);
        let mut file = File::create_new(&path)?;
        let copied = self
            .env
            .copy_to_file(&mut file, CompactionOption::Enabled)
            .map_err(io_error)
            .and_then(|()| file.sync_all())
            .and_then(|()| sync_names(&fs::canonicalize(directory)?));
        if copied.is_err() {
            // Half a copy is worse than none; the error that matters is the one above.
            let _ = fs::remove_file(&path);
        }
        copied
    }

    /// The size of the data file, in bytes.
    pub(crate) fn file_bytes(&self) -> Result<u64, ReadError> {
        self.env.real_disk_size().map_err(ReadError::from_engine)
    }

    /// The size of the reserved map, in bytes.
    pub(crate) fn map_bytes(&self) -> u64 {
        self.env.info().map_size as u64
    }
}

/// An environment without a store around it, to put things into that no store would.
#[cfg(test)]
pub(crate) fn open_bare(directory: &Path) -> Env<WithoutTls> {
    let mut options = EnvOpenOptions::new().read_txn_without_tls();
    options.map_size(1 << 20).max_dbs(8);
    // SAFETY: as above; each test has a directory of its own, and no store in it.
    unsafe { options.open(directory) }.unwrap()
}

/// Makes the names of new files durable, in the directory and of the directory itself: the engine
/// flushes only what is inside the files.
#[cfg(unix)]
fn sync_names(directory: &Path) -> io::Result<()> {
    for directory in [Some(directory), directory.parent()].into_iter().flatten() {
        match File::open(directory).and_then(|directory| directory.sync_all()) {
            // A parent we may not look into was not made by us.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            other => other?,
        }
    }
    Ok(())
}

/// Where directories cannot be flushed, the file system does so by itself.
#[cfg(not(unix))]
fn sync_names(_: &Path) -> io::Result<()> {
    Ok(())
}
