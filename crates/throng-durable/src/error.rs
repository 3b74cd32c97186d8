//! Errors, sorted by what the caller can do next.

use std::sync::Arc;

use throng::ExitReason;
use throng_store::{ReadError, WriteError};

use crate::{CELL_KEY_BYTES_MAX, Durable};

/// Why a call to an entity has no reply.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EntityError {
    /// There can be no entity of that key: choose another one. The message was not handled.
    #[error("the entity's key {0}")]
    Key(#[from] KeyError),
    /// The stored state is not for this program: run the right version, or write a migration. The
    /// message was not handled.
    #[error(transparent)]
    State(#[from] StateError),
    /// The store could not be read. The message was not handled; trying again may work.
    #[error("the entity could not be loaded: {0}")]
    Load(#[from] ReadError),
    /// The runtime has no room for another process. The message was not handled; try again when
    /// the longest idle entities, which have been asked to leave, have left.
    #[error("the entity could not be activated: the limit of {limit} processes is reached")]
    NoRoom {
        /// The runtime's limit.
        limit: u64,
    },
    /// The node or its runtime is shut down. The message was not handled.
    #[error("the node is shut down")]
    ShutDown,
    /// The handler panicked, or the encoding of the state it left: nothing of what it did was kept.
    /// Or `Default`, `Deserialize`, `migrate` or `started` did, and the message was not handled.
    #[error("the entity panicked: {0}")]
    Panicked(Arc<str>),
    /// What the handler did could not be committed and was not kept; the source says why. Trying
    /// again may work.
    #[error("the turn was not committed: {0}")]
    NotCommitted(#[source] CommitError),
    /// The commit broke off: what the handler did may have been kept or not, as a whole. The node
    /// must be opened again.
    #[error("the turn may or may not have been committed: {0}")]
    Unknown(#[source] WriteError),
    /// The process ended before it replied. What it did may have been kept or not, as a whole; the
    /// next activation finds out which before it handles anything.
    #[error("the entity's process ended before it replied: {0}")]
    Died(ExitReason),
    /// The entity waits, itself or through others, for the one that calls it.
    #[error("the call would wait for itself")]
    Cycle {
        /// Whether the message had reached the entity's mailbox. It may still be handled then.
        enqueued: bool,
    },
    /// No reply came in time. If the message was queued, it may still be handled.
    #[error("no reply in time")]
    TimedOut {
        /// Whether the message had reached the entity's mailbox.
        enqueued: bool,
    },
}

/// A message that could not be sent, handed back.
#[derive(thiserror::Error)]
#[error("{error}")]
pub struct SendError<M> {
    /// The message.
    pub message: M,
    /// Why.
    #[source]
    pub error: EntityError,
}

// What is handed back need not be printable.
impl<M> std::fmt::Debug for SendError<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SendError").field("error", &self.error).finish_non_exhaustive()
    }
}

/// What is wrong with the key of an entity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// It has no bytes.
    #[error("is empty")]
    Empty,
    /// It has too many bytes.
    #[error("has {bytes} bytes, the longest allowed has {bytes_max}")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
}

/// Why a stored state cannot be used by this program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// A newer program wrote it: run that one.
    #[error(
        "the stored {kind} has state version {found}, this program knows versions up to {known}"
    )]
    Newer {
        /// The entity's kind.
        kind: &'static str,
        /// The version found.
        found: u16,
        /// The version of this program.
        known: u16,
    },
    /// An older program wrote it, and there is no migration from its version.
    #[error("the stored {kind} has state version {found}, which nothing here migrates")]
    NotMigrated {
        /// The entity's kind.
        kind: &'static str,
        /// The version found.
        found: u16,
    },
    /// The bytes are not a state of that version: the type was changed without a new version.
    #[error("the stored {kind} of state version {found} cannot be decoded: {reason}")]
    Undecodable {
        /// The entity's kind.
        kind: &'static str,
        /// The version found.
        found: u16,
        /// What the decoder said.
        reason: String,
    },
}

impl StateError {
    pub(crate) fn undecodable<P: Durable>(found: u16, reason: impl ToString) -> StateError {
        StateError::Undecodable { kind: P::KIND, found, reason: reason.to_string() }
    }
}

/// Why a turn could not be committed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommitError {
    /// The state cannot be encoded.
    #[error("the state cannot be encoded: {0}")]
    State(String),
    /// The turn put something into a cell that no cell can hold.
    #[error(transparent)]
    Cell(CellError),
    /// The store did not take it, or rolled it back.
    #[error(transparent)]
    Write(WriteError),
}

/// Why a cell cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CellError {
    /// Its key is longer than [`CELL_KEY_BYTES_MAX`].
    #[error("a cell's key has {bytes} bytes, the longest allowed has {CELL_KEY_BYTES_MAX}")]
    KeyTooLong {
        /// Its length.
        bytes: usize,
    },
    /// Its value cannot be encoded.
    #[error("a cell's value cannot be encoded: {0}")]
    Encode(String),
    /// Its bytes are not a value of the type asked for.
    #[error("a cell's value is not of the type asked for: {0}")]
    Decode(String),
    /// The store could not be read.
    #[error("a cell could not be read: {0}")]
    Read(#[from] ReadError),
    /// The activation has been given up, or its hook runs after its last turn.
    #[error("the entity is no longer active")]
    Inactive,
}
