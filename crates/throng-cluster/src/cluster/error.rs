//! [`ClusterError`]: the error of a call by a cluster, sorted by what the caller can do next.

use serde::{Deserialize, Serialize};
use throng_durable::{EntityError, KeyError};

/// Error of a call to an entity of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// No node has answered for the entity's shard in time, and nothing has happened: try again.
    #[error("no node answers for the entity's shard: {0}")]
    Unavailable(String),
    /// The call cannot be made: the key, the message or the program has to be another one. Nothing has happened.
    #[error("the call is refused: {0}")]
    Refused(String),
    /// The message is none that this program [accepts](crate::Kind::accepts) from other nodes. Nothing has happened.
    #[error("the kind {kind} does not accept {message} in a cluster; name it in `accepts`")]
    NotAccepted {
        /// The entity's kind.
        kind: &'static str,
        /// Type of the message.
        message: &'static str,
    },
    /// The turn was not kept, or did not begin: trying again may work. What its handler did outside of the entity
    /// has happened.
    #[error("the turn was not kept: {0}")]
    NotKept(String),
    /// The turn was kept as a whole or not at all: a call that is made [once](crate::ClusterCall::once) can be repeated.
    #[error("the turn may or may not have been kept: {0}")]
    Unknown(String),
}

/// Class of an error, on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Class {
    /// The entity is not here, and nothing has happened: another node is to be asked.
    NotHere,
    Refused,
    NotKept,
    Unknown,
}

/// Error of a call as the entity's node has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) class: Class,
    pub(super) text: String,
}

impl Fault {
    pub(super) fn new(class: Class, text: impl Into<String>) -> Fault {
        Fault { class, text: text.into() }
    }

    pub(super) fn of(error: &EntityError) -> Fault {
        use EntityError::{Conflict, Cycle, Key, Message, NotRegistered, Once, State, TimedOut};
        let class = match error {
            EntityError::ShutDown | Key(KeyError::OtherShard) => Class::NotHere,
            Key(_) | State(_) | NotRegistered { .. } | Conflict(_) | Message(_) | Once(_) => {
                Class::Refused
            }
            EntityError::Unknown(_) | Cycle { enqueued: true } | TimedOut { enqueued: true } => {
                Class::Unknown
            }
            _ => Class::NotKept,
        };
        Fault::new(class, error.to_string())
    }
}

impl From<Fault> for ClusterError {
    fn from(Fault { class, text }: Fault) -> ClusterError {
        match class {
            Class::NotHere => ClusterError::Unavailable(text),
            Class::Refused => ClusterError::Refused(text),
            Class::NotKept => ClusterError::NotKept(text),
            Class::Unknown => ClusterError::Unknown(text),
        }
    }
}
