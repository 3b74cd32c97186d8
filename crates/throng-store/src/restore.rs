//! Restore: a backup, with the changes that the log of its store has after it, up to a moment.
//!
//! ```text
//! store     ──●──────────────────────────────────▶
//!             │ backup      log/kept   log
//! restored    ●─────────────────────●              up to a position or a time
//! ```
//!
//! A backup knows its origin: the id of the store, the point of its log up to which it has all changes, and its
//! time. By these a log of another store, or of another time, and a moment before the backup are refused.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::disk::damage::Damage;
use crate::log::Record;
use crate::{OpenError, ReadError};

/// Moment up to which [`Store::restore`](crate::Store::restore) restores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Until {
    /// The end of the log.
    End,
    /// A position, as [`Snapshot::commit`](crate::Snapshot::commit) returns it. The changes of a batch are
    /// restored together, so the restored store ends before this position if that is within a group of
    /// batches.
    Position(u64),
    /// A time on the clock of the machine that wrote, to the millisecond. A time before that of the backup is
    /// refused.
    Time(SystemTime),
}

/// Outcome of [`Store::restore`](crate::Store::restore).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Restored {
    /// Position of the last change that was restored.
    pub position: u64,
    /// Time at which this change was written; `None` if it is part of the backup.
    pub time: Option<SystemTime>,
}

/// Error of a restore. Nothing was written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// The directory holds no copy by [`Store::backup`](crate::Store::backup) or [`Store::restore`](crate::Store::restore).
    #[error("the store in {} is not a backup", path.display())]
    NotACopy {
        /// The directory of the backup.
        path: PathBuf,
    },
    /// The backup was written to after it was made: use another one.
    #[error("the backup in {} has changes of its own", path.display())]
    Changed {
        /// The directory of the backup.
        path: PathBuf,
    },
    /// The backup was made after the position or the time: use an older one.
    #[error("the backup was made later, at position {position}; use an older backup")]
    Later {
        /// Position up to which the backup has all changes.
        position: u64,
        /// Time of the backup, at which or before which the last of these changes was written.
        time: SystemTime,
    },
    /// The log ends before the position: add the files of the log that are missing.
    #[error("the log ends at position {position}")]
    Short {
        /// Position of the last change in the log.
        position: u64,
    },
    /// The log is damaged, lacks a file, is that of another store, or has no record of some changes: a load,
    /// a new database, or writes beyond the size of the map. Restore up to there, or from a backup that was
    /// made later.
    #[error("{reason}, after position {position}")]
    Log {
        /// The file and its damage.
        reason: String,
        /// Position of the last change that could be restored.
        position: u64,
    },
    /// The backup cannot be opened.
    #[error(transparent)]
    Backup(#[from] OpenError),
    /// The backup cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The operating system refused; `AlreadyExists` if there is a store in the target directory, and
    /// `InvalidInput` if that lies within the directory of one.
    #[error("cannot write the restored store")]
    Io(#[source] io::Error),
}

impl Until {
    pub(crate) fn position(self) -> u64 {
        if let Until::Position(position) = self { position } else { u64::MAX }
    }

    pub(crate) fn includes(self, record: &Record<'_>) -> bool {
        match self {
            Until::End => true,
            Until::Position(until) => record.last() <= until,
            Until::Time(until) => time_of(record.time) <= until,
        }
    }
}

/// Returns the time after so many milliseconds since 1970, or the last that the system knows.
pub(crate) fn time_of(milliseconds: u64) -> SystemTime {
    let time = |milliseconds| UNIX_EPOCH.checked_add(Duration::from_millis(milliseconds));
    time(milliseconds).or_else(|| time(i64::MAX as u64 / 1_000_000)).unwrap_or(UNIX_EPOCH)
}

impl RestoreError {
    /// Returns the error for damage of the log after a position.
    pub(crate) fn of_log(damage: Damage, position: u64) -> RestoreError {
        match damage {
            Damage::Found(reason) => RestoreError::Log { reason, position },
            damage => RestoreError::Io(damage.into_io()),
        }
    }

    /// Returns the error for a backup, which has no moment to miss.
    pub(crate) fn into_io(self) -> io::Error {
        match self {
            RestoreError::Io(error) => error,
            RestoreError::Log { reason, .. } => io::Error::other(reason),
            other => io::Error::other(other),
        }
    }
}

impl From<io::Error> for RestoreError {
    fn from(error: io::Error) -> RestoreError {
        RestoreError::Io(error)
    }
}
