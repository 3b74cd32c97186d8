//! [`Reserve`]: a file that keeps room on the disk for the changes that make room.
//!
//! ```text
//! held ──a deletion finds the disk full: the file is removed──▶ released
//!   ▲                                                              │
//!   └──────────the file is made again, before the next put─────────┘
//! ```
//! LMDB copies the pages on the way to an entry before it frees the old ones, so on a full disk a deletion
//! may find no page for the copies. Then it gets the blocks of this file. Without the file, only deletions go,
//! or a put that finds as many free pages in the data file ([`Environment::keeps_reserve`]).
//!
//! [`Environment::keeps_reserve`]: crate::disk::environment::Environment::keeps_reserve

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::log::files::Files;

const RESERVE: &str = "reserve";
/// Share of the map that is kept for deletions, and the bounds of this room. A deletion anywhere copies up to
/// four pages, and LMDB some of its list of free pages for each commit.
const SHARE: u64 = 16;
const BYTES_MIN: u64 = 64 << 10;
const BYTES_MAX: u64 = 1 << 20;

/// Returns the room that is kept for deletions in a map of this size, in bytes.
pub(crate) fn bytes_of(map_bytes: u64) -> u64 {
    (map_bytes / SHARE).clamp(BYTES_MIN, BYTES_MAX)
}

/// File that keeps room on the disk. There is none where the free space of the disk is not known; such a
/// reserve is neither held nor missed.
#[derive(Debug)]
pub(crate) struct Reserve {
    files: Arc<dyn Files>,
    path: PathBuf,
    bytes: u64,
    is_known: bool,
    /// Relaxed accesses: only the thread that holds the log asks and changes it.
    is_held: AtomicBool,
}

impl Reserve {
    /// Makes the file, or finds that of an earlier opening. The first put tries again if there is no room.
    pub(crate) fn hold(files: Arc<dyn Files>, directory: &Path, map_bytes: u64) -> Reserve {
        let is_known = files.free_bytes(directory).is_some();
        let (path, bytes) = (directory.join(RESERVE), bytes_of(map_bytes));
        let is_held = AtomicBool::new(false);
        let reserve = Reserve { files, path, bytes, is_known, is_held };
        reserve.hold_again();
        reserve
    }

    /// Makes the file again if it was released; returns whether nothing is missing.
    pub(crate) fn hold_again(&self) -> bool {
        if !self.is_known || self.is_held.load(Ordering::Relaxed) {
            return true;
        }
        let is_held = self.make().is_ok();
        if !is_held {
            // The blocks that it got are of use to others.
            let _ = self.files.remove(&self.path);
        }
        self.is_held.store(is_held, Ordering::Relaxed);
        is_held
    }

    fn make(&self) -> io::Result<()> {
        if self.files.length(&self.path).is_ok_and(|length| length == self.bytes) {
            return Ok(());
        }
        self.files.create(&self.path)?.allocate(self.bytes)
    }

    /// Gives the room to the system; returns whether there was any.
    pub(crate) fn release(&self) -> bool {
        self.is_held.swap(false, Ordering::Relaxed) && self.files.remove(&self.path).is_ok()
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::log::files;

    #[test]
    fn a_reserve_is_held_released_and_held_again() {
        let directory = tempfile::tempdir().unwrap();
        let hold = || Reserve::hold(files::system(), directory.path(), 1 << 40);
        let path = directory.path().join(RESERVE);
        let reserve = hold();
        assert_eq!(path.metadata().unwrap().len(), BYTES_MAX);
        assert!(reserve.release() && !path.exists() && !reserve.release());
        assert!(reserve.hold_again() && reserve.hold_again() && path.exists());
        // A file that an earlier opening left incomplete.
        std::fs::write(&path, [1]).unwrap();
        assert!(hold().hold_again());
        assert_eq!(path.metadata().unwrap().len(), BYTES_MAX);
        // A directory that is in the way, or gone: deletions have no room of their own.
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        let reserve = hold();
        assert!(!reserve.hold_again() && !reserve.release());
    }
}
