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
//! use throng_store::{Batch, Store, Str, U64};
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("data");
//! let store = Store::open(&path)?;
//! let born = store.database::<Str, U64>("born")?;
//! store.write(Batch::new().put(&born, "ada", &1815).put(&born, "alan", &1912)).wait()?;
//!
//! let snapshot = store.snapshot()?;
//! assert_eq!(born.get(&snapshot, "ada")?, Some(1815));
//! assert_eq!(born.range(&snapshot, ..).next_back().transpose()?, Some(("alan", 1912)));
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
//! | frequent reads from many threads | [`elmdb::Reader`] |
//! | a consistent view of the whole store | [`Store::snapshot`], [`Database::get`], [`Database::range`] |
//! | types instead of bytes, several values under a key | [`Store::database`], [`Store::database_with`], [`Codec`] |
//! | reading and writing in one transaction | [`Store::update`] |
//! | many sorted entries at once | [`Database::load`] |
//! | keys that are paths, cursors | [`elmdb::Children`], [`elmdb::Cursor`] |
//! | all entries of a store that is being written | [`Database::scan`] |
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
pub mod elmdb;
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
mod table;
mod write;

// A store: opening it, and errors.
pub use crate::error::{DatabaseError, LoadError, LoadFailure, OpenError, ReadError, Rejection};
pub use crate::import::{ImportError, Imported};
pub use crate::options::{Durability, Options, Recovery};
pub use crate::store::{Stat, Store};

// Writing.
pub use crate::write::batch::{Batch, Change};
pub use crate::write::error::{UpdateError, WriteError};
pub use crate::write::queue::QueueRoom;
pub use crate::write::submission::{CommitFailure, Outcomes, Settled, Submission, SubmitError};
pub use crate::write::ticket::{Cancel, Ticket};
pub use crate::write::update::Update;
pub use crate::write::updating::Updating;

// Copies of a log that several machines share.
pub use crate::write::sequencer::{
    AppliedRecord, ApplyError, NewRecord, Sequencer, Settlement, Stamp,
};

// Reading.
pub use crate::read::feed::{Feed, FeedError, FeedPosition, Group};
pub use crate::read::range::Range;
pub use crate::read::scan::{Chunk, Entries, Scan};
pub use crate::read::snapshot::Snapshot;

// Databases with names and codecs.
pub use crate::codec::{Bytes, Codec, CodecError, I64, Str, U32, U64, U128, Unit};
pub use crate::database::{Database, DatabaseOptions, DatabaseStat};

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
