//! [`ReaderTable`]: LMDB's table of readers, which all processes must share.
//!
//! LMDB uses a page again once no reader registered in `lock.mdb` can see it. That file may be removed or
//! replaced under a process, and the next one would begin another table: then the one that writes would
//! overwrite what the other reads. So each process holds a shared lock on `data.mdb`, which nobody can
//! remove apart from the data, while it has LMDB open; and a table that no process uses, beside a data file
//! that one does, is refused.
//!
//! | `lock.mdb` is | `data.mdb` is | outcome |
//! |---|---|---|
//! | in use by another process | | its table is shared |
//! | not in use | not in use by another process | a table is begun |
//! | not in use | in use by another process | refused, unless that is about to begin or to end |
//! | not writable, in a process that reads | claimed by no writer | LMDB is opened without a table, and writers are excluded |
//! | not writable, in a process that reads | claimed by a writer | refused |
//!
//! Where locks are not those of Unix, a data file cannot be locked beside its readers, and an open `lock.mdb`
//! cannot be replaced, so nothing is checked.

#[cfg(unix)]
use std::fs::{File, TryLockError};
use std::io;
#[cfg(unix)]
use std::path::Path;
#[cfg(unix)]
use std::time::{Duration, Instant};

#[cfg(unix)]
use crate::disk::claim::{Claim, Exclusion, unlock};
#[cfg(unix)]
use crate::disk::{DATA_FILE, private};

/// Name that LMDB gives to its table of readers.
#[cfg(unix)]
const TABLE_FILE: &str = "lock.mdb";

/// Time for which another process may be about to begin or to end its use of LMDB.
#[cfg(unix)]
const PATIENCE: Duration = Duration::from_secs(1);
#[cfg(unix)]
const PAUSE: Duration = Duration::from_millis(5);

/// The right to open LMDB's files in a claimed directory, until dropped.
#[derive(Debug, Default)]
pub(crate) struct ReaderTable {
    /// Locked data file; `None` in a directory without one.
    #[cfg(unix)]
    data: Option<File>,
    /// Keeps writers out, because this process cannot be registered as a reader.
    alone: Option<Exclusion>,
}

impl ReaderTable {
    /// Joins the processes that use the data file of a claimed directory.
    #[cfg(unix)]
    pub(crate) fn join(claim: &Claim) -> io::Result<ReaderTable> {
        let table = claim.path().join(TABLE_FILE);
        let mut alone = None;
        if claim.is_read_only() && !can_be_registered(&table)? {
            alone = Some(claim.exclude_writers()?.ok_or_else(unregistered)?);
        }
        let data = match File::open(claim.path().join(DATA_FILE)) {
            // A new store, in a draft that no other process opens.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !claim.is_read_only() => {
                return Ok(ReaderTable { data: None, alone });
            }
            data => data?,
        };
        let began = Instant::now();
        loop {
            let is_only_user = has_locked(data.try_lock())?;
            if (is_only_user || alone.is_some() || is_in_use(&table)?)
                && has_locked(data.try_lock_shared())?
            {
                return Ok(ReaderTable { data: Some(data), alone });
            }
            if began.elapsed() > PATIENCE {
                return Err(replaced());
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Joins the processes that use the data file of a claimed directory.
    #[cfg(not(unix))]
    pub(crate) fn join(_: &Claim) -> io::Result<ReaderTable> {
        Ok(ReaderTable::default())
    }

    /// Whether LMDB may register this process in its table.
    pub(crate) fn is_shared(&self) -> bool {
        self.alone.is_none()
    }
}

#[cfg(unix)]
impl Drop for ReaderTable {
    fn drop(&mut self) {
        self.data.iter().for_each(unlock);
    }
}

#[cfg(unix)]
fn has_locked(outcome: Result<(), TryLockError>) -> io::Result<bool> {
    match outcome {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Whether this process may write the table, which is made if it is missing.
#[cfg(unix)]
fn can_be_registered(table: &Path) -> io::Result<bool> {
    match private::open_file(table) {
        Ok(_) => Ok(true),
        Err(error) => match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Ok(false),
            _ => Err(error),
        },
    }
}

/// Whether another process has the table open by LMDB, which then holds a lock on it.
///
/// Closing the file ends the locks that this process has on it: the caller has no environment open there.
#[cfg(unix)]
fn is_in_use(table: &Path) -> io::Result<bool> {
    use rustix::process::{Flock, FlockType, fcntl_getlk};
    match File::open(table) {
        Ok(file) => Ok(fcntl_getlk(&file, &Flock::from(FlockType::WriteLock))?.is_some()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(unix)]
fn unregistered() -> io::Error {
    let reason = "another process writes there, and only a process that may write lock.mdb can be registered \
                  as a reader beside it; grant that permission, or close the other store";
    io::Error::new(io::ErrorKind::PermissionDenied, reason)
}

#[cfg(unix)]
fn replaced() -> io::Error {
    io::Error::other(
        "another process has the store open, and lock.mdb, in which its readers are registered, was removed or \
         replaced; end that process first",
    )
}
