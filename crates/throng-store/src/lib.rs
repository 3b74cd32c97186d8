//! An ordered key-value store on disk that many concurrent writers share.
//!
//! The engine is LMDB: a memory-mapped B+tree with any number of readers and one writer. This
//! crate turns the one writer into group commit, so that ten thousand processes that each want one
//! small durable write cost a handful of disk flushes instead of ten thousand.
//!
//! ```text
//!  write(Batch) ──► bounded queue ──► writer thread: drain all, sort by key, one flush of the
//!      │                                             journal; apply, commit when asked
//!      └── Ticket (a future) ◄──────────────── woken once its batch is durable ──┘
//!  snapshot() ──► Snapshot: a frozen, zero-copy view, which nobody waits for
//! ```
//!
//! A small write is durable before it is committed in the engine, which several groups of them share:
//! some ten milliseconds later, and at once where somebody is to see it.
//!
//! ```
//! use throng_store::{Batch, Store};
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("data");
//! let store = Store::open(&path)?;
//! store.write(Batch::new().put("user/ada", "1815").put("user/alan", "1912")).wait()?;
//!
//! let snapshot = store.snapshot()?;
//! assert_eq!(snapshot.get(b"user/ada")?, Some(&b"1815"[..]));
//! let newest = snapshot.prefix(b"user/").next_back().transpose()?;
//! assert_eq!(newest, Some((&b"user/alan"[..], &b"1912"[..])));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Invariants
//!
//! - A [`Ticket`] resolves to `Ok` only after its batch is flushed to the disk, unless the store was
//!   opened as [volatile](Durability::Volatile).
//! - A [`Batch`] is all there or not there at all, after any crash.
//! - [`Store::write`] never blocks on the disk: a full queue hands the batch back.
//! - A write whose time is up is taken back, or said to be under way: never guessed at.
//! - What cannot be stored is refused before it is queued, so it cannot spoil the batches beside it.
//! - One open store per data directory, in this process or any other.
//! - Every value is stored under a checksum that covers its key too, and is checked on each read,
//!   except where a database was made [without](DatabaseOptions::without_checksums) or holds
//!   [several values](DatabaseOptions::duplicates) under a key.
//! - After a commit whose outcome is unknown, the store recovers by itself.
//! - Nobody sees what is not durable. All changes are flushed to a journal first; after a crash, the
//!   next opening to write applies those that the data file lacks.
//! - What a resolved ticket stood for is seen by everybody who may have heard of it, at once.
//! - A data file is whole from the moment it has its name on; after a crash, together with the
//!   journal beside it. Copy both, or make a [`backup`](Store::backup), which needs none.
//! - A damaged one is found by [`Store::check`] and by opening it with [`Options::check`], before the
//!   engine, which trusts it, comes to see it.
//!
//! # Where to look
//!
//! | for | see |
//! |---|---|
//! | one write that is durable when its ticket resolves | [`Store::write`], [`Batch`], [`Ticket`] |
//! | many readers, again and again | [`Store::reader`] |
//! | one moment's view of everything | [`Store::snapshot`], [`Snapshot::range`], [`Cursor`] |
//! | types instead of bytes, several values under a key | [`Store::database_with`], [`Codec`] |
//! | reading before writing, undisturbed | [`Store::update`] |
//! | keys that are paths | [`Snapshot::children`], [`Snapshot::matching`] |
//! | all entries of a store that is being written | [`Store::scan`] |
//! | a copy, a check, numbers | [`Store::backup`], [`Store::verify`], [`Store::stat`] |
//! | coming from elmdb | [`elmdb`] |
//!
//! The crate knows no processes and no async runtime: a ticket is a plain future.

mod codec;
mod database;
mod disk;
mod error;
mod options;
mod read;
mod store;
mod write;

#[doc = include_str!("elmdb.md")]
pub mod elmdb {}

// A store: how it is opened, what can go wrong.
pub use crate::error::{DatabaseError, OpenError, ReadError, Rejection, UpdateError, WriteError};
pub use crate::options::{Durability, Options};
pub use crate::store::{DatabaseStat, Stat, Store};

// Writing.
pub use crate::write::batch::{Batch, Change};
pub use crate::write::queue::QueueRoom;
pub use crate::write::ticket::{Cancel, Ticket};
pub use crate::write::update::{Update, Updating};
pub use crate::write::update_range::{UpdateCursor, UpdateRange};

// Reading.
pub use crate::read::children::{Child, Children, Matches};
pub use crate::read::cursor::Cursor;
pub use crate::read::range::Range;
pub use crate::read::reader::Reader;
pub use crate::read::scan::{Chunk, Entries, Scan};
pub use crate::read::snapshot::Snapshot;

// Databases with names and codecs.
pub use crate::codec::{Bytes, Codec, CodecError, I64, Str, U32, U64, U128, Unit};
pub use crate::database::{Database, DatabaseOptions};

// Looking after the files.
pub use crate::disk::pages::CheckReport;

/// The longest key, in bytes; the shortest has one byte. Also the longest of several values under
/// one key.
pub const KEY_BYTES_MAX: usize = 511;

/// The longest value, in bytes. A value is stored in consecutive pages, so much longer ones would
/// be slow to place in a file that has seen some use; split them over several keys.
pub const VALUE_BYTES_MAX: usize = 16 << 20;

#[cfg(test)]
mod tests {
    /// The page's program is run as a documentation test; so what it calls is there.
    #[test]
    fn whatever_the_page_for_elmdb_promises_its_program_calls() {
        let page = include_str!("elmdb.md");
        let (tables, program) = page.split_once("```rust").unwrap();
        let mut promised = 0;
        for row in tables.lines().filter(|line| line.starts_with('|')) {
            let here = row.split('|').nth(2).unwrap();
            for link in here.split("](crate::").skip(1) {
                let path = link.split(')').next().unwrap();
                let name = path.rsplit("::").next().unwrap();
                // Types begin with a capital, and are linked; functions are called.
                if name.starts_with(char::is_lowercase) {
                    assert!(
                        program.contains(&format!("{name}("))
                            || program.contains(&format!("{name}::<")),
                        "{path} is not called"
                    );
                    promised += 1;
                }
            }
        }
        assert!(promised > 40, "{promised}");
    }
}
