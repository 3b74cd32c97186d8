//! The version of the layout on disk, and the check that refuses any other.
//!
//! The database `format` holds one entry:
//!
//! | key       | value                                      |
//! |-----------|--------------------------------------------|
//! | `version` | the layout's version, `u32`, little endian |
//!
//! The version changes with any change to what older programs would misread: the databases, the
//! records, the meaning of a key. A changed layout comes with a migration from the one before.

use std::path::Path;

use heed::types::Bytes;
use heed::{CommitOrAbort, Env, WithoutTls};

use crate::OpenError;
use crate::environment::Entries;
use crate::error::io_error;

/// The layout this program reads and writes.
const VERSION: u32 = 1;

/// How many named databases the environment has.
pub(crate) const DATABASES: u32 = 2;

const FORMAT: &str = "format";
const ENTRIES: &str = "entries";
const VERSION_KEY: &[u8] = b"version";

/// Opens the table of entries after checking the layout; makes both in an empty environment.
pub(crate) fn open_entries(env: &Env<WithoutTls>, directory: &Path) -> Result<Entries, OpenError> {
    let engine = |error| OpenError::Io { path: directory.into(), source: io_error(error) };
    let txn = env.write_txn().map_err(engine)?;
    let opened = env.create_databases_and_commit(txn, |opener, txn| {
        let root = opener.open_database::<Bytes, Bytes>(txn, None)?;
        let fresh = match root {
            Some(root) => root.is_empty(txn)?,
            None => true,
        };
        if !fresh {
            let version = match opener.open_database::<Bytes, Bytes>(txn, Some(FORMAT)) {
                Ok(Some(format)) => format.get(txn, VERSION_KEY)?.map(<[u8; 4]>::try_from),
                // The name exists but is an entry of someone's unnamed database.
                Ok(None) | Err(heed::Error::Mdb(heed::MdbError::Incompatible)) => None,
                Err(error) => return Err(error),
            };
            let refusal = match version {
                Some(Ok(bytes)) => match u32::from_le_bytes(bytes) {
                    VERSION => None,
                    found => {
                        Some(OpenError::Format { path: directory.into(), found, known: VERSION })
                    }
                },
                Some(Err(_)) | None => Some(OpenError::Foreign { path: directory.into() }),
            };
            if let Some(refusal) = refusal {
                return Ok(CommitOrAbort::Abort(refusal));
            }
        }
        if fresh {
            let format = opener.create_database::<Bytes, Bytes>(txn, Some(FORMAT))?;
            format.put(txn, VERSION_KEY, &VERSION.to_le_bytes())?;
        }
        Ok(CommitOrAbort::Commit(opener.create_database::<Bytes, Bytes>(txn, Some(ENTRIES))?))
    });
    match opened.map_err(engine)? {
        CommitOrAbort::Commit(entries) => Ok(entries),
        CommitOrAbort::Abort(refusal) => Err(refusal),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::open_bare;

    /// Puts one entry into a database, around the store.
    fn put(env: &Env<WithoutTls>, database: Option<&str>, key: &[u8], value: &[u8]) {
        let txn = env.write_txn().unwrap();
        let database = env
            .create_databases_and_commit(txn, |opener, txn| {
                opener
                    .create_database::<Bytes, Bytes>(txn, database)
                    .map(CommitOrAbort::<_, ()>::Commit)
            })
            .unwrap()
            .unwrap_commit();
        let mut txn = env.write_txn().unwrap();
        database.put(&mut txn, key, value).unwrap();
        txn.commit().unwrap();
    }

    #[test]
    fn a_new_environment_opens_again() {
        let directory = tempfile::tempdir().unwrap();
        let env = open_bare(directory.path());
        open_entries(&env, directory.path()).unwrap();
        open_entries(&env, directory.path()).unwrap();
    }

    #[test]
    fn another_version_is_refused_with_both_numbers() {
        let directory = tempfile::tempdir().unwrap();
        let env = open_bare(directory.path());
        open_entries(&env, directory.path()).unwrap();
        for version in [0, VERSION + 1, u32::MAX] {
            put(&env, Some(FORMAT), VERSION_KEY, &version.to_le_bytes());
            let refusal = open_entries(&env, directory.path()).unwrap_err();
            assert!(
                matches!(refusal, OpenError::Format { found, known: VERSION, .. } if found == version)
            );
        }
    }

    #[test]
    fn a_strangers_database_is_refused() {
        let named = tempfile::tempdir().unwrap();
        let env = open_bare(named.path());
        put(&env, Some("theirs"), b"key", b"value");
        let refusal = open_entries(&env, named.path());
        assert!(matches!(refusal, Err(OpenError::Foreign { .. })));

        for key in [&b"key"[..], b"format"] {
            let unnamed = tempfile::tempdir().unwrap();
            let env = open_bare(unnamed.path());
            put(&env, None, key, b"value");
            let refusal = open_entries(&env, unnamed.path());
            assert!(matches!(refusal, Err(OpenError::Foreign { .. })), "{refusal:?}");
        }
    }
}
