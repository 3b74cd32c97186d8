//! Errors, one enum per operation, each variant a different thing for the caller to do next.

use std::io;
use std::path::{Path, PathBuf};

use crate::disk::lmdb;
use crate::{Batch, CodecError, KEY_BYTES_MAX, Ticket};

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another open store owns the directory: end it, or choose another directory.
    #[error(
        "the data directory {} is in use by another store, in this process or another one; \
         close that one first, or choose another directory",
        path.display()
    )]
    InUse {
        /// The directory asked for.
        path: PathBuf,
    },
    /// The data was written in another layout: use the program version that wrote it.
    #[error(
        "the data in {} has format version {found}, this program reads and writes version {known}",
        path.display()
    )]
    Format {
        /// The directory asked for.
        path: PathBuf,
        /// The version found there.
        found: u32,
        /// The one version this program knows.
        known: u32,
    },
    /// The directory holds a database that this crate did not make: choose another directory.
    #[error("{} holds a database that was not made by this store", path.display())]
    Foreign {
        /// The directory asked for.
        path: PathBuf,
    },
    /// The directory cannot be written: get the permission, or open it
    /// [to read only](crate::Options::read_only).
    #[error("the data directory {} cannot be written: {source}", path.display())]
    ReadOnly {
        /// The directory asked for.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The directory holds more databases than are allowed: raise
    /// [`Options::databases_max`](crate::Options::databases_max).
    #[error("the data in {} has more databases than the options allow", path.display())]
    TooManyDatabases {
        /// The directory asked for.
        path: PathBuf,
    },
    /// The data file is not what the engine wrote: restore from a backup.
    #[error("the data file in {} is damaged: {reason}", path.display())]
    Corrupt {
        /// The directory asked for.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The store was not closed, and shall be opened to read only: open it once to write, which
    /// applies what is in its journal.
    #[error(
        "the store in {} was not closed, so it must be opened to write before it can be read",
        path.display()
    )]
    Unrecovered {
        /// The directory asked for.
        path: PathBuf,
    },
    /// The operating system or the engine refused.
    #[error("cannot open the data directory {}: {source}", path.display())]
    Io {
        /// The directory asked for.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
}

impl OpenError {
    pub(crate) fn from_engine(error: lmdb::Error, path: &Path) -> OpenError {
        let path: PathBuf = path.into();
        match error {
            lmdb::Error::TablesFull => OpenError::TooManyDatabases { path },
            lmdb::Error::Corrupt(reason) => OpenError::Corrupt { path, reason },
            lmdb::Error::NotData | lmdb::Error::Version | lmdb::Error::Incompatible => {
                OpenError::Foreign { path }
            }
            other => OpenError::from_io(other.into_io(), &path),
        }
    }

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

/// Why a named database could not be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DatabaseError {
    /// It has no name, a name of more than 500 bytes, or a zero byte in it: choose another.
    #[error("a database's name has between 1 and 500 bytes, none of them zero")]
    Name,
    /// It is there with other [options](crate::DatabaseOptions): ask for those.
    #[error("the database {name:?} was made with other options")]
    Kind {
        /// The name asked for.
        name: String,
    },
    /// It is not there, and must not or cannot be made.
    #[error("there is no database {name:?}")]
    Missing {
        /// The name asked for.
        name: String,
    },
    /// No more can be made: raise [`Options::databases_max`](crate::Options::databases_max).
    #[error("the store has as many databases as its options allow")]
    TooMany,
    /// The store recovers from a commit whose outcome is unknown: drop older snapshots and try
    /// again later.
    #[error("the store is recovering from a failed commit; drop older snapshots and try again")]
    Recovering,
    /// It could not be made: make room, or see what is wrong with the disk.
    #[error("cannot make the database: {0}")]
    Failed(String),
}

impl DatabaseError {
    pub(crate) fn from_engine(error: lmdb::Error) -> DatabaseError {
        match error {
            lmdb::Error::TablesFull => DatabaseError::TooMany,
            lmdb::Error::Panic => DatabaseError::Recovering,
            other => DatabaseError::Failed(other.to_string()),
        }
    }
}

/// Why a batch is not known to be durable. Whatever surely was not written is handed back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The queue is full: nothing was written, try again when the writer has caught up.
    #[error("the write queue is full")]
    Overloaded(Batch),
    /// The batch can never be stored: nothing was written, change it.
    #[error("the batch cannot be stored: {reason}")]
    Rejected {
        /// The batch, untouched.
        batch: Batch,
        /// What is wrong with it.
        reason: Rejection,
    },
    /// The disk, quota or map is full: nothing was written, make room and try again.
    #[error("there is no room for the write: {source}")]
    Full {
        /// The batch, untouched.
        batch: Batch,
        /// What the system or engine said.
        source: io::Error,
    },
    /// The commit failed and was rolled back: nothing was written, trying again may work.
    #[error("the write failed and was rolled back: {source}")]
    Failed {
        /// The batch, untouched.
        batch: Batch,
        /// What the system or engine said.
        source: io::Error,
    },
    /// The store is closed: nothing was written.
    #[error("the store is closed")]
    Closed(Batch),
    /// The store was opened to read only: nothing was written.
    #[error("the store was opened to read only")]
    ReadOnly(Batch),
    /// A key of a [`put_new`](Batch::put_new) is there: nothing was written.
    #[error("the key exists already")]
    KeyExists(Batch),
    /// It was taken back before the writer came to it: nothing was written.
    #[error("the write was cancelled before it began")]
    Cancelled(Batch),
    /// The time was up while the commit was under way: it is not known yet whether it succeeds.
    /// Await the ticket to learn it.
    #[error("the time was up while the write was under way")]
    UnderWay(Ticket),
    /// An earlier commit ended as [`Unknown`](WriteError::Unknown): nothing was written. The store
    /// opens its engine anew once the snapshots from before are dropped; try again then.
    #[error(
        "the store is recovering from a failed commit and accepts no writes; drop older snapshots \
         and try again"
    )]
    Recovering(Batch),
    /// The commit failed while its last page was being written: the batch is on the disk as a whole
    /// or not at all. The store recovers once the snapshots from before are dropped; then read the
    /// keys to find out. Until then it accepts no writes and begins no snapshots.
    #[error(
        "the outcome of the write is unknown; read the keys once the store has recovered: {source}"
    )]
    Unknown {
        /// What the system or engine said.
        source: io::Error,
    },
}

impl WriteError {
    /// The batch, if it was surely not written: unless the error is
    /// [`Unknown`](WriteError::Unknown) or [`UnderWay`](WriteError::UnderWay).
    pub fn into_batch(self) -> Option<Batch> {
        match self {
            WriteError::Overloaded(batch)
            | WriteError::Rejected { batch, .. }
            | WriteError::Full { batch, .. }
            | WriteError::Failed { batch, .. }
            | WriteError::Closed(batch)
            | WriteError::ReadOnly(batch)
            | WriteError::KeyExists(batch)
            | WriteError::Cancelled(batch)
            | WriteError::Recovering(batch) => Some(batch),
            WriteError::Unknown { .. } | WriteError::UnderWay(_) => None,
        }
    }
}

/// What makes a batch impossible to store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Rejection {
    /// A key has no bytes.
    #[error("a key is empty")]
    KeyEmpty,
    /// A key is longer than [`KEY_BYTES_MAX`].
    #[error("a key has {bytes} bytes, the longest allowed has {KEY_BYTES_MAX}")]
    KeyTooLong {
        /// Its length.
        bytes: usize,
    },
    /// A value has no bytes, in a database of several values under a key, where values are ordered
    /// like keys.
    #[error("a value is empty in a database with several values under a key")]
    ValueEmpty,
    /// A value is longer than [`VALUE_BYTES_MAX`](crate::VALUE_BYTES_MAX), or than
    /// [`KEY_BYTES_MAX`] where a key has several.
    #[error("a value has {bytes} bytes, the longest allowed has {bytes_max}")]
    ValueTooLong {
        /// Its length.
        bytes: usize,
        /// The greatest length in this database.
        bytes_max: usize,
    },
    /// A codec refused a key or a value.
    #[error("a key or value has no encoding: {0}")]
    Encoding(CodecError),
    /// It names a database of another store.
    #[error("the batch names a database of another store")]
    OtherStore,
    /// It counts in a database that has several values under a key.
    #[error("there are no counters where a key has several values")]
    Duplicates,
    /// It names one value of a key in a database where a key has only one.
    #[error("a key has only one value in this database")]
    NoDuplicates,
    /// The batch alone is larger than the whole queue may be.
    #[error("the batch has {bytes} bytes, the whole queue may have {bytes_max}")]
    BatchTooLarge {
        /// Its size.
        bytes: usize,
        /// The queue's budget, see [`Options::queue_bytes_max`](crate::Options::queue_bytes_max).
        bytes_max: usize,
    },
}

/// Why an update is not known to be durable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpdateError<E> {
    /// The closure gave up: nothing was written.
    #[error("the update was given up: {0}")]
    Aborted(E),
    /// The closure panicked: nothing was written.
    #[error("the update panicked")]
    Panicked,
    /// What the closure put can never be stored: nothing was written.
    #[error("the update cannot be stored: {0}")]
    Rejected(Rejection),
    /// As with a batch; the one that is handed back is empty.
    #[error(transparent)]
    Write(WriteError),
}

/// Why something could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// Too many snapshots are alive: drop some, or raise
    /// [`Options::snapshots_max`](crate::Options::snapshots_max).
    #[error("too many snapshots are open at once")]
    TooManySnapshots,
    /// The snapshot is older than [`Options::snapshot_age_max`](crate::Options::snapshot_age_max),
    /// and there were commits since: drop it and take another.
    #[error("the snapshot is too old")]
    Expired,
    /// A commit ended as [`Unknown`](WriteError::Unknown), so it is not known what there is to
    /// read: try again once the store has opened its engine anew.
    #[error(
        "the store is recovering from a failed commit and cannot be read; drop older snapshots \
         and try again"
    )]
    Recovering,
    /// The snapshot is of another store than the database.
    #[error("the snapshot is of another store than the database")]
    OtherStore,
    /// The codec refused the bytes: they are of another type.
    #[error("the stored bytes cannot be decoded: {0}")]
    Decode(#[from] CodecError),
    /// What was read is not what was written: restore from a backup.
    #[error("the stored data is damaged: {0}")]
    Corrupt(String),
    /// The operating system or the engine refused.
    #[error("cannot read from the store: {0}")]
    Io(#[source] io::Error),
}

impl ReadError {
    pub(crate) fn from_engine(error: lmdb::Error) -> ReadError {
        match error {
            lmdb::Error::ReadersFull => ReadError::TooManySnapshots,
            lmdb::Error::Panic => ReadError::Recovering,
            lmdb::Error::Corrupt(reason) => ReadError::Corrupt(reason),
            other => ReadError::Io(other.into_io()),
        }
    }
}

/// Whether the system had no room for what was to be written.
pub(crate) fn is_lack_of_room(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}
