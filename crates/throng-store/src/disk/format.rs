//! The version of the layout on disk, the check that refuses any other version, and the stored
//! names and numbers of databases.
//!
//! The table `format` holds these entries, little endian:
//!
//! | key       | value                                                                   |
//! |-----------|-------------------------------------------------------------------------|
//! | `version` | the layout's version, `u32`                                             |
//! | `names`   | CRC-32 of the names of all tables, each followed by a zero, and of `tables` |
//! | `store`   | the store's random id, `u64`, which its log has as well                 |
//! | `applied` | position up to which all changes are here, `u64`; chain checksum of the log's last record up to there, `u32` |
//! | `tables`  | the names of the databases besides `entries`, in the order in which they were made, each followed by a zero |
//! | `stamp`   | in a copy of a shared log: the state of that log at `applied`, see `write/sequencer.rs` |
//! | `origin`  | in a copy: id of the store that was copied, `u64`; the point of its log, as in `applied`; the time of the copy's last change, in milliseconds since 1970, `u64`: exactly or later |
//!
//! Without `names`, a database whose name was damaged would disappear unnoticed.
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
//! The records of the log name a table by its number, so a table has the same number at each
//! opening. LMDB numbers tables in the order in which they are opened:
//!
//! ```text
//! 0, 1         2        3         4, 5, 6 …
//! LMDB's own   format   entries   the databases, in the order of `tables`
//! ```
//!
//! A checksum in front of a value would order the values of a key by their checksums, and a
//! checksum after a value would change their order as well, so ordered values have none.
//!
//! The version changes with any change to data that another program version would misread: the databases,
//! the records, the meaning of a key.

pub(crate) mod entries;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

pub(crate) use self::entries::ENTRIES;
use self::entries::{
    APPLIED_KEY, FORMAT, LIST_DAMAGED, NAMES_DAMAGED, NAMES_KEY, POINT_DAMAGED, STORE_KEY,
    TABLES_KEY, VERSION_KEY, listed, names_sum, parse_applied, parse_store, point_bytes, split,
};
use crate::OpenError;
use crate::disk::lmdb::{self, Cursor, Env, Make, Move, Put, ROOT, ReadTxn, WriteTxn};
use crate::log::{Applied, Point};
use crate::table::{Kind, Table, TableRef};
use crate::write::sequencer::Stamp;

/// Layout version that this program reads and writes.
pub(crate) const VERSION: u32 = 1;

/// Number of tables besides the named databases.
pub(crate) const OWN_TABLES: u32 = 2;

/// Number of the first table, which is `format`; the lower numbers are LMDB's own.
const FIRST_TABLE: u32 = ROOT.0 + 1;

const ORIGIN_KEY: &[u8] = b"origin";
const STAMP_KEY: &[u8] = b"stamp";

#[derive(Debug)]
pub(crate) struct Databases {
    pub(crate) format: Table,
    pub(crate) store: u64,
    pub(crate) entries: TableRef,
    pub(crate) named: BTreeMap<String, TableRef>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    pub(crate) store: u64,
    /// Point of its log up to which the copy has all changes.
    pub(crate) point: Point,
    /// Time of the last change of the copy, or a later time, in milliseconds since 1970.
    pub(crate) time: u64,
}

/// Returns the name of a database's table in the engine.
fn stored_name(name: &str, kind: Kind) -> String {
    format!("{}{name}", kind.mark())
}

/// Opens all databases after checking the layout, each under its number; creates the default
/// database in an empty environment.
pub(crate) fn open_databases(
    env: &Arc<Env>,
    directory: &Path,
    read_only: bool,
) -> Result<Databases, OpenError> {
    let engine = |error| OpenError::from_engine(error, directory);
    let foreign = || OpenError::Foreign { path: directory.into() };
    let corrupt =
        |reason: &str| OpenError::Corrupt { path: directory.into(), reason: reason.into() };
    let is_new = env
        .begin_read()
        .and_then(|txn| Ok(txn.cursor(ROOT)?.step(Move::First)?.is_none()))
        .map_err(engine)?;
    if is_new {
        if read_only {
            return Err(foreign());
        }
        make(env).map_err(engine)?;
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
    let names = txn.cursor(ROOT).and_then(names).map_err(engine)?;
    let list = txn.get(format, TABLES_KEY).map_err(engine)?.unwrap_or_default();
    let stored_sum = txn.get(format, NAMES_KEY).map_err(engine)?;
    if stored_sum != Some(&names_sum(&names, list)) {
        return Err(corrupt(NAMES_DAMAGED));
    }
    let listed = listed(list, &names).ok_or_else(|| corrupt(LIST_DAMAGED))?;
    let store = parse_store(txn.get(format, STORE_KEY).map_err(engine)?);
    let store = store.ok_or_else(|| corrupt(POINT_DAMAGED))?;
    drop(txn);

    let tables = open_all(env, &listed).map_err(engine)?;
    let mut named = BTreeMap::new();
    for (stored, table) in listed.iter().zip(tables) {
        let (kind, name) = Kind::of(stored).ok_or_else(foreign)?;
        named.insert(name.into(), TableRef { table, kind });
    }
    let entries = TableRef { table: Table(FIRST_TABLE + 1), kind: Kind::Checked };
    Ok(Databases { format, store, entries, named })
}

/// Opens the store's own tables and these databases, in this order, and returns the databases.
fn open_all(env: &Env, listed: &[String]) -> Result<Vec<Table>, lmdb::Error> {
    let own = [FORMAT, ENTRIES].into_iter();
    let all = own.chain(listed.iter().map(String::as_str)).zip(FIRST_TABLE..);
    let mut tables = env.open_tables(|open| {
        all.map(|(stored, number)| match open(stored)? {
            Some(table) if table == Table(number) => Ok(table),
            _ => Err(misnumbered()),
        })
        .collect::<Result<Vec<_>, _>>()
    })?;
    Ok(tables.split_off(OWN_TABLES as usize))
}

fn misnumbered() -> lmdb::Error {
    lmdb::Error::Corrupt("a database has another number than before".into())
}

/// Reads the point of the log up to which LMDB has all changes.
pub(crate) fn applied(txn: &ReadTxn, format: Table) -> Result<Point, lmdb::Error> {
    let applied = parse_applied(txn.get(format, APPLIED_KEY)?);
    applied.ok_or_else(|| lmdb::Error::Corrupt(POINT_DAMAGED.into()))
}

/// Stores the applied point, in the transaction that has all changes up to there.
pub(crate) fn put_applied(
    txn: &mut WriteTxn<'_>,
    format: Table,
    at: impl Into<Applied>,
) -> Result<(), lmdb::Error> {
    let Applied { point, stamp } = at.into();
    let mut cursor = txn.cursor_mut(format)?;
    cursor.put(APPLIED_KEY, &point_bytes(point), Put::Over)?;
    stamp.map_or(Ok(()), |stamp| cursor.put(STAMP_KEY, &stamp.0, Put::Over))
}

/// Reads the state of the shared log at the applied point; `None` if the store is no copy.
pub(crate) fn stamp(txn: &ReadTxn, format: Table) -> Result<Option<Stamp>, lmdb::Error> {
    let damaged = || lmdb::Error::Corrupt(POINT_DAMAGED.into());
    let stored = txn.get(format, STAMP_KEY)?;
    stored.map(|stamp| stamp.try_into().map(Stamp).map_err(|_| damaged())).transpose()
}

/// Returns a number above those of all tables of a store with so many databases.
pub(crate) fn tables_end(databases: usize) -> u32 {
    FIRST_TABLE + OWN_TABLES + databases as u32
}

/// Commits the applied point again, after a commit whose meta page may be on the disk only, or not there.
pub(crate) fn settle_applied(
    env: &Env,
    format: Table,
    at: impl Into<Applied>,
) -> Result<(), lmdb::Error> {
    let mut txn = env.begin_write()?;
    put_applied(&mut txn, format, at)?;
    txn.commit()
}

/// Makes a store of its own of a copy of another store. Returns its id and the point at which its log begins.
pub(crate) fn make_own(
    env: &Env,
    format: Table,
    origin: Origin,
) -> Result<(u64, Point), lmdb::Error> {
    let store = env.platform().make_id().map_err(lmdb::Error::Io)?;
    let at = Point { position: origin.point.position, chain: 0 };
    let mut txn = env.begin_write()?;
    let mut cursor = txn.cursor_mut(format)?;
    cursor.put(STORE_KEY, &store.to_le_bytes(), Put::Over)?;
    let Origin { store: of, point, time } = origin;
    let origin = [&of.to_le_bytes()[..], &point_bytes(point), &time.to_le_bytes()].concat();
    cursor.put(ORIGIN_KEY, &origin, Put::Over)?;
    drop(cursor);
    put_applied(&mut txn, format, at)?;
    txn.commit()?;
    Ok((store, at))
}

/// Reads the origin of a store; `None` if it is not a copy.
pub(crate) fn origin(txn: &ReadTxn, format: Table) -> Result<Option<Origin>, lmdb::Error> {
    let parse = |origin: &[u8]| {
        let (store, rest) = origin.split_first_chunk()?;
        let (point, time) = rest.split_at_checked(rest.len().checked_sub(8)?)?;
        let time = u64::from_le_bytes(time.try_into().ok()?);
        Some(Origin { store: u64::from_le_bytes(*store), point: parse_applied(Some(point))?, time })
    };
    Ok(txn.get(format, ORIGIN_KEY)?.and_then(parse))
}

pub(crate) fn is_ours(env: &Arc<Env>) -> Result<bool, lmdb::Error> {
    let format = match env.open_table(FORMAT) {
        Err(lmdb::Error::Incompatible) => None,
        format => format?,
    };
    let Some(format) = format else { return Ok(false) };
    Ok(env.begin_read()?.get(format, VERSION_KEY)?.is_some())
}

/// Opens a database that another process may have made; `None` if it does not exist.
pub(crate) fn find_database(
    env: &Arc<Env>,
    format: Table,
    name: &str,
    kind: Kind,
) -> Result<Option<TableRef>, lmdb::Error> {
    let txn = env.begin_read()?;
    let list = txn.get(format, TABLES_KEY)?.unwrap_or_default().to_vec();
    drop(txn);
    let listed = split(&list).ok_or_else(list_damaged)?;
    let stored = stored_name(name, kind);
    let Some(index) = listed.iter().position(|listed| *listed == stored) else { return Ok(None) };
    // The other process may have made others before.
    let table = open_all(env, &listed)?.get(index).copied();
    Ok(table.map(|table| TableRef { table, kind }))
}

/// Creates a database, in a transaction that has all changes up to a point of the log.
pub(crate) fn make_database(
    env: &Env,
    format: Table,
    name: &str,
    kind: Kind,
    at: Point,
) -> Result<TableRef, lmdb::Error> {
    let stored = stored_name(name, kind);
    let make = Make { duplicates: kind == Kind::Duplicates };
    let table = env.make_table(&stored, make, |txn| {
        let list = txn.cursor(format)?.seek(TABLES_KEY)?.map(|(_, list)| list);
        let mut list = list.unwrap_or_default().to_vec();
        let others = split(&list).ok_or_else(list_damaged)?.len() as u32;
        let number = FIRST_TABLE + OWN_TABLES + others;
        if txn.open_table(&stored, None)? != Some(Table(number)) {
            return Err(misnumbered());
        }
        list.extend_from_slice(stored.as_bytes());
        list.push(0);
        txn.cursor_mut(format)?.put(TABLES_KEY, &list, Put::Over)?;
        put_names_sum(txn, format, &list)?;
        put_applied(txn, format, at)
    })?;
    Ok(TableRef { table, kind })
}

fn list_damaged() -> lmdb::Error {
    lmdb::Error::Corrupt(LIST_DAMAGED.into())
}

fn make(env: &Env) -> Result<(), lmdb::Error> {
    let store = env.platform().make_id().map_err(lmdb::Error::Io)?;
    let make = Make { duplicates: false };
    env.make_table(FORMAT, make, |txn| {
        let format = txn.open_table(FORMAT, None)?.ok_or_else(unmade)?;
        txn.open_table(ENTRIES, Some(make))?;
        let mut cursor = txn.cursor_mut(format)?;
        cursor.put(VERSION_KEY, &VERSION.to_le_bytes(), Put::Over)?;
        cursor.put(STORE_KEY, &store.to_le_bytes(), Put::Over)?;
        drop(cursor);
        put_applied(txn, format, Point { position: 0, chain: 0 })?;
        put_names_sum(txn, format, &[])
    })?;
    Ok(())
}

fn unmade() -> lmdb::Error {
    lmdb::Error::Other("the engine made no database".into())
}

fn put_names_sum(txn: &mut WriteTxn<'_>, format: Table, list: &[u8]) -> Result<(), lmdb::Error> {
    let sum = names_sum(&names(txn.cursor(ROOT)?)?, list);
    txn.cursor_mut(format)?.put(NAMES_KEY, &sum, Put::Over)
}

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

    const START: Point = Point { position: 0, chain: 0 };

    /// Makes a database in an environment with a store.
    fn made(env: &Arc<Env>, name: &str, kind: Kind) -> TableRef {
        let format = env.open_table(FORMAT).unwrap().unwrap();
        make_database(env, format, name, kind, START).unwrap()
    }

    #[test]
    fn a_new_environment_opens_again() {
        let directory = tempfile::tempdir().unwrap();
        let (env, _claim) = open_bare(directory.path());
        let first = open_databases(&env, directory.path(), false).unwrap();
        let again = open_databases(&env, directory.path(), false).unwrap();
        assert_eq!((first.store, first.entries), (again.store, again.entries));
    }

    #[test]
    fn another_version_is_refused_with_both_numbers() {
        let directory = tempfile::tempdir().unwrap();
        let (env, _claim) = open_bare(directory.path());
        open_databases(&env, directory.path(), false).unwrap();
        for version in [0, VERSION + 1, 3, u32::MAX] {
            put(&env, Some(FORMAT), VERSION_KEY, &version.to_le_bytes());
            let refusal = open_databases(&env, directory.path(), false).unwrap_err();
            assert!(
                matches!(refusal, OpenError::Format { found, known: VERSION, .. } if found == version)
            );
            assert!(refusal.to_string().contains("the version of the program that wrote it"));
        }
    }

    #[test]
    fn a_foreign_database_is_refused() {
        let named = tempfile::tempdir().unwrap();
        let (env, _claim) = open_bare(named.path());
        put(&env, Some("theirs"), b"key", b"value");
        let refusal = open_databases(&env, named.path(), false);
        assert!(matches!(refusal, Err(OpenError::Foreign { .. })));

        for key in [&b"key"[..], b"format"] {
            let unnamed = tempfile::tempdir().unwrap();
            let (env, _claim) = open_bare(unnamed.path());
            put(&env, None, key, b"value");
            let refusal = open_databases(&env, unnamed.path(), false);
            assert!(matches!(refusal, Err(OpenError::Foreign { .. })), "{refusal:?}");
        }
    }

    #[test]
    fn databases_keep_their_numbers_in_the_order_of_their_creation() {
        let directory = tempfile::tempdir().unwrap();
        let (env, claim) = open_bare(directory.path());
        let first = open_databases(&env, directory.path(), false).unwrap();
        // A name that does not exist takes no number.
        assert_eq!(find_database(&env, first.format, "missing", Kind::Plain).unwrap(), None);
        let all = [("z", Kind::Checked), ("a", Kind::Duplicates), ("m", Kind::Plain)]
            .map(|(name, kind)| (name, made(&env, name, kind)));
        let numbers = all.map(|(_, made)| made.table.0);
        assert_eq!((first.format.0, first.entries.table.0, numbers), (2, 3, [4, 5, 6]));
        // Its list is longer than a node.
        for number in 0..60 {
            let name = format!("{number:060}");
            assert_eq!(made(&env, &name, Kind::Checked).table, Table(7 + number));
        }
        drop((env, claim));
        crate::disk::pages::check(&directory.path().join("data.mdb")).unwrap();

        let (env, _claim) = open_bare(directory.path());
        let again = open_databases(&env, directory.path(), false).unwrap();
        assert_eq!(again.store, first.store);
        for (name, made) in all {
            assert_eq!(again.named.get(name), Some(&made));
            let found = find_database(&env, again.format, name, made.kind).unwrap();
            assert_eq!(found, Some(made));
        }
    }

    /// A transaction costs a step for each open table, so one for each table would make an opening quadratic.
    #[test]
    fn an_opening_takes_as_many_transactions_for_one_database_as_for_many() {
        let directory = tempfile::tempdir().unwrap();
        let reopen = |claim: Claim| {
            lmdb::begins::take();
            let (env, _) = Env::open(&claim, &Options::default().settings()).unwrap();
            let opened = open_databases(&env, directory.path(), claim.is_read_only()).unwrap();
            (opened.named.len(), lmdb::begins::take())
        };
        let opened = || {
            let written = reopen(Claim::to_write(directory.path()).unwrap());
            (written, reopen(Claim::to_read(directory.path()).unwrap()))
        };
        let make = |numbers: std::ops::Range<u32>| {
            let (env, _claim) = open_bare(directory.path());
            open_databases(&env, directory.path(), false).unwrap();
            for number in numbers {
                made(&env, &number.to_string(), Kind::Checked);
            }
        };
        make(0..1);
        let ((_, written), (_, read)) = opened();
        make(1..50);
        assert_eq!(opened(), ((50, written), (50, read)));
    }

    #[test]
    fn a_wrong_list_or_a_wrong_number_is_corrupt() {
        let directory = tempfile::tempdir().unwrap();
        let (env, claim) = open_bare(directory.path());
        open_databases(&env, directory.path(), false).unwrap();
        made(&env, "one", Kind::Checked);
        made(&env, "two", Kind::Checked);
        for list in [&b"+one\0"[..], b"+one\0+two\0+two\0", b"+one\0-two\0", b"\xFF"] {
            put(&env, Some(FORMAT), TABLES_KEY, list);
            let refusal = open_databases(&env, directory.path(), false);
            assert!(matches!(refusal, Err(OpenError::Corrupt { .. })), "{refusal:?}");
        }
        // The engine has numbered them in the other order.
        put(&env, Some(FORMAT), TABLES_KEY, b"+two\0+one\0");
        let refusal = open_databases(&env, directory.path(), false);
        assert!(matches!(refusal, Err(OpenError::Corrupt { .. })), "{refusal:?}");
        put(&env, Some(FORMAT), TABLES_KEY, b"+one\0");
        drop((env, claim));
        let checked = crate::disk::pages::check(&directory.path().join("data.mdb"));
        assert!(matches!(checked, Err(crate::disk::damage::Damage::Found(_))), "{checked:?}");
    }

    #[test]
    fn the_applied_point_is_stored_with_its_transaction() {
        let directory = tempfile::tempdir().unwrap();
        let (env, _claim) = open_bare(directory.path());
        let format = open_databases(&env, directory.path(), false).unwrap().format;
        let found = || applied(&env.begin_read().unwrap(), format);
        let later = Point { position: u64::MAX >> 1, chain: 0xFEDC_BA98 };
        assert_eq!(found().unwrap(), START);
        let mut txn = env.begin_write().unwrap();
        put_applied(&mut txn, format, later).unwrap();
        assert_eq!(found().unwrap(), START);
        txn.commit().unwrap();
        assert_eq!(found().unwrap(), later);
        put(&env, Some(FORMAT), APPLIED_KEY, &[0; 11]);
        assert!(matches!(found(), Err(lmdb::Error::Corrupt(_))));
    }
}
