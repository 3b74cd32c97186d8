//! [`Damage`]: the reason why a file of a store cannot be used.

use std::io;
use std::path::Path;

use crate::{OpenError, ReadError};

/// Reason why a file cannot be used.
#[derive(Debug)]
pub(crate) enum Damage {
    /// The file is not a file of the engine.
    Foreign,
    /// Description of the damage.
    Found(String),
    Io(io::Error),
}

impl From<io::Error> for Damage {
    fn from(error: io::Error) -> Damage {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => found("a page lies beyond the end of the file"),
            _ => Damage::Io(error),
        }
    }
}

impl Damage {
    pub(crate) fn into_io(self) -> io::Error {
        match self {
            Damage::Foreign => io::Error::other("the file is not a data file"),
            Damage::Found(reason) => io::Error::other(reason),
            Damage::Io(error) => error,
        }
    }

    pub(crate) fn into_open_error(self, directory: &Path) -> OpenError {
        let path = directory.into();
        match self {
            Damage::Foreign => OpenError::Foreign { path },
            Damage::Found(reason) => OpenError::Corrupt { path, reason },
            Damage::Io(source) => OpenError::Io { path, source },
        }
    }
}

impl ReadError {
    pub(crate) fn from_damage(damage: Damage) -> ReadError {
        match damage {
            Damage::Found(reason) => ReadError::Corrupt(reason),
            damage => ReadError::Io(damage.into_io()),
        }
    }
}

pub(crate) fn found(what: impl Into<String>) -> Damage {
    Damage::Found(what.into())
}
