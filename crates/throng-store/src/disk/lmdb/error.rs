//! [`Error`]: LMDB's error codes, classified by this crate's reaction.

use std::ffi::c_int;
use std::io;
use std::path::{Path, PathBuf};

use lmdb_master_sys as ffi;

use crate::{DatabaseError, OpenError, ReadError};

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The key exists, or is not above the last key when it was to be appended.
    #[error("the key already exists")]
    KeyExists,
    /// The map is full.
    #[error("the map is full")]
    MapFull,
    /// The transaction has changed too many pages.
    #[error("the transaction is too large")]
    TxnFull,
    /// All reader slots are taken.
    #[error("all reader slots are taken")]
    ReadersFull,
    /// All table slots are taken.
    #[error("all database slots are taken")]
    TablesFull,
    /// A commit failed half-way: every operation fails until the environment is reopened.
    #[error("the environment must be reopened")]
    Panic,
    /// The transaction does not know the table, because it began before the table was created.
    #[error("the transaction does not know the database")]
    UnknownTable,
    /// The table has other properties than requested, or the name is not a table.
    #[error("the database has other properties than requested")]
    Incompatible,
    /// The file is damaged.
    #[error("the data file is damaged: {0}")]
    Corrupt(String),
    /// The file was written by another version of LMDB.
    #[error("the data file was written by another version of LMDB")]
    Version,
    /// The file is not an LMDB file.
    #[error("the file is not a data file")]
    NotData,
    /// An error of the operating system.
    #[error(transparent)]
    Io(io::Error),
    /// Any other error.
    #[error("{0}")]
    Other(String),
}

impl Error {
    pub(super) fn check(code: c_int) -> Result<(), Error> {
        if code == ffi::MDB_SUCCESS { Ok(()) } else { Err(Error::from_code(code)) }
    }

    /// Converts LMDB's return code to a result, with "not found" as `false`; see
    /// [`check`](Error::check).
    pub(super) fn check_found(code: c_int) -> Result<bool, Error> {
        if code == ffi::MDB_NOTFOUND { Ok(false) } else { Error::check(code).map(|()| true) }
    }

    /// Converts the error of a call whose only invalid argument can be the table: LMDB reports an
    /// unknown table as an invalid argument.
    pub(super) fn of_table(error: Error) -> Error {
        match error {
            Error::Io(error) if error.kind() == io::ErrorKind::InvalidInput => Error::UnknownTable,
            other => other,
        }
    }

    pub(super) fn from_code(code: c_int) -> Error {
        match code {
            ffi::MDB_KEYEXIST => Error::KeyExists,
            ffi::MDB_MAP_FULL => Error::MapFull,
            ffi::MDB_TXN_FULL => Error::TxnFull,
            ffi::MDB_READERS_FULL => Error::ReadersFull,
            ffi::MDB_DBS_FULL => Error::TablesFull,
            ffi::MDB_PANIC => Error::Panic,
            ffi::MDB_BAD_DBI => Error::UnknownTable,
            ffi::MDB_INCOMPATIBLE => Error::Incompatible,
            ffi::MDB_CORRUPTED => Error::Corrupt("a page is of the wrong kind".into()),
            ffi::MDB_PAGE_NOTFOUND => Error::Corrupt("a page is missing".into()),
            ffi::MDB_VERSION_MISMATCH => Error::Version,
            ffi::MDB_INVALID => Error::NotData,
            // LMDB's own codes are negative, the operating system's positive.
            code if code > 0 => Error::Io(io::Error::from_raw_os_error(code)),
            code => Error::Other(format!("the engine answered with its error {code}")),
        }
    }

    /// Converts the error for callers that do not know the engine.
    pub(crate) fn into_io(self) -> io::Error {
        match self {
            Error::Io(error) => error,
            Error::MapFull => io::Error::new(io::ErrorKind::StorageFull, self.to_string()),
            other => io::Error::other(other.to_string()),
        }
    }
}

impl OpenError {
    pub(crate) fn from_engine(error: Error, path: &Path) -> OpenError {
        let path: PathBuf = path.into();
        match error {
            Error::TablesFull => OpenError::TooManyDatabases { path },
            Error::Corrupt(reason) => OpenError::Corrupt { path, reason },
            Error::NotData | Error::Version | Error::Incompatible => OpenError::Foreign { path },
            other => OpenError::from_io(other.into_io(), &path),
        }
    }

    pub(crate) fn from_read(error: ReadError, directory: &Path) -> OpenError {
        let path = directory.into();
        match error {
            ReadError::Corrupt(reason) => OpenError::Corrupt { path, reason },
            ReadError::Io(source) => OpenError::Io { path, source },
            other => OpenError::Io { path, source: io::Error::other(other) },
        }
    }
}

impl DatabaseError {
    pub(crate) fn from_engine(error: Error) -> DatabaseError {
        match error {
            Error::TablesFull => DatabaseError::TooMany,
            Error::Panic => DatabaseError::Recovering,
            other => DatabaseError::Failed(other.to_string()),
        }
    }
}

impl ReadError {
    pub(crate) fn from_engine(error: Error) -> ReadError {
        match error {
            Error::ReadersFull => ReadError::TooManySnapshots,
            Error::Panic => ReadError::Recovering,
            Error::Corrupt(reason) => ReadError::Corrupt(reason),
            other => ReadError::Io(other.into_io()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_the_system_stay_what_they_are() {
        let Error::Io(error) = Error::from_code(28) else { panic!("28 is the system's") };
        assert_eq!(error.raw_os_error(), Some(28));
        assert!(
            matches!(Error::from_code(ffi::MDB_BAD_VALSIZE), Error::Other(text) if !text.is_empty())
        );
        assert!(matches!(Error::check_found(ffi::MDB_NOTFOUND), Ok(false)));
    }
}
