//! [`Error`]: LMDB's codes, sorted by what this crate does about them.

use std::ffi::c_int;
use std::io;

use lmdb_master_sys as ffi;

/// What LMDB answers when it does not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The key is there already, or is not above the last one where it was to be appended.
    #[error("the key exists already")]
    KeyExists,
    /// The map is used up.
    #[error("the map is full")]
    MapFull,
    /// The transaction has touched too many pages.
    #[error("the transaction is too large")]
    TxnFull,
    /// All slots of readers are taken.
    #[error("all slots of readers are taken")]
    ReadersFull,
    /// All slots of tables are taken.
    #[error("all slots of databases are taken")]
    TablesFull,
    /// A commit failed half-way: every operation fails until the environment is reopened.
    #[error("the environment must be opened anew")]
    Panic,
    /// The transaction does not know the table: it began before the table was made.
    #[error("the transaction does not know the database")]
    UnknownTable,
    /// The table has other properties than asked for, or the name is no table.
    #[error("the database has other properties")]
    Incompatible,
    /// The file is not what LMDB wrote.
    #[error("the data file is damaged: {0}")]
    Corrupt(String),
    /// The file was written by another version of LMDB.
    #[error("the data file was written by another version of LMDB")]
    Version,
    /// The file is none of LMDB's.
    #[error("the file is no data file")]
    NotData,
    /// The operating system refused.
    #[error(transparent)]
    Io(io::Error),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl Error {
    /// Whether the code is success, or else which error.
    pub(super) fn check(code: c_int) -> Result<(), Error> {
        if code == ffi::MDB_SUCCESS { Ok(()) } else { Err(Error::from_code(code)) }
    }

    /// As [`check`](Error::check), with "not found" as `false`.
    pub(super) fn check_found(code: c_int) -> Result<bool, Error> {
        if code == ffi::MDB_NOTFOUND { Ok(false) } else { Error::check(code).map(|()| true) }
    }

    /// The error of a call whose only wrong argument can be the table: LMDB says so in general
    /// terms where the transaction does not know the number.
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
            // LMDB's own codes are negative, those of the system positive.
            code if code > 0 => Error::Io(io::Error::from_raw_os_error(code)),
            code => Error::Other(format!("the engine answered with its error {code}")),
        }
    }

    /// For callers who shall not need to know the engine.
    pub(crate) fn into_io(self) -> io::Error {
        match self {
            Error::Io(error) => error,
            Error::MapFull => io::Error::new(io::ErrorKind::StorageFull, self.to_string()),
            other => io::Error::other(other.to_string()),
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
