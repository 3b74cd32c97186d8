//! Errors, one enum per operation, each variant a different thing for the caller to do next.

use std::io;
use std::path::PathBuf;

use crate::{Batch, KEY_BYTES_MAX, VALUE_BYTES_MAX};

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
    /// The operating system or the engine refused.
    #[error("cannot open the data directory {}: {source}", path.display())]
    Io {
        /// The directory asked for.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
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
    /// An earlier commit ended as [`Unknown`](WriteError::Unknown): nothing was written, and
    /// nothing will be until the store is opened anew.
    #[error("the store takes no writes since a commit broke off; open it again")]
    BrokenOff(Batch),
    /// The commit broke off while its last page was being written: the batch may be on the disk or
    /// not, all of it or none. Open the store again and look; until then it takes no writes and
    /// begins no snapshots, only those there are can still be read.
    #[error("the commit broke off, the write may or may not be on the disk: {source}")]
    Unknown {
        /// What the system or engine said.
        source: io::Error,
    },
}

impl WriteError {
    /// The batch, unless the error is [`Unknown`](WriteError::Unknown).
    pub fn into_batch(self) -> Option<Batch> {
        match self {
            WriteError::Overloaded(batch)
            | WriteError::Rejected { batch, .. }
            | WriteError::Full { batch, .. }
            | WriteError::Failed { batch, .. }
            | WriteError::Closed(batch)
            | WriteError::BrokenOff(batch) => Some(batch),
            WriteError::Unknown { .. } => None,
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
    /// A value is longer than [`VALUE_BYTES_MAX`].
    #[error("a value has {bytes} bytes, the longest allowed has {VALUE_BYTES_MAX}")]
    ValueTooLong {
        /// Its length.
        bytes: usize,
    },
    /// The batch alone is larger than the whole queue may be.
    #[error("the batch has {bytes} bytes, the whole queue may have {bytes_max}")]
    BatchTooLarge {
        /// Its size.
        bytes: usize,
        /// The queue's budget, see [`Options::queue_bytes_max`](crate::Options::queue_bytes_max).
        bytes_max: usize,
    },
}

/// Why something could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// Too many snapshots are alive: drop some, or raise
    /// [`Options::snapshots_max`](crate::Options::snapshots_max).
    #[error("too many snapshots are open at once")]
    TooManySnapshots,
    /// A commit ended as [`Unknown`](WriteError::Unknown), so it is not known what there is to
    /// read: open the store again. The snapshots there are can still be read.
    #[error("the store cannot be read since a commit broke off; open it again")]
    BrokenOff,
    /// What was read is not what was written: restore from a backup.
    #[error("the stored data is damaged: {0}")]
    Corrupt(String),
    /// The operating system or the engine refused.
    #[error("cannot read from the store: {0}")]
    Io(#[source] io::Error),
}

impl ReadError {
    pub(crate) fn from_engine(error: heed::Error) -> ReadError {
        match error {
            heed::Error::Mdb(heed::MdbError::ReadersFull) => ReadError::TooManySnapshots,
            heed::Error::Mdb(heed::MdbError::Panic) => ReadError::BrokenOff,
            heed::Error::Mdb(
                damage @ (heed::MdbError::Corrupted
                | heed::MdbError::PageNotFound
                | heed::MdbError::Invalid),
            ) => ReadError::Corrupt(damage.to_string()),
            other => ReadError::Io(io_error(other)),
        }
    }
}

/// The engine's errors, for callers who shall not need to know the engine.
pub(crate) fn io_error(error: heed::Error) -> io::Error {
    match error {
        heed::Error::Io(error) => error,
        other => io::Error::other(other.to_string()),
    }
}
