//! Import: copies the entries of an LMDB directory that another program has written.
//!
//! LMDB keeps the names of its databases as keys of a database without a name, beside that one's own
//! entries. An entry with the length of a description is a database if LMDB opens it as one.
//!
//! Databases in the order of bytes are loaded (`write/load.rs`). Others, such as those with integer keys
//! of the machine's byte order, are written in batches, which sorts them.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::claim::Claim;
use crate::disk::lmdb::{self, Cursor, Entry, Env, Move, Order, ROOT, ReadTxn, Settings};
use crate::disk::{DATA_FILE, format};
use crate::table::{Table, TableRef};
use crate::{
    Batch, Bytes, DATABASES_MAX, DatabaseError, DatabaseOptions, LoadError, OpenError, ReadError,
    Store, WriteError,
};

/// A database that was imported, from [`Store::import`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Imported {
    /// Name of the database; `None` for the database without a name, whose entries are in the default
    /// database.
    pub name: Option<String>,
    /// Number of entries; each of several values under a key counts.
    pub entries: u64,
}

/// Error of an import.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The directory has no data file of LMDB: check the path.
    #[error("there is no `data.mdb` of LMDB in {}", path.display())]
    NoData {
        /// The directory to import from.
        path: PathBuf,
    },
    /// The directory holds a store: copy it by [`Store::backup`].
    #[error("{} is a store already; copy it by a backup", path.display())]
    IsStore {
        /// The directory to import from.
        path: PathBuf,
    },
    /// A database cannot exist in a store: its name is not UTF-8, or it has no name and several values
    /// under a key.
    #[error("the database \"{name}\" cannot be imported: {reason}")]
    Unsupported {
        /// Name of the database, with escapes.
        name: String,
        /// Reason why not.
        reason: &'static str,
    },
    /// A database could not be created.
    #[error("the database {name:?} could not be created: {source}")]
    Database {
        /// Name of the database.
        name: String,
        /// The underlying error.
        source: DatabaseError,
    },
    /// An entry could not be stored; those before it are.
    #[error("{source}, in the database \"{name}\"")]
    Load {
        /// Name of the database; empty for the database without a name.
        name: String,
        /// The underlying error.
        source: LoadError,
    },
    /// Entries could not be written.
    #[error("the entries of the database \"{name}\" could not be written: {source}")]
    Write {
        /// Name of the database; empty for the database without a name.
        name: String,
        /// The underlying error.
        source: Box<WriteError>,
    },
    /// The directory could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The directory to import from.
        path: PathBuf,
        /// The underlying error.
        source: io::Error,
    },
}

struct Source {
    path: PathBuf,
    env: std::sync::Arc<Env>,
    named: BTreeMap<String, Table>,
    /// Kept until the environment is closed, which is dropped before it.
    _claim: Claim,
}

struct Part<'p> {
    name: Option<&'p str>,
    table: Table,
    order: Order,
    into: TableRef,
}

/// Number of operations of a batch, and of bytes, for databases in another order.
const BATCH_OPERATIONS: usize = 1_000;
const BATCH_BYTES: usize = 1 << 20;

impl Store {
    /// Copies all entries of the LMDB directory `from`, which another program has written, into this
    /// store, and returns the databases and their numbers of entries.
    ///
    /// A database keeps its name, and has checksums here unless it has several values under a key. The
    /// entries of the database without a name go to the default database. Keys that exist get the new
    /// values. LMDB reads the directory as it is at one moment, and the other program may go on; LMDB
    /// trusts the file, so import from a file that is not damaged.
    ///
    /// Databases in the order of bytes cost as much as a [load](crate::Database::load); others, such as
    /// those with integer keys, are written in batches.
    ///
    /// # Errors
    ///
    /// [`ImportError`]. Databases that were complete before the error are stored, and part of the one at
    /// which it occurred: import again, or start with an empty store.
    pub fn import(&self, from: impl AsRef<Path>) -> Result<Vec<Imported>, ImportError> {
        let source = Source::open(from.as_ref())?;
        let mut imported = Vec::new();
        let txn = source.env.begin_read().map_err(|error| source.unreadable(error))?;
        let unnamed = source.order(&txn, ROOT)?;
        let is_entry = |key: &[u8]| {
            std::str::from_utf8(key).map_or(true, |key| !source.named.contains_key(key))
        };
        let into = self.environment().entries();
        let part = Part { name: None, table: ROOT, order: unnamed, into };
        let entries = source.copy(self, &txn, &part, &is_entry)?;
        if entries > 0 {
            imported.push(Imported { name: None, entries });
        }
        for (name, table) in &source.named {
            let order = source.order(&txn, *table)?;
            let options = DatabaseOptions::new();
            let options = if order.duplicates { options.duplicates() } else { options };
            let database = self
                .database_with::<Bytes, Bytes>(name, &options)
                .map_err(|source| ImportError::Database { name: name.clone(), source })?;
            let into = database.table_ref();
            let part = Part { name: Some(name), table: *table, order, into };
            let entries = source.copy(self, &txn, &part, &|_| true)?;
            imported.push(Imported { name: Some(name.clone()), entries });
        }
        Ok(imported)
    }
}

impl Source {
    fn open(path: &Path) -> Result<Source, ImportError> {
        let unreadable = |source| ImportError::Read { path: path.into(), source };
        let bytes = match fs::metadata(path.join(DATA_FILE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(ImportError::NoData { path: path.into() });
            }
            metadata => metadata.map_err(unreadable)?.len(),
        };
        let claim = Claim::to_read(path).map_err(|error| match error {
            OpenError::Io { source, .. } => unreadable(source),
            other => unreadable(io::Error::other(other)),
        })?;
        let settings = Settings {
            // LMDB makes the map as long as the file says if that is more.
            map_bytes: usize::try_from(bytes).unwrap_or(usize::MAX).next_multiple_of(64 << 10),
            readers_max: 126,
            tables_max: DATABASES_MAX,
            no_sync: false,
            write_map: false,
            no_read_ahead: false,
            is_foreign: true,
            platform: Arc::default(),
        };
        let foreign = |error| match error {
            lmdb::Error::NotData | lmdb::Error::Version => {
                ImportError::NoData { path: path.into() }
            }
            other => unreadable(other.into_io()),
        };
        let (env, _) = Env::open(&claim, &settings).map_err(foreign)?;
        if format::is_ours(&env).map_err(|error| unreadable(error.into_io()))? {
            return Err(ImportError::IsStore { path: path.into() });
        }
        let mut source = Source { path: path.into(), env, named: BTreeMap::new(), _claim: claim };
        source.named = source.databases()?;
        Ok(source)
    }

    fn databases(&self) -> Result<BTreeMap<String, Table>, ImportError> {
        let failed = |error| self.unreadable(error);
        let txn = self.env.begin_read().map_err(failed)?;
        let mut cursor = txn.cursor(ROOT).map_err(failed)?;
        let mut named = BTreeMap::new();
        let mut unnamed = None;
        let walked = self.env.open_tables(|open| {
            let mut entry = cursor.step(Move::First)?;
            while let Some((key, value)) = entry {
                if value.len() == lmdb::DESCRIPTION_BYTES && !key.contains(&0) {
                    match (open(&String::from_utf8_lossy(key)), std::str::from_utf8(key)) {
                        (Ok(Some(table)), Ok(name)) => drop(named.insert(name.to_owned(), table)),
                        (Ok(Some(_)), Err(_)) => unnamed = Some(key),
                        // An entry of the database without a name.
                        (Ok(None) | Err(lmdb::Error::Incompatible), _) => {}
                        (Err(error), _) => return Err(error),
                    }
                }
                entry = cursor.step(Move::Next)?;
            }
            Ok(())
        });
        walked.map_err(failed)?;
        unnamed.map_or(Ok(named), |key| Err(unsupported(key, "its name is not UTF-8")))
    }

    fn order(&self, txn: &ReadTxn, table: Table) -> Result<Order, ImportError> {
        let order = txn.order(table).map_err(|error| self.unreadable(error))?;
        if table == ROOT && order.duplicates {
            return Err(unsupported(b"", "it has no name, and several values under a key"));
        }
        Ok(order)
    }

    /// Copies the entries of a database whose keys are wanted, and returns their number.
    fn copy(
        &self,
        store: &Store,
        txn: &ReadTxn,
        part: &Part<'_>,
        is_wanted: &dyn Fn(&[u8]) -> bool,
    ) -> Result<u64, ImportError> {
        let Part { table, order, into, .. } = *part;
        let name = || part.name.unwrap_or_default().to_owned();
        let cursor = txn.cursor(table).map_err(|error| self.unreadable(error))?;
        let mut entries = Entries { cursor, is_begun: false, failed: None };
        let wanted = entries.by_ref().filter(|(key, _)| is_wanted(key));
        let number = if order.is_bytewise {
            let loaded = store.load_into::<Bytes, Bytes>(into, wanted);
            loaded.map_err(|source| ImportError::Load { name: name(), source })?
        } else {
            let written = write(store, into, wanted);
            written.map_err(|error| ImportError::Write { name: name(), source: Box::new(error) })?
        };
        match entries.failed {
            Some(error) => Err(self.unreadable(error)),
            None => Ok(number),
        }
    }

    fn unreadable(&self, error: lmdb::Error) -> ImportError {
        let source = match ReadError::from_engine(error) {
            ReadError::Io(source) => source,
            other => io::Error::other(other),
        };
        ImportError::Read { path: self.path.clone(), source }
    }
}

/// Writes entries in any order, in batches, and returns their number.
fn write<'t>(
    store: &Store,
    into: TableRef,
    entries: impl Iterator<Item = Entry<'t>>,
) -> Result<u64, WriteError> {
    let (mut batch, mut number) = (Batch::new(), 0);
    for (key, value) in entries {
        batch = batch.put_at(into, key, value);
        number += 1;
        if batch.len() >= BATCH_OPERATIONS || batch.bytes() >= BATCH_BYTES {
            store.write(std::mem::take(&mut batch)).wait()?;
        }
    }
    store.write(batch).wait()?;
    Ok(number)
}

/// The entries of a table, up to the first that cannot be read.
struct Entries<'t> {
    cursor: Cursor<'t>,
    is_begun: bool,
    failed: Option<lmdb::Error>,
}

impl<'t> Iterator for Entries<'t> {
    type Item = Entry<'t>;

    fn next(&mut self) -> Option<Entry<'t>> {
        let to = if self.is_begun { Move::Next } else { Move::First };
        self.is_begun = true;
        match self.cursor.step(to) {
            Ok(entry) => entry,
            Err(error) => {
                self.failed = Some(error);
                None
            }
        }
    }
}

fn unsupported(name: &[u8], reason: &'static str) -> ImportError {
    ImportError::Unsupported { name: name.escape_ascii().to_string(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use crate::disk::lmdb::{Make, Put};

    /// Name of a database, whether a key may have several values, and its entries.
    type Database<'d> = (Option<&'d str>, bool, &'d [(&'d [u8], &'d [u8])]);

    /// Writes an LMDB directory as another program would.
    fn foreign(directory: &Path, tables: &[Database<'_>]) {
        let claim = Claim::to_write(directory).unwrap();
        let settings = Options::default().map_bytes(16 << 20).settings();
        let env = Env::open(&claim, &settings).unwrap().0;
        for (name, duplicates, entries) in tables {
            let make = Make { duplicates: *duplicates };
            let table = name.map(|name| env.make_table(name, make, |_| Ok(())).unwrap());
            let mut txn = env.begin_write().unwrap();
            let mut cursor = txn.cursor_mut(table.unwrap_or(ROOT)).unwrap();
            for (key, value) in *entries {
                cursor.put(key, value, Put::Over).unwrap();
            }
            drop(cursor);
            txn.commit().unwrap();
        }
    }

    #[test]
    fn every_database_arrives_with_its_entries() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        // As long as the description of a database, and yet an entry.
        let looks_like = [7; lmdb::DESCRIPTION_BYTES];
        foreign(
            from.path(),
            &[
                (Some("users"), false, &[(b"ada", b"1815"), (b"alan", b"1912")]),
                (Some("tags"), true, &[(b"x", b"1"), (b"x", b"2"), (b"y", b"1")]),
                (Some("empty"), false, &[]),
                // The last, because LMDB compares names only once it has opened one.
                (None, false, &[(b"plain", b"1"), (b"like", &looks_like), (b"\xff\xfe", b"")]),
            ],
        );
        let store = Store::open(to.path()).unwrap();
        for _ in 0..2 {
            let imported = store.import(from.path()).unwrap();
            let numbers: Vec<_> =
                imported.iter().map(|of| (of.name.as_deref(), of.entries)).collect();
            let expected = [(None, 3), (Some("empty"), 0), (Some("tags"), 3), (Some("users"), 2)];
            assert_eq!(numbers, expected);
        }
        let snapshot = store.snapshot().unwrap();
        assert_eq!(
            store.default_database::<Bytes, Bytes>().get(&snapshot, b"like").unwrap(),
            Some(&looks_like[..])
        );
        assert_eq!(
            store.default_database::<Bytes, Bytes>().get(&snapshot, b"\xff\xfe").unwrap(),
            Some(&b""[..])
        );
        assert_eq!(store.default_database::<Bytes, Bytes>().len(&snapshot).unwrap(), 3);
        let users = store.database::<Bytes, Bytes>("users").unwrap();
        assert_eq!(users.get(&snapshot, b"ada").unwrap(), Some(&b"1815"[..]));
        let several = DatabaseOptions::new().duplicates();
        let tags = store.database_with::<Bytes, Bytes>("tags", &several).unwrap();
        let values: Vec<_> = tags.values(&snapshot, b"x").map(|entry| entry.unwrap().1).collect();
        assert_eq!(values, [b"1", b"2"]);
        assert_eq!(store.verify().unwrap(), 8);
    }

    /// The file is of `mdb_load` 0.9.24, and has the default database, and one each of names, of several
    /// values under a key, and of integer keys.
    #[cfg(all(target_endian = "little", target_pointer_width = "64"))]
    #[test]
    fn a_file_of_another_program_arrives() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let file = include_bytes!("../tests/fixtures/lmdb-0.9.24/data.mdb");
        fs::write(from.path().join(DATA_FILE), file).unwrap();
        let store = Store::open(to.path()).unwrap();
        let imported = store.import(from.path()).unwrap();
        let entries: Vec<_> = imported.iter().map(|of| of.entries).collect();
        assert_eq!(entries, [2, 7, 3, 3]);
        let numbers = store.database::<Bytes, crate::Str>("numbers").unwrap();
        let snapshot = store.snapshot().unwrap();
        for number in [0, 1, 2, 255, 256, 257, 65_536u64] {
            let square = (number * number).to_string();
            let found = numbers.get(&snapshot, &number.to_le_bytes()).unwrap();
            assert_eq!(found, Some(square.as_str()));
        }
    }

    #[test]
    fn a_directory_that_cannot_be_imported_is_refused_by_name() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let store = Store::open(to.path()).unwrap();
        assert!(matches!(store.import(from.path()), Err(ImportError::NoData { .. })));
        fs::write(from.path().join(DATA_FILE), [1; 8192]).unwrap();
        assert!(matches!(store.import(from.path()), Err(ImportError::NoData { .. })));
        let own = tempfile::tempdir().unwrap();
        drop(Store::open(own.path()).unwrap());
        assert!(matches!(store.import(own.path()), Err(ImportError::IsStore { .. })));
        // The store itself is open in this process.
        assert!(matches!(store.import(to.path()), Err(ImportError::Read { .. })));
        let other = tempfile::tempdir().unwrap();
        foreign(other.path(), &[(Some("users"), false, &[(b"ada", b"1815")])]);
        let several = DatabaseOptions::new().duplicates();
        store.database_with::<Bytes, Bytes>("users", &several).unwrap();
        let refused = store.import(other.path()).unwrap_err();
        assert!(matches!(&refused, ImportError::Database { name, .. } if name == "users"));
    }

    #[test]
    fn entries_in_another_order_are_sorted() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let keys: Vec<[u8; 4]> = (0..3_000u32).map(u32::to_le_bytes).collect();
        let entries = keys.iter().map(|key| (&key[..], &key[..]));
        assert_eq!(write(&store, store.environment().entries(), entries).unwrap(), 3_000);
        let snapshot = store.snapshot().unwrap();
        assert!(
            keys.iter().all(|key| store
                .default_database::<Bytes, Bytes>()
                .get(&snapshot, key)
                .unwrap()
                == Some(&key[..]))
        );
        assert_eq!(store.default_database::<Bytes, Bytes>().len(&snapshot).unwrap(), 3_000);
    }
}
