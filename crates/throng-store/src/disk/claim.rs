//! [`Claim`]: the claim of an open store on its data directory.
//!
//! A store that writes holds an operating-system lock on the file `LOCK` inside the directory. The
//! lock belongs to the open file, not to the path, so it holds against aliases of the directory and
//! against a second open in the same process, and it vanishes with the process however that ends.
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
use crate::disk::private;

/// Name of the lock file within the data directory.
pub(crate) const FILE_NAME: &str = "LOCK";

/// Number of times that a claim is tried again, and the time between two attempts.
const ATTEMPTS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(2);

/// Directories that this process has open.
static OPEN: Mutex<BTreeSet<Identity>> = Mutex::new(BTreeSet::new());

/// Ownership of a data directory, or the right to read it, until dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    /// Canonical path of the directory.
    path: PathBuf,
    /// Lock of a writer.
    file: Option<File>,
    /// Lock of a reader that excludes writers.
    alone: Option<File>,
    identity: Identity,
}

impl Claim {
    /// Claims `directory`, which must exist, for writing.
    pub(crate) fn to_write(directory: &Path) -> Result<Claim, OpenError> {
        let refused = |source| OpenError::from_io(source, directory);
        let mut claim = Claim::to_read(directory)?;
        // The file has no content, so a leftover file serves as well.
        let file = private::open_file(&claim.path.join(FILE_NAME)).map_err(refused)?;
        for attempt in 0.. {
            match file.try_lock() {
                Ok(()) => break,
                // A process that begins to read may hold the lock for a moment.
                Err(TryLockError::WouldBlock) if attempt < ATTEMPTS => thread::sleep(PAUSE),
                Err(TryLockError::WouldBlock) => {
                    return Err(OpenError::InUse { path: directory.into() });
                }
                Err(TryLockError::Error(source)) => return Err(refused(source)),
            }
        }
        claim.file = Some(file);
        Ok(claim)
    }

    /// Claims `directory`, which must exist, for reading.
    pub(crate) fn to_read(directory: &Path) -> Result<Claim, OpenError> {
        let refused = |source| OpenError::Io { path: directory.into(), source };
        let path = fs::canonicalize(directory).map_err(refused)?;
        let identity = identity(&path).map_err(refused)?;
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
        Ok(Claim { path, file: None, alone: None, identity })
    }

    /// Claims `directory`, which must exist, for reading, and excludes writers meanwhile.
    pub(crate) fn to_read_alone(directory: &Path) -> Result<Claim, OpenError> {
        let mut claim = Claim::to_read(directory)?;
        // If the file is missing or may not be opened, no writer has claimed the directory.
        if let Ok(file) = File::open(claim.path.join(FILE_NAME)) {
            match file.try_lock_shared() {
                Ok(()) => claim.alone = Some(file),
                Err(TryLockError::WouldBlock) => {
                    return Err(OpenError::InUse { path: directory.into() });
                }
                Err(TryLockError::Error(source)) => {
                    return Err(OpenError::Io { path: directory.into(), source });
                }
            }
        }
        Ok(claim)
    }

    /// Whether a store has claimed the directory for writing.
    pub(crate) fn is_written(directory: &Path) -> io::Result<bool> {
        let file = match File::open(directory.join(FILE_NAME)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            file => file?,
        };
        match file.try_lock_shared() {
            Ok(()) => file.unlock().map(|()| false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Admits writers again, for a claim that excludes them.
    pub(crate) fn share(&mut self) {
        // If this fails, closing the file must suffice.
        let _ = self.alone.take().map(|file| file.unlock());
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.file.is_none()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Closing alone would leave the lock with a copy of the descriptor that a child process may
        // hold between its fork and its exec. If this fails, closing must suffice.
        let _ = self.file.take().map(|file| file.unlock());
        self.share();
        open().remove(&self.identity);
    }
}

fn open() -> MutexGuard<'static, BTreeSet<Identity>> {
    // Inserting and removing leave the set intact even if they panic.
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Identity of a directory, independent of its path: device and inode.
#[cfg(unix)]
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Identity(u64, u64);

#[cfg(unix)]
fn identity(path: &Path) -> io::Result<Identity> {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path).map(|metadata| Identity(metadata.dev(), metadata.ino()))
}

/// Identity of a directory: its canonical path.
#[cfg(not(unix))]
type Identity = PathBuf;

#[cfg(not(unix))]
fn identity(path: &Path) -> io::Result<Identity> {
    Ok(path.into())
}

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
