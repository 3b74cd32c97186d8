//! [`Pins`]: the commits that the journal holds in the data file, published to all processes.
//!
//! LMDB's table of readers does not distinguish the two readers of the journal (see `journal.rs`)
//! from snapshots. The writer therefore publishes the numbers of their commits in the file `LOCK`,
//! and a process that searches for the oldest snapshot leaves them out.
//!
//! | bytes | content                                                                    |
//! |-------|----------------------------------------------------------------------------|
//! | 0..8  | the commit of the last checkpoint, little endian                           |
//! | 8..16 | the commit of the checkpoint in progress, or 0                             |
//!
//! Only a number in [`Stat`](crate::Stat) depends on the pins: they are never flushed, errors are
//! ignored, and values left by a crash are overwritten when the store is opened for writing.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::disk::claim;
use crate::disk::journal::PINS;

/// The part of the lock file with the pinned commits; `None` for a reader.
#[derive(Debug)]
pub(crate) struct Pins(Option<File>);

type Commits = [u64; PINS as usize];

impl Pins {
    /// Creates the pins of a store that writes, in its lock file.
    pub(crate) fn new(file: Option<File>) -> Pins {
        Pins(file)
    }

    /// Publishes the commits that the journal holds.
    pub(crate) fn publish(&self, commits: Commits) {
        if let Some(file) = &self.0 {
            let bytes = commits.map(u64::to_le_bytes).concat();
            let _ = crate::disk::journal::write_at(file, &bytes, 0);
        }
    }

    /// Reads the commits that the writer of the store in `directory` holds, as far as they are
    /// known.
    pub(crate) fn read(directory: &Path) -> Commits {
        let mut bytes = [[0; 8]; PINS as usize];
        let read = File::open(directory.join(claim::FILE_NAME))
            .and_then(|mut file| file.read_exact(bytes.as_flattened_mut()));
        read.map_or([0; PINS as usize], |()| bytes.map(u64::from_le_bytes))
    }
}
