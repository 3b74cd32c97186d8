//! An ordered key-value store on disk for many concurrent writers.
//!
//! LMDB, a memory-mapped B+tree with any number of readers and a single writer, holds the data as
//! of the last checkpoint. A log holds the changes since then, and tables in memory make them
//! visible. The single writer becomes group commit: ten thousand processes that each need a small
//! durable write cost a handful of disk flushes instead of ten thousand.
//!
//! ```text
//!  write(Batch) ──► bounded queue ──► writer thread ──► log: one record, one flush
//!      │                                                 │
//!      └── Ticket (a future) ◄── woken once durable ── memory ── checkpoint thread ──► LMDB
//!                                                        ▲                               ▲
//!  snapshot() ──► Snapshot: a frozen, zero-copy view of ─┴───────────────────────────────┘
//! ```
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
//! - A [`Ticket`] resolves to `Ok` only after its batch is flushed to the disk, unless the store
//!   was opened as [volatile](Durability::Volatile).
//! - A [`Batch`] is present as a whole or not at all, after any crash.
//! - [`Store::write`] never blocks on the disk: a full queue hands the batch back.
//! - When a write times out, it is either cancelled or reported as in progress; the outcome is
//!   never guessed.
//! - A batch that cannot be stored is refused before it is queued, so it cannot make the batches of
//!   the same commit fail.
//! - A data directory has at most one store open for writing, in this process or any other.
//! - Every value is stored with a checksum, which covers its key too and is verified on each read,
//!   unless the database was created [without](DatabaseOptions::without_checksums) checksums or
//!   holds [several values](DatabaseOptions::duplicates) under a key.
//! - After a commit whose outcome is unknown, the store recovers by itself.
//! - Readers never see a write that is not durable, unless the store is volatile. A store that was
//!   killed and is opened [read-only](Options::read_only) is the exception: it may show a last
//!   group whose flush had not ended.
//! - Taking and reading a snapshot never waits for a write, and writes never wait for a reader.
//!   Writes wait for a checkpoint if the [memory for changes](Options::checkpoint_bytes) is full.
//! - Once a ticket has resolved, every later read sees its write (external consistency).
//! - A new data file gets its name only when it is complete. From then on it is complete together
//!   with the directory `log` beside it. So copy both, of a store that no process writes, or make a
//!   [`backup`](Store::backup).
//! - A data file and a log that do not belong together are refused, and so is a log that is cut or
//!   damaged before its mark. The mark says how far the log goes; after a power failure it may be
//!   too low.
//! - [`Store::check`], and opening a store with [`Options::check`], detect a damaged data file
//!   before the engine reads it. The engine itself trusts its file.
//!
//! # Where to look
//!
//! | Task | Start here |
//! |---|---|
//! | a write that is durable when its ticket resolves | [`Store::write`], [`Batch`], [`Ticket`] |
//! | many writes in a row that build on each other, without a wait for each | [`Store::submit`], [`Store::settled`] |
//! | frequent reads from many threads | [`Store::reader`] |
//! | a consistent view of the whole store | [`Store::snapshot`], [`Snapshot::range`], [`Cursor`] |
//! | types instead of bytes, several values under a key | [`Store::database_with`], [`Codec`] |
//! | reading and writing in one transaction | [`Store::update`] |
//! | many sorted entries at once | [`Store::load`], [`Database::load`] |
//! | keys that are paths | [`Snapshot::children`], [`Snapshot::matching`] |
//! | all entries of a store that is being written | [`Store::scan`] |
//! | backup, restoring a moment | [`Store::backup`], [`Store::restore`] |
//! | what is left of a damaged store | [`Store::salvage`] |
//! | integrity check, statistics | [`Store::verify`], [`Store::stat`] |
//! | coming from elmdb, or from plain LMDB | [`elmdb`], [`Store::import`] |
//!
//! The crate depends on no processes and no async runtime: a ticket is a plain future.

mod checkpoint;
mod codec;
mod database;
mod disk;
mod error;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod heap;
mod import;
mod log;
mod memtable;
mod options;
mod platform;
mod read;
mod restore;
mod salvage;
#[cfg(feature = "sim")]
pub mod sim;
mod store;
mod write;

#[doc = include_str!("elmdb.md")]
pub mod elmdb {}

// A store: opening it, and errors.
pub use crate::error::{
    DatabaseError, LoadError, LoadFailure, OpenError, ReadError, Rejection, UpdateError, WriteError,
};
pub use crate::import::{ImportError, Imported};
pub use crate::options::{Durability, Options, Recovery};
pub use crate::store::{DatabaseStat, Stat, Store};

// Writing.
pub use crate::write::batch::{Batch, Change};
pub use crate::write::queue::QueueRoom;
pub use crate::write::submission::{CommitFailure, Outcomes, Settled, Submission, SubmitError};
pub use crate::write::ticket::{Cancel, Ticket};
pub use crate::write::update::{Update, Updating};

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

// Maintenance of the files.
pub use crate::disk::pages::CheckReport;
pub use crate::restore::{RestoreError, Restored, Until};
pub use crate::salvage::{Loss, SalvageError, Salvaged, SalvagedDatabase};

/// Maximum length of a key, in bytes; the minimum is one byte. Also the maximum length of a value
/// in a database with several values under a key.
pub const KEY_BYTES_MAX: usize = 511;

/// Maximum number of named databases of a store, whatever its options say.
pub const DATABASES_MAX: u32 = 64 << 10;

/// Maximum length of a value, in bytes. A value is stored in consecutive pages, so finding room for
/// a much longer value would be slow in a fragmented file; split such a value over several keys.
pub const VALUE_BYTES_MAX: usize = 16 << 20;

#[cfg(test)]
mod tests {
    /// The page's program runs as a documentation test, so every function it calls exists.
    #[test]
    fn the_program_on_the_page_for_elmdb_calls_every_function_the_page_promises() {
        let page = include_str!("elmdb.md");
        let (tables, program) = page.split_once("```rust").unwrap();
        let mut promised = 0;
        for row in tables.lines().filter(|line| line.starts_with('|')) {
            let here = row.split('|').nth(2).unwrap();
            for link in here.split("](crate::").skip(1) {
                let path = link.split(')').next().unwrap();
                let name = path.rsplit("::").next().unwrap();
                // Types begin with a capital and are only linked; functions are called.
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
