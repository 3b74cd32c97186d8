//! [`DirectoryLock`]: the claim of one open store on its data directory.
//!
//! The claim is an operating-system lock on the file `LOCK` inside the directory. It belongs to
//! the open file, not to the path, so it holds against aliases of the directory and against a
//! second open in the same process, and it vanishes with the process however that ends.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::Path;

use crate::OpenError;

/// The name of the lock file within the data directory.
const FILE_NAME: &str = "LOCK";

/// Exclusive ownership of a data directory, until dropped.
#[derive(Debug)]
pub(crate) struct DirectoryLock {
    file: File,
}

impl DirectoryLock {
    /// Claims `directory`, which must exist.
    pub(crate) fn acquire(directory: &Path) -> Result<DirectoryLock, OpenError> {
        let io_error = |source: io::Error| OpenError::Io { path: directory.into(), source };
        let path = directory.join(FILE_NAME);
        // The content is never looked at: a left-over file from a crash is as good as a new one.
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(io_error)?;
        match file.try_lock() {
            Ok(()) => Ok(DirectoryLock { file }),
            Err(TryLockError::WouldBlock) => Err(OpenError::InUse { path: directory.into() }),
            Err(TryLockError::Error(source)) => Err(io_error(source)),
        }
    }
}

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        // Closing alone would leave the lock with a copy of the descriptor that a child process
        // may hold between its fork and its exec. If this fails, closing is all that is left.
        let _ = self.file.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_excludes_others_until_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let first = DirectoryLock::acquire(directory.path()).unwrap();
        let second = DirectoryLock::acquire(directory.path());
        assert!(matches!(second, Err(OpenError::InUse { .. })));
        drop(first);
        DirectoryLock::acquire(directory.path()).unwrap();
    }
}
