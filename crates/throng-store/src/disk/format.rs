//! The version of the layout on disk, the check that refuses any other version, and the stored
//! names of databases.
//!
//! The table `format` holds two entries, little endian:
//!
//! | key       | value                                                                   |
//! |-----------|-------------------------------------------------------------------------|
//! | `version` | the layout's version, `u32`                                             |
//! | `names`   | CRC-32 of the names of all tables, each followed by a zero              |
//!
//! Without the second entry, a database whose name was damaged would disappear unnoticed.
//!
//! The other tables:
//!
//! | name      | content                                                                 |
//! |-----------|-------------------------------------------------------------------------|
//! | `entries` | the default database, of the kind of a name with a `+`                   |
//! | `+name`   | the database `name`, its values being records (see `record.rs`)         |
//! | `-name`   | the same without checksums: values as they are                          |
//! | `*name`   | the same with several values under a key, in order, without checksums   |
//!
//! A checksum in front of a value would order the values of a key by their checksums, and a
//! checksum after a value would change their order as well, so ordered values have none.
//!
//! The version changes with any change to data that older programs would misread: the databases,
//! the records, the meaning of a key. A changed layout comes with a migration from the version
//! before, if that version was ever released; version 1, which had only long checksums and no
//! `names`, was not.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::OpenError;
use crate::database::{Kind, TableRef};
use crate::disk::lmdb::{self, Cursor, Env, Make, Move, Put, ROOT, Table, WriteTxn};

/// Layout version that this program reads and writes.
const VERSION: u32 = 2;

/// Number of tables besides the named databases.
pub(crate) const OWN_TABLES: u32 = 2;

const FORMAT: &str = "format";
/// Name of the table of the default database.
pub(crate) const ENTRIES: &str = "entries";
const VERSION_KEY: &[u8] = b"version";
pub(crate) const NAMES_KEY: &[u8] = b"names";

/// Databases of an environment.
#[derive(Debug)]
pub(crate) struct Databases {
    pub(crate) entries: TableRef,
    pub(crate) named: BTreeMap<String, TableRef>,
}

impl Databases {
    /// Returns the table with this name in the engine.
    pub(crate) fn table(&self, stored: &str) -> Option<Table> {
        if stored == ENTRIES {
            return Some(self.entries.table);
        }
        let (_, name) = Kind::of(stored)?;
        self.named.get(name).map(|table_ref| table_ref.table)
    }
}

/// Returns the name of a database's table in the engine.
pub(crate) fn stored_name(name: &str, kind: Kind) -> String {
    format!("{}{name}", kind.mark())
}

/// Opens all databases after checking the layout; creates the default database in an empty
/// environment.
///
/// Tables are numbered as they are opened, so the tables `known` from before come first, in the
/// order of their numbers.
pub(crate) fn open_databases(
    env: &Arc<Env>,
    directory: &Path,
    read_only: bool,
    known: &BTreeMap<String, TableRef>,
) -> Result<Databases, OpenError> {
    let engine = |error| OpenError::from_engine(error, directory);
    let foreign = || OpenError::Foreign { path: directory.into() };
    let is_new = env
        .begin_read()
        .and_then(|txn| Ok(txn.cursor(ROOT)?.step(Move::First)?.is_none()))
        .map_err(engine)?;
    if is_new {
        if read_only {
            return Err(foreign());
        }
        return make(env).map_err(engine);
    }

    let format = match env.open_table(FORMAT) {
        Ok(Some(format)) => format,
        // The name exists but is an entry in the unnamed database of another program.
        Ok(None) | Err(lmdb::Error::Incompatible) => return Err(foreign()),
        Err(error) => return Err(engine(error)),
    };
    let txn = env.begin_read().map_err(engine)?;
    let version = txn.get(format, VERSION_KEY).map_err(engine)?;
    match version.map(<[u8; 4]>::try_from) {
        Some(Ok(bytes)) => match u32::from_le_bytes(bytes) {
            VERSION => {}
            found => {
                return Err(OpenError::Format { path: directory.into(), found, known: VERSION });
            }
        },
        Some(Err(_)) | None => return Err(foreign()),
    }
    let mut names = txn.cursor(ROOT).and_then(names).map_err(engine)?;
    let stored_sum = txn.get(format, NAMES_KEY).map_err(engine)?;
    if stored_sum != Some(&names_sum(&names)) {
        let reason = NAMES_DAMAGED.into();
        return Err(OpenError::Corrupt { path: directory.into(), reason });
    }
    drop(txn);
    names.sort_by_key(|stored| {
        let known = Kind::of(stored).and_then(|(_, name)| known.get(name));
        known.map_or(u32::MAX, |table_ref| table_ref.table.0)
    });

    let entries = env.open_table(ENTRIES).map_err(engine)?.ok_or_else(foreign)?;
    let entries = TableRef { table: entries, kind: Kind::Checked };
    let mut named = BTreeMap::new();
    for stored in &names {
        if let Some((kind, name)) = Kind::of(stored) {
            let table = env.open_table(stored).map_err(engine)?.ok_or_else(foreign)?;
            named.insert(name.into(), TableRef { table, kind });
        }
    }
    Ok(Databases { entries, named })
}

/// Whether an environment, which has tables or not, is that of a store.
pub(crate) fn is_ours(env: &Arc<Env>) -> Result<bool, lmdb::Error> {
    let format = match env.open_table(FORMAT) {
        Err(lmdb::Error::Incompatible) => None,
        format => format?,
    };
    let Some(format) = format else { return Ok(false) };
    Ok(env.begin_read()?.get(format, VERSION_KEY)?.is_some())
}

/// Returns the content of the table of that name: a database of some kind, or `Some(None)` for the
/// format. `None` if the table is foreign.
pub(crate) fn kind(stored: &str) -> Option<Option<Kind>> {
    match stored {
        FORMAT => Some(None),
        ENTRIES => Some(Some(Kind::Checked)),
        _ => Kind::of(stored).map(|(kind, _)| Some(kind)),
    }
}

/// Opens a database by its name, and creates it if `make` is true.
pub(crate) fn open_database(
    env: &Env,
    name: &str,
    kind: Kind,
    make: bool,
) -> Result<Option<TableRef>, lmdb::Error> {
    let stored = stored_name(name, kind);
    let mut table = env.open_table(&stored)?;
    if table.is_none() && make {
        let make = Make { duplicates: kind == Kind::Duplicates };
        table = Some(env.make_table(&stored, make, |txn| {
            let format = txn.open_table(FORMAT, None)?.ok_or_else(unmade)?;
            put_names_sum(txn, format)
        })?);
    }
    Ok(table.map(|table| TableRef { table, kind }))
}

fn make(env: &Env) -> Result<Databases, lmdb::Error> {
    let make = Make { duplicates: false };
    let entries = env.make_table(ENTRIES, make, |txn| {
        let format = txn.open_table(FORMAT, Some(make))?.ok_or_else(unmade)?;
        txn.cursor_mut(format)?.put(VERSION_KEY, &VERSION.to_le_bytes(), Put::Over)?;
        put_names_sum(txn, format)
    })?;
    let entries = TableRef { table: entries, kind: Kind::Checked };
    Ok(Databases { entries, named: BTreeMap::new() })
}

fn unmade() -> lmdb::Error {
    lmdb::Error::Other("the engine made no database".into())
}

/// Stores the checksum of the current names of all tables.
fn put_names_sum(txn: &mut WriteTxn<'_>, format: Table) -> Result<(), lmdb::Error> {
    let sum = names_sum(&names(txn.cursor(ROOT)?)?);
    txn.cursor_mut(format)?.put(NAMES_KEY, &sum, Put::Over)
}

/// Returns the checksum of the names of all tables, in their order.
pub(crate) fn names_sum(names: &[String]) -> [u8; 4] {
    let mut hasher = crc32fast::Hasher::new();
    for name in names {
        hasher.update(name.as_bytes());
        hasher.update(&[0]);
    }
    hasher.finalize().to_le_bytes()
}

/// Error text for a wrong checksum of the names.
pub(crate) const NAMES_DAMAGED: &str = "the names of its databases have a wrong checksum";

/// Reads the names of all tables. A name that is not UTF-8 counts as foreign.
fn names(mut tables: Cursor<'_>) -> Result<Vec<String>, lmdb::Error> {
    let mut names = Vec::new();
    let mut entry = tables.step(Move::First)?;
    while let Some((name, _)) = entry {
        names.push(String::from_utf8_lossy(name).into_owned());
        entry = tables.step(Move::Next)?;
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use crate::disk::claim::Claim;

    /// Opens an environment without a store, for entries that no store would write.
    fn open_bare(directory: &Path) -> (Arc<Env>, Claim) {
        let claim = Claim::to_write(directory).unwrap();
        let options = Options::default().map_bytes(1 << 20);
        (Env::open(&claim, &options.settings()).unwrap().0, claim)
    }

    /// Puts an entry into a table, bypassing the store.
    fn put(env: &Env, table: Option<&str>, key: &[u8], value: &[u8]) {
        let table: Table = match table {
            None => ROOT,
            Some(name) => env.make_table(name, Make { duplicates: false }, |_| Ok(())).unwrap(),
        };
        let mut txn = env.begin_write().unwrap();
        txn.cursor_mut(table).unwrap().put(key, value, Put::Over).unwrap();
        txn.commit().unwrap();
    }

    #[test]
    fn a_new_environment_opens_again() {
        let directory = tempfile::tempdir().unwrap();
        let (env, _claim) = open_bare(directory.path());
        let first = open_databases(&env, directory.path(), false, &BTreeMap::new()).unwrap();
        let again = open_databases(&env, directory.path(), false, &BTreeMap::new()).unwrap();
        assert_eq!(first.entries, again.entries);
    }

    #[test]
    fn another_version_is_refused_with_both_numbers() {
        let directory = tempfile::tempdir().unwrap();
        let (env, _claim) = open_bare(directory.path());
        open_databases(&env, directory.path(), false, &BTreeMap::new()).unwrap();
        for version in [0, VERSION + 1, u32::MAX] {
            put(&env, Some(FORMAT), VERSION_KEY, &version.to_le_bytes());
            let refusal =
                open_databases(&env, directory.path(), false, &BTreeMap::new()).unwrap_err();
            assert!(
                matches!(refusal, OpenError::Format { found, known: VERSION, .. } if found == version)
            );
        }
    }

    #[test]
    fn a_foreign_database_is_refused() {
        let named = tempfile::tempdir().unwrap();
        let (env, _claim) = open_bare(named.path());
        put(&env, Some("theirs"), b"key", b"value");
        let refusal = open_databases(&env, named.path(), false, &BTreeMap::new());
        assert!(matches!(refusal, Err(OpenError::Foreign { .. })));

        for key in [&b"key"[..], b"format"] {
            let unnamed = tempfile::tempdir().unwrap();
            let (env, _claim) = open_bare(unnamed.path());
            put(&env, None, key, b"value");
            let refusal = open_databases(&env, unnamed.path(), false, &BTreeMap::new());
            assert!(matches!(refusal, Err(OpenError::Foreign { .. })), "{refusal:?}");
        }
    }
}
