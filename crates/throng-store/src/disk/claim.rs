//! [`Claim`]: the claim of an open store on its data directory.
//!
//! A store that writes holds an operating-system lock on the directory itself, which nobody can remove
//! apart from the data, as a lock file could be. The lock belongs to the open directory, not to its path,
//! so it holds against aliases of the directory and against a second open in the same process, and it
//! vanishes with the process however that ends.
//!
//! A claim keeps the directory open, and its [path](Claim::path) leads through the open directory: a
//! directory that is renamed keeps its store, and another one under the old name is left alone. That path
//! needs Linux and a mounted `/proc`. Without them it is the canonical path, and a directory that was
//! renamed is noticed before it is written: each LMDB transaction and each new segment first checks that
//! the names lead to the open files.
//!
//! A read-only store may share a directory with a store that writes in another process, which the
//! engine supports. Within a process it may not: the engine's own locks belong to the process, and
//! closing an environment would release the locks of the other. So each process also knows which
//! directories it has open, identified by device and inode and not by their paths.

use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::OpenError;
use crate::disk::identity::Identity;

/// Number of times that a claim is tried again, and the time between two attempts.
const ATTEMPTS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(2);

static OPEN: Mutex<BTreeSet<Identity>> = Mutex::new(BTreeSet::new());

/// Ownership of a data directory, or the right to read it, until dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    /// The open directory, with the lock of a writer.
    directory: File,
    path: PathBuf,
    shown: PathBuf,
    is_read_only: bool,
    /// Lock of a reader that excludes writers.
    alone: Option<Exclusion>,
    identity: Identity,
}

/// Keeps writers from claiming a directory until dropped.
#[derive(Debug)]
pub(crate) struct Exclusion(File);

impl Claim {
    /// Claims `directory`, which must exist, for writing.
    pub(crate) fn to_write(directory: &Path) -> Result<Claim, OpenError> {
        let refused = |source| OpenError::from_io(source, directory);
        let claim = Claim::new(directory, false).map_err(|error| match error {
            OpenError::Io { source, .. } => refused(source),
            other => other,
        })?;
        for attempt in 0.. {
            match claim.directory.try_lock() {
                Ok(()) => break,
                // A process that begins to read may hold the lock for a moment.
                Err(TryLockError::WouldBlock) if attempt < ATTEMPTS => thread::sleep(PAUSE),
                Err(TryLockError::WouldBlock) => {
                    return Err(OpenError::InUse { path: directory.into() });
                }
                Err(TryLockError::Error(source)) => return Err(refused(source)),
            }
        }
        // Another directory may have got the name before the lock was held.
        if Identity::at(directory).map_err(refused)? != claim.identity {
            return Err(OpenError::InUse { path: directory.into() });
        }
        Ok(claim)
    }

    /// Claims `directory`, which must exist, for reading.
    pub(crate) fn to_read(directory: &Path) -> Result<Claim, OpenError> {
        Claim::new(directory, true)
    }

    fn new(directory: &Path, is_read_only: bool) -> Result<Claim, OpenError> {
        let refused = |source| OpenError::Io { path: directory.into(), source };
        let canonical = fs::canonicalize(directory).map_err(refused)?;
        let open_directory = open_directory(&canonical).map_err(refused)?;
        let identity = Identity::of(&open_directory, &canonical).map_err(refused)?;
        let path = path_through(&open_directory, &identity).unwrap_or(canonical);
        let shown = directory.into();
        for attempt in 0.. {
            if open().insert(identity.clone()) {
                break;
            }
            // Another thread may be dropping the last handle of the store.
            if attempt == ATTEMPTS {
                return Err(OpenError::InUse { path: directory.into() });
            }
            thread::sleep(PAUSE);
        }
        Ok(Claim { directory: open_directory, path, shown, is_read_only, alone: None, identity })
    }

    /// Claims `directory`, which must exist, for reading, and excludes writers meanwhile.
    pub(crate) fn to_read_alone(directory: &Path) -> Result<Claim, OpenError> {
        let mut claim = Claim::to_read(directory)?;
        let refused = |source| OpenError::Io { path: directory.into(), source };
        claim.alone = claim.exclude_writers().map_err(refused)?;
        match claim.alone {
            Some(_) => Ok(claim),
            None => Err(OpenError::InUse { path: directory.into() }),
        }
    }

    /// Keeps writers out, for a claim to read; `None` if a writer has the store.
    pub(crate) fn exclude_writers(&self) -> io::Result<Option<Exclusion>> {
        // Each opening of a directory has a lock of its own.
        let directory = open_directory(&self.path)?;
        match directory.try_lock_shared() {
            Ok(()) => Ok(Some(Exclusion(directory))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Whether a store has claimed the directory for writing; asked by a claim to read.
    pub(crate) fn is_written(&self) -> io::Result<bool> {
        self.exclude_writers().map(|excluded| excluded.is_none())
    }

    /// Admits writers again, for a claim that excludes them.
    pub(crate) fn share(&mut self) {
        self.alone = None;
    }

    /// Path of the directory, which leads to it as long as the claim lives, even if the directory is renamed.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Path for messages, by which the directory was claimed.
    pub(crate) fn shown(&self) -> &Path {
        &self.shown
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.is_read_only
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.is_read_only {
            unlock(&self.directory);
        }
        open().remove(&self.identity);
    }
}

impl Drop for Exclusion {
    fn drop(&mut self) {
        unlock(&self.0);
    }
}

/// Ends a lock before its file is closed: a child process may hold a copy of the descriptor between its fork
/// and its exec. If this fails, closing must suffice.
pub(crate) fn unlock(file: &File) {
    let _ = file.unlock();
}

fn open() -> MutexGuard<'static, BTreeSet<Identity>> {
    // Inserting and removing leave the set intact even if they panic.
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(unix)]
fn open_directory(path: &Path) -> io::Result<File> {
    File::open(path)
}

/// Opens the lock file of a directory, where directories cannot be locked.
#[cfg(not(unix))]
fn open_directory(path: &Path) -> io::Result<File> {
    crate::disk::private::open_file(&path.join("LOCK"))
}

/// Returns the path that leads through an open directory; `None` if the system has none.
#[cfg(target_os = "linux")]
fn path_through(directory: &File, identity: &Identity) -> Option<PathBuf> {
    let number = std::os::fd::AsRawFd::as_raw_fd(directory);
    let path = PathBuf::from(format!("{HANDLES}/{number}"));
    Identity::at(&path).is_ok_and(|found| found == *identity).then_some(path)
}

/// Returns `None`: this system has no such path.
#[cfg(not(target_os = "linux"))]
fn path_through(_: &File, _: &Identity) -> Option<PathBuf> {
    None
}

/// Directory of the open files of this process, by their numbers.
pub(crate) const HANDLES: &str = "/proc/self/fd";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_excludes_others_until_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let first = Claim::to_write(directory.path()).unwrap();
        for second in [Claim::to_write(directory.path()), Claim::to_read(directory.path())] {
            assert!(matches!(second, Err(OpenError::InUse { .. })));
        }
        drop(first);
        let reader = Claim::to_read(directory.path()).unwrap();
        assert!(reader.is_read_only());
        assert!(matches!(Claim::to_write(directory.path()), Err(OpenError::InUse { .. })));
        drop(reader);
        Claim::to_write(directory.path()).unwrap();
    }
}
