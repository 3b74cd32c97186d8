//! Errors: one enum per operation, and one variant per reaction of the caller.

use std::io;
use std::path::{Path, PathBuf};

use crate::{CodecError, KEY_BYTES_MAX};

/// Error of opening a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another open store owns the directory: close that store, or choose another directory.
    #[error(
        "the data directory {} is in use by another store, in this process or another one; \
         close that one first, or choose another directory",
        path.display()
    )]
    InUse {
        /// The requested directory.
        path: PathBuf,
    },
    /// The data has another format version: use the program version that wrote it.
    #[error(
        "the data in {} has format version {found}, this program reads and writes version {known}; \
         open it with the version of the program that wrote it",
        path.display()
    )]
    Format {
        /// The requested directory.
        path: PathBuf,
        /// The format version of the data.
        found: u32,
        /// The format version that this program reads and writes.
        known: u32,
    },
    /// The directory holds an LMDB database of another program: choose another directory.
    #[error("{} holds a database of another program; choose another directory", path.display())]
    Foreign {
        /// The requested directory.
        path: PathBuf,
    },
    /// The directory is not writable: grant the permission, or open it
    /// [read-only](crate::Options::read_only).
    #[error("the data directory {} is not writable: {source}", path.display())]
    ReadOnly {
        /// The requested directory.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The store has more named databases than the options allow: raise
    /// [`Options::databases_max`](crate::Options::databases_max).
    #[error("the store in {} has more databases than the options allow", path.display())]
    TooManyDatabases {
        /// The requested directory.
        path: PathBuf,
    },
    /// The data file or the log is damaged, missing, or from another store: restore a backup, or write the rest
    /// into a new store by [`Store::salvage`](crate::Store::salvage).
    #[error(
        "the store in {} is damaged: {reason}; restore a backup, or write the rest into a new store by \
         `throng store salvage`",
        path.display()
    )]
    Corrupt {
        /// The requested directory.
        path: PathBuf,
        /// Description of the damage.
        reason: String,
    },
    /// The store is a copy of a shared log, and only such a log may change it: open it with its
    /// [sequencer](crate::Options::sequencer), or [read-only](crate::Options::read_only).
    #[error(
        "the store in {} is a copy of a log that several machines share; open it as such, or read-only",
        path.display()
    )]
    Shared {
        /// The requested directory.
        path: PathBuf,
    },
    /// The store has a log of its own, so it cannot be a copy of a shared log: choose an empty directory.
    #[error("the store in {} has a log of its own; choose an empty directory for a copy", path.display())]
    Single {
        /// The requested directory.
        path: PathBuf,
    },
    /// Any other error of the operating system or the engine.
    #[error("cannot open the data directory {}: {source}", path.display())]
    Io {
        /// The requested directory.
        path: PathBuf,
        /// The underlying error.
        source: io::Error,
    },
}

impl OpenError {
    pub(crate) fn from_io(source: io::Error, path: &Path) -> OpenError {
        let path = path.into();
        match source.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                OpenError::ReadOnly { path, source }
            }
            _ => OpenError::Io { path, source },
        }
    }
}

/// Error of opening a named database.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DatabaseError {
    /// The name is empty, longer than 500 bytes, or contains a zero byte: choose another name.
    #[error("the name of a database must have 1 to 500 bytes, none of them zero")]
    Name,
    /// The database exists with other [options](crate::DatabaseOptions): ask for the options it
    /// has.
    #[error("the database {name:?} exists with other options")]
    Kind {
        /// The requested name.
        name: String,
    },
    /// The database does not exist, and must not or cannot be created.
    #[error("the database {name:?} does not exist")]
    Missing {
        /// The requested name.
        name: String,
    },
    /// The limit on databases is reached: raise
    /// [`Options::databases_max`](crate::Options::databases_max).
    #[error("the store already has as many databases as its options allow")]
    TooMany,
    /// The store recovers from a commit whose outcome is unknown: drop older snapshots and try
    /// again later.
    #[error("the store is recovering from a failed commit; drop older snapshots and try again")]
    Recovering,
    /// The database could not be created: free disk space, or examine the disk.
    #[error("cannot create the database: {0}")]
    Failed(String),
}

/// Reason why a batch can never be stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Rejection {
    /// A key has no bytes.
    #[error("a key is empty")]
    KeyEmpty,
    /// A key is longer than [`KEY_BYTES_MAX`].
    #[error("a key has {bytes} bytes; the maximum is {KEY_BYTES_MAX}")]
    KeyTooLong {
        /// Length of the key or value.
        bytes: usize,
    },
    /// A value has no bytes, in a database with several values under a key, where values are
    /// ordered like keys.
    #[error("a value is empty in a database with several values under a key")]
    ValueEmpty,
    /// A value is longer than [`VALUE_BYTES_MAX`](crate::VALUE_BYTES_MAX), or longer than
    /// [`KEY_BYTES_MAX`] in a database with several values under a key.
    #[error("a value has {bytes} bytes; the maximum is {bytes_max}")]
    ValueTooLong {
        /// Length of the key or value.
        bytes: usize,
        /// The greatest length in this database.
        bytes_max: usize,
    },
    /// A codec refused a key or a value.
    #[error("a key or value has no encoding: {0}")]
    Encoding(CodecError),
    /// The batch names a database of another store.
    #[error("the batch names a database of another store")]
    OtherStore,
    /// The batch adds to a counter in a database with several values under a key.
    #[error("a database with several values under a key has no counters")]
    Duplicates,
    /// The batch names a single value of a key in a database with one value under each key.
    #[error("a key has only one value in this database")]
    NoDuplicates,
    /// The batch is submitted without a ticket, and has a [`put_new`](crate::Batch::put_new), whose outcome only a
    /// ticket could tell.
    #[error("a batch with `put_new` cannot be submitted without a ticket")]
    Conditional,
    /// The batch alone exceeds the limit of the whole queue.
    #[error("the batch has {bytes} bytes; the maximum of the queue is {bytes_max}")]
    BatchTooLarge {
        /// Size of the batch.
        bytes: usize,
        /// Limit of the queue, see [`Options::queue_bytes_max`](crate::Options::queue_bytes_max).
        bytes_max: usize,
    },
}

/// Error of a bulk load. All entries before a certain one are stored, and no other.
#[derive(Debug, thiserror::Error)]
#[error("the load ended after {loaded} entries, which are stored: {failure}")]
#[non_exhaustive]
pub struct LoadError {
    /// Number of entries that are stored: load the others after mending the reason.
    pub loaded: u64,
    /// Reason why the next entry is not stored.
    #[source]
    pub failure: LoadFailure,
}

/// Reason why a bulk load ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadFailure {
    /// The key is not above the key before it, or the value not above the value before it under the same
    /// key: sort the entries, or put them in batches.
    #[error("the next entry is not above the one before it")]
    Order,
    /// The entry can never be stored: change it.
    #[error("the next entry cannot be stored: {0}")]
    Rejected(Rejection),
    /// The disk, quota or map is full: free some space and load the other entries.
    #[error("no space is left: {0}")]
    Full(#[source] io::Error),
    /// An error of the operating system or the engine: another attempt may succeed.
    #[error("the entries could not be written: {0}")]
    Failed(#[source] io::Error),
    /// The store was opened read-only.
    #[error("the store was opened read-only")]
    ReadOnly,
    /// The store is a copy of a shared log, which has all its changes: put the entries in batches.
    #[error("the store is a copy of a shared log, and takes changes by that alone")]
    Shared,
    /// The store recovers from a commit whose outcome is unknown: drop older snapshots and try again
    /// later.
    #[error("the store is recovering from a failed commit; drop older snapshots and try again")]
    Recovering,
    /// The store is closed.
    #[error("the store is closed")]
    Closed,
}

/// Error of a read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// Too many snapshots are alive: drop some of them, or raise
    /// [`Options::snapshots_max`](crate::Options::snapshots_max).
    #[error("too many snapshots are open; drop some of them")]
    TooManySnapshots,
    /// The snapshot is older than [`Options::snapshot_age_max`](crate::Options::snapshot_age_max),
    /// and commits followed: drop it and take another.
    #[error("the snapshot has expired; take another")]
    Expired,
    /// A commit ended as [`Unknown`](crate::WriteError::Unknown), so the state of the store is not known:
    /// try again once the store has reopened its engine.
    #[error(
        "the store is recovering from a failed commit and cannot be read; drop older snapshots \
         and try again"
    )]
    Recovering,
    /// The snapshot and the database belong to different stores.
    #[error("the snapshot and the database belong to different stores")]
    OtherStore,
    /// The codec refused the bytes: they encode another type.
    #[error("the stored bytes cannot be decoded: {0}")]
    Decode(#[from] CodecError),
    /// The bytes on the disk are not the bytes that were written: restore a backup.
    #[error("the stored data is damaged: {0}")]
    Corrupt(String),
    /// Any other error of the operating system or the engine.
    #[error("cannot read from the store: {0}")]
    Io(#[source] io::Error),
}

/// Whether the error means that the disk, the quota or the file has no space left.
pub(crate) fn is_lack_of_room(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}
