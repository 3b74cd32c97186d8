//! Errors, sorted by what the caller can do next.

use std::io;
use std::sync::Arc;

use throng::{CallError, Panic};
use throng_store::{CommitFailure, ReadError, SubmitError};

use crate::{CELL_KEY_BYTES_MAX, Conflict, INDEX_KEY_BYTES_MAX, MAP_NAME_BYTES_MAX};

/// Error of a call to an entity.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EntityError {
    /// The key is not valid: choose another key. The message was not handled.
    #[error("the entity's key {0}")]
    Key(#[from] KeyError),
    /// The stored state does not fit this program: run the right version, or write a migration. The
    /// message was not handled.
    #[error(transparent)]
    State(#[from] StateError),
    /// The store could not be read. The message was not handled; trying again may work.
    #[error("the entity could not be loaded: {0}")]
    Load(#[from] ReadError),
    /// The kind needs [dependencies](crate::Durable::Deps), and the node has none for it:
    /// [register](crate::Node::register) it first. The message was not handled.
    #[error("the kind {kind} is not registered with its dependencies")]
    NotRegistered {
        /// The entity's kind.
        kind: &'static str,
    },
    /// The runtime has no room for another process. The message was not handled; try again when
    /// seldom used entities, which have been asked to leave, have left.
    #[error("the entity could not be activated: the limit of {limit} processes is reached")]
    NoRoom {
        /// The runtime's limit.
        limit: u64,
    },
    /// The node or its runtime is shut down. The message was not handled.
    #[error("the node is shut down")]
    ShutDown,
    /// The handler panicked, or the encoding of its state did: no change of the turn was kept. Or
    /// `initial`, `Deserialize`, `migrate` or `started` panicked, and the message was not handled.
    #[error("the entity {0}")]
    Panicked(Panic),
    /// The changes of the hook `started` could not be committed. The message was not handled; trying again may
    /// work.
    #[error("the entity could not be activated: {0}")]
    Started(Arc<str>),
    /// The turn's changes could not be committed and were not kept, or an earlier turn on which the turn builds
    /// was lost; the source gives the reason. Trying again may work.
    #[error("the turn was not committed: {0}")]
    NotCommitted(#[source] CommitError),
    /// The turn has set a key of a [unique index](crate::Index) that another entity has: choose another key. Nothing of
    /// the turn was kept.
    #[error("the turn was not committed: {0}")]
    Conflict(Box<Conflict>),
    /// The outcome of the commit is unknown: the turn's changes were kept as a whole or not at all.
    /// The store recovers by itself; then the entity's state shows whether they were kept.
    #[error("the turn may or may not have been committed: {0}")]
    Unknown(#[source] Arc<io::Error>),
    /// The process ended before the turn was submitted, or before the turn began: nothing of the turn was kept.
    #[error("the entity's process ended before it replied")]
    Died,
    /// The inbox of the receiver of a durable message is full: the message was not stored. Try again when the receiver
    /// has handled some, or raise [`Options::inbox_max`](crate::Options::inbox_max).
    #[error("the inbox of {receiver} is full: {waiting} messages wait, of at most {inbox_max}")]
    Full {
        /// Kind and key of the receiver.
        receiver: String,
        /// Number of messages that wait, where a long one counts once for each KiB.
        waiting: u64,
        /// The limit.
        inbox_max: u64,
    },
    /// A stored message is none that this program's kind handles, or is damaged; such a message is
    /// [parked](crate::Inbox::parked).
    #[error("the stored message cannot be handled: {0}")]
    Message(String),
    /// The id of a call that is to take effect [once](crate::EntityCall::once) is not valid, or belongs to a call with
    /// another type of reply. The message was not handled.
    #[error("the call cannot be made once: {0}")]
    Once(String),
    /// A reminder is not valid, or this program cannot read it. The turn that has set it was not kept.
    #[error("the reminder is not valid: {0}")]
    Reminder(String),
    /// The receiver of a durable message belongs to another node, which the commit of the sender does not reach.
    #[error("the receiver {receiver} belongs to another node")]
    OtherNode {
        /// Kind and key of the receiver.
        receiver: String,
    },
    /// The runtime's memory for messages is used up. The message was not handled; try again later.
    #[error("the runtime has no memory left for messages")]
    Overloaded,
    /// A call cycle: the entity is itself waiting, directly or through others, for this caller.
    #[error("call cycle: the entity waits for its caller")]
    Cycle {
        /// Whether the message had reached the entity's mailbox; if so, it may still be handled.
        enqueued: bool,
    },
    /// No reply came in time. If the message was queued, it may still be handled.
    #[error("no reply in time")]
    TimedOut {
        /// Whether the message had reached the entity's mailbox.
        enqueued: bool,
    },
}

impl EntityError {
    /// Returns the error of a call that has no answer, although its message was sent.
    pub(crate) fn of_call<T>(error: CallError<T>) -> EntityError {
        match error {
            CallError::Cycle(message) => EntityError::Cycle { enqueued: message.is_none() },
            CallError::TimedOut { enqueued } => EntityError::TimedOut { enqueued },
            CallError::Overloaded(_) => EntityError::Overloaded,
            _ => EntityError::Died,
        }
    }
}

/// Error of a send, with the message handed back.
#[derive(thiserror::Error)]
#[error("{error}")]
pub struct SendError<M> {
    /// The message that was not sent.
    pub message: M,
    /// Reason why the message was not sent.
    #[source]
    pub error: EntityError,
}

// The message need not be printable.
impl<M> std::fmt::Debug for SendError<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SendError").field("error", &self.error).finish_non_exhaustive()
    }
}

/// Error of an invalid entity key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The key has no bytes.
    #[error("is empty")]
    Empty,
    /// The key has too many bytes.
    #[error("has {bytes} bytes, more than the {bytes_max} allowed")]
    TooLong {
        /// Length of the key.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// The entity is of another shard than those of the node.
    #[error("is of another shard: reach the entity by its cluster")]
    OtherShard,
}

/// Error of a stored state that this program cannot use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// A newer version of the program wrote the state: run that version.
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
    /// An older version of the program wrote the state, and there is no migration from it.
    #[error("the stored {kind} has state version {found}, and no migration from it is defined")]
    NotMigrated {
        /// The entity's kind.
        kind: &'static str,
        /// The version found.
        found: u16,
    },
    /// The state has other fields than its type, which does not read them by their names: mend the type, or raise
    /// its version and write a migration.
    #[error(
        "the stored {kind} of state version {found} has other fields than the type: {reason}; give a new \
         field `#[serde(default)]` and a renamed one `#[serde(alias = \"…\")]`, or raise `version` and convert \
         the state by `migrate`"
    )]
    Changed {
        /// The entity's kind.
        kind: &'static str,
        /// The version found.
        found: u16,
        /// Reason why the state does not fit, with the name of the field.
        reason: String,
    },
    /// The bytes are not a state of that version.
    #[error("the stored {kind} of state version {found} cannot be decoded: {reason}")]
    Undecodable {
        /// The entity's kind.
        kind: &'static str,
        /// The version found.
        found: u16,
        /// Error text of the decoder.
        reason: String,
    },
}

/// Error of a commit.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommitError {
    /// The state cannot be encoded.
    #[error("the state cannot be encoded: {0}")]
    State(String),
    /// The turn wrote a cell with an invalid key or a value that cannot be encoded.
    #[error(transparent)]
    Cell(CellError),
    /// A key of an [index](crate::Index) is too long: text has at most [`INDEX_KEY_BYTES_MAX`] bytes.
    #[error(
        "the key of the index {index} has {bytes} bytes encoded, and text and bytes have at most \
         {INDEX_KEY_BYTES_MAX}"
    )]
    IndexKey {
        /// Name of the index.
        index: &'static str,
        /// Length of the encoded key, which is 3 more than that of a text without zero bytes.
        bytes: usize,
    },
    /// A durable message that the turn has sent cannot be encoded, or the receiver's kind has no number left for it.
    #[error("the message {message} cannot be stored: {reason}")]
    Message {
        /// Type of the message.
        message: &'static str,
        /// Reason why it cannot be stored.
        reason: String,
    },
    /// The store refused the changes.
    #[error(transparent)]
    Refused(SubmitError),
    /// The store accepted the changes and could not write them, or those of an earlier turn on which they
    /// build.
    #[error("the changes could not be written: {0}")]
    Lost(#[source] Arc<io::Error>),
}

impl From<CommitFailure> for EntityError {
    fn from(failure: CommitFailure) -> EntityError {
        match failure {
            CommitFailure::NotWritten(source) => {
                EntityError::NotCommitted(CommitError::Lost(source))
            }
            CommitFailure::Unknown(source) => EntityError::Unknown(source),
        }
    }
}

/// Error of reading or writing a cell.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CellError {
    /// The key is longer than [`CELL_KEY_BYTES_MAX`].
    #[error("a cell's key has {bytes} bytes, more than the {CELL_KEY_BYTES_MAX} allowed")]
    KeyTooLong {
        /// Length of the key.
        bytes: usize,
    },
    /// The name of a map of cells is longer than [`MAP_NAME_BYTES_MAX`].
    #[error(
        "the name of a map of cells has {bytes} bytes, more than the {MAP_NAME_BYTES_MAX} allowed"
    )]
    NameTooLong {
        /// Length of the name.
        bytes: usize,
    },
    /// The kind has 65,535 maps of cells already: use fewer names.
    #[error("the kind has the most maps of cells, 65535")]
    TooManyMaps,
    /// The key or the value cannot be encoded.
    #[error("a cell cannot be encoded: {0}")]
    Encode(String),
    /// The bytes are not a key or a value of the requested types. A value that was stored by another type has
    /// fields that the requested one does not read by their names.
    #[error("a cell is not of the requested type: {0}")]
    Decode(String),
    /// The store could not be read.
    #[error("a cell could not be read: {0}")]
    Read(#[from] ReadError),
    /// The activation has been given up, or the hook runs after its last turn.
    #[error("the entity is no longer active")]
    Inactive,
    /// The cells were [taken](crate::DurableContext::take_cells) out of the context, and not put back yet.
    #[error("the entity's cells were taken and not put back")]
    Taken,
}
