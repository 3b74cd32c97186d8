//! Errors of writes, which hand back what was not written.

use std::io;

use crate::{Batch, Rejection, Ticket};

/// Error of a write. A batch that was certainly not written is handed back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The queue is full: nothing was written; try again once the writer has caught up.
    #[error("the write queue is full; try again later")]
    Overloaded(Batch),
    /// The batch can never be stored: nothing was written; change the batch.
    #[error("the batch cannot be stored: {reason}")]
    Rejected {
        /// The batch, unchanged.
        batch: Batch,
        /// Reason for the rejection.
        reason: Rejection,
    },
    /// The disk, quota or map is full: nothing was written; free some space and try again. Room is kept for batches
    /// that delete and put nothing but [counters](Batch::add): of some ten deletions, anywhere.
    #[error("no space is left for the write: {source}")]
    Full {
        /// The batch, unchanged.
        batch: Batch,
        /// The error of the operating system or the engine.
        source: io::Error,
    },
    /// The commit failed and was rolled back: nothing was written; another attempt may succeed.
    #[error("the write failed and was rolled back: {source}")]
    Failed {
        /// The batch, unchanged.
        batch: Batch,
        /// The error of the operating system or the engine.
        source: io::Error,
    },
    /// The store is closed: nothing was written.
    #[error("the store is closed")]
    Closed(Batch),
    /// The store was opened read-only: nothing was written.
    #[error("the store was opened read-only")]
    ReadOnly(Batch),
    /// The store is a copy of a shared log, which another node owns: nothing was written; ask that node.
    #[error("another node owns the shared log of the store")]
    Standby(Batch),
    /// A key of a [`put_new`](Batch::put_new) exists: nothing was written.
    #[error("the key already exists")]
    KeyExists(Batch),
    /// The write was cancelled before the writer started it: nothing was written.
    #[error("the write was cancelled before it started")]
    Cancelled(Batch),
    /// The timeout expired while the commit was in progress, so the outcome is not known yet. Await
    /// the ticket to learn the outcome.
    #[error("the write timed out while its commit was in progress")]
    UnderWay(Ticket),
    /// An earlier commit ended as [`Unknown`](WriteError::Unknown): nothing was written. The store
    /// reopens its engine once the snapshots from before are dropped; try again then.
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
        /// The error of the operating system or the engine.
        source: io::Error,
    },
}

impl WriteError {
    /// Returns the batch if it was certainly not written: with every error except
    /// [`Unknown`](WriteError::Unknown) and [`UnderWay`](WriteError::UnderWay).
    pub fn into_batch(self) -> Option<Batch> {
        match self {
            WriteError::Overloaded(batch)
            | WriteError::Rejected { batch, .. }
            | WriteError::Full { batch, .. }
            | WriteError::Failed { batch, .. }
            | WriteError::Closed(batch)
            | WriteError::ReadOnly(batch)
            | WriteError::Standby(batch)
            | WriteError::KeyExists(batch)
            | WriteError::Cancelled(batch)
            | WriteError::Recovering(batch) => Some(batch),
            WriteError::Unknown { .. } | WriteError::UnderWay(_) => None,
        }
    }
}

/// Error of an update.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpdateError<E> {
    /// The closure returned an error: nothing was written.
    #[error("the update was aborted: {0}")]
    Aborted(E),
    /// The closure panicked: nothing was written.
    #[error("the update panicked")]
    Panicked,
    /// A key or value that the closure put can never be stored: nothing was written.
    #[error("the update cannot be stored: {0}")]
    Rejected(Rejection),
    /// Error of the write; see [`WriteError`]. The batch that is handed back is empty.
    #[error(transparent)]
    Write(WriteError),
}
