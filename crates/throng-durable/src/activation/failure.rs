//! Failures of an activation: why it could not be loaded, and what its callers get.

use std::io;
use std::sync::Arc;

use throng::Panic;
use throng_store::ReadError;

use crate::{EntityError, StateError};

/// Error of an activation that failed. The callers of all messages that wait for the entity get
/// this error.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    State(StateError),
    Load(Arc<ReadError>),
    /// The runtime ended before the state was loaded.
    ShutDown,
    Panicked(Panic),
    /// The changes of the hook `started` could not be committed.
    Started(Arc<str>),
}

impl Failure {
    /// Whether a further attempt fails for the same reason, as far as one can tell.
    pub(crate) fn is_lasting(&self) -> bool {
        match self {
            Failure::State(_) | Failure::Panicked(_) | Failure::Started(_) => true,
            Failure::Load(error) => matches!(**error, ReadError::Corrupt(_)),
            Failure::ShutDown => false,
        }
    }
}

impl From<Failure> for EntityError {
    fn from(failure: Failure) -> EntityError {
        match failure {
            Failure::State(error) => EntityError::State(error),
            Failure::Load(error) => EntityError::Load(same(&error)),
            Failure::ShutDown => EntityError::ShutDown,
            Failure::Panicked(panic) => EntityError::Panicked(panic),
            Failure::Started(text) => EntityError::Started(text),
        }
    }
}

/// Copies the error for another message.
fn same(error: &ReadError) -> ReadError {
    match error {
        ReadError::TooManySnapshots => ReadError::TooManySnapshots,
        ReadError::Expired => ReadError::Expired,
        ReadError::Recovering => ReadError::Recovering,
        ReadError::Corrupt(text) => ReadError::Corrupt(text.clone()),
        ReadError::Io(error) => ReadError::Io(io::Error::new(error.kind(), error.to_string())),
        error => ReadError::Io(io::Error::other(error.to_string())),
    }
}
