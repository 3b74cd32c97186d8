//! Room for changes in LMDB: in the map, on the disk, and in pages that are free.
//!
//! ```text
//!  0 ──────────── used ─────────────────────────── map_bytes
//!  │ pages, some free │ need, by an estimate │ reserve │
//! ```
//! The log takes a group if LMDB will have room above the pages that were ever used; LMDB takes one at once if it
//! has room together with its free pages. What makes room may use the [`Reserve`], and is not asked.

use std::sync::atomic::Ordering;

use super::Environment;
use crate::disk::lmdb::{self, Env};
use crate::disk::reserve::{self, Reserve};

/// Bytes and changes between two questions for room.
const ROOM_AHEAD: (usize, usize) = (64 << 10, 512);

impl Environment {
    /// Whether LMDB has room for everything in memory and these changes.
    pub(crate) fn has_room(&self, bytes: usize, changes: usize) -> bool {
        let memtables = self.view().memtables();
        let bytes = bytes + memtables.iter().map(|memtable| memtable.bytes()).sum::<usize>();
        let changes = changes + memtables[0].changes();
        let frozen = memtables.get(1).map_or(0, |frozen| frozen.changes());
        // Relaxed: only the writer asks.
        let [bytes_asked, changes_asked] = &self.room;
        if bytes <= bytes_asked.load(Ordering::Relaxed)
            && changes <= changes_asked.load(Ordering::Relaxed)
        {
            return true;
        }
        let Some(env) = self.env() else { return true };
        let has_room = |bytes, changes| {
            let need = room_for(bytes, [changes, frozen], &env);
            env.used_bytes().saturating_add(need) <= env.map_bytes()
                && !self.engine().lacks_room(need)
        };
        // Asked for a little more, so that not each group asks.
        let ahead = (bytes + ROOM_AHEAD.0, changes + ROOM_AHEAD.1);
        if has_room(ahead.0, ahead.1) {
            bytes_asked.store(ahead.0, Ordering::Relaxed);
            changes_asked.store(ahead.1, Ordering::Relaxed);
            return true;
        }
        has_room(bytes, changes)
    }

    /// Whether LMDB, which has everything that is in memory, can take these changes and still has the room that
    /// is kept for deletions: free pages, and the rest of the map as far as the disk has room for it. The caller
    /// holds the log.
    pub(crate) fn keeps_reserve(&self, bytes: usize, changes: usize) -> Result<bool, lmdb::Error> {
        let env = self.env().ok_or(lmdb::Error::Panic)?;
        let need = room_for(bytes, [changes, 0], &env);
        let mut rest = env.map_bytes().saturating_sub(env.used_bytes());
        if !self.holds_reserve() {
            rest = rest.min(self.engine().free_bytes().unwrap_or(0));
        }
        if need <= rest {
            return Ok(true);
        }
        let oldest = env.reader_txns()?.into_iter().fold(env.last_txn(), u64::min);
        let (txn, _) = self.readers.begin_reserved().map_err(|_| lmdb::Error::Panic)?;
        let pages = txn.free_pages(oldest);
        self.readers.end_reserved(txn);
        Ok(need <= rest + pages? * env.page_bytes())
    }

    /// Takes the room for deletions on the disk again if it was given away; returns whether it is there.
    pub(crate) fn holds_reserve(&self) -> bool {
        self.reserve.as_ref().is_none_or(Reserve::hold_again)
    }

    /// Gives the room that is kept for deletions on the disk; returns whether there was any.
    pub(crate) fn release_reserve(&self) -> bool {
        self.reserve.as_ref().is_some_and(Reserve::release)
    }
}

/// The greatest estimate of the room that the changes of the two memtables need in LMDB: their bytes twice,
/// since a value may leave a page half empty, and for each change the pages on the way to its leaf. No
/// checkpoint copies a page twice, but two of them may under a snapshot.
///
/// The room that deletions need, which take pages before they free any, is left free.
fn room_for(bytes: usize, changes: [usize; 2], env: &Env) -> u64 {
    const DEPTH: u64 = 4;
    let (page_bytes, used_bytes) = (env.page_bytes(), env.used_bytes());
    let copied = changes.map(|changes| (changes as u64 * DEPTH * page_bytes).min(used_bytes));
    let reserve = reserve::bytes_of(env.map_bytes());
    (2 * bytes as u64).saturating_add(copied[0] + copied[1]) + reserve
}
