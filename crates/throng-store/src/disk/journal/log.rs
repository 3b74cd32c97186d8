//! [`Log`]: the changes of a commit, as bytes that can be applied again.
//!
//! Each change is final: it states the value that a key has afterwards, not the requested
//! operation. So applying all changes since some moment twice has the same result as applying them
//! once, starting from any of the states in between.
//!
//! | bytes       | content                                                             |
//! |-------------|---------------------------------------------------------------------|
//! | 4           | the number of tables                                                |
//! | each table  | the length of the name (2), the name                                |
//! | each change | the operation (1), the table, counted from 0 (4), the lengths of key (2) and value (4), the key, the value |
//!
//! Numbers are little endian. Tables are named here because their numbers are valid only in this
//! run.
//!
//! The changes of a commit are planned into the log first, and applied from it, before or after
//! they are recorded: so nothing is applied that a record cannot express. A change that is
//! acknowledged before it is applied must be applicable to any stored state.
//!
//! Invariant: the first `recorded` bytes of the changes are in the journal, and the first `applied`
//! bytes are in the transaction; either may be the greater.

use crate::disk::lmdb::{self, Put, Table, WriteCursor, WriteTxn};

/// Changes of a commit, planned, recorded and applied.
#[derive(Debug, Default)]
pub(crate) struct Log {
    tables: Vec<Table>,
    changes: Vec<u8>,
    /// Number of bytes of the changes that are in the journal.
    recorded: usize,
    /// Number of bytes of the changes that are applied to the transaction.
    applied: usize,
}

/// Memory kept for the next commit, in bytes.
pub(super) const KEPT_BYTES_MAX: usize = 1 << 20;

const PUT: u8 = 1;
const PUT_VALUE: u8 = 2;
const DELETE: u8 = 3;
/// Deletes a key with all its values.
const DELETE_ALL: u8 = 4;
const DELETE_VALUE: u8 = 5;
const CLEAR: u8 = 6;

impl Log {
    pub(crate) fn put(&mut self, table: Table, key: &[u8], value: [&[u8]; 2]) {
        self.push(PUT, table, key, value);
    }

    /// Adds a value to the other values of the key.
    pub(crate) fn put_value(&mut self, table: Table, key: &[u8], value: &[u8]) {
        self.push(PUT_VALUE, table, key, [value, &[]]);
    }

    pub(crate) fn delete(&mut self, table: Table, key: &[u8], duplicates: bool) {
        let what = if duplicates { DELETE_ALL } else { DELETE };
        self.push(what, table, key, [&[], &[]]);
    }

    pub(crate) fn delete_value(&mut self, table: Table, key: &[u8], value: &[u8]) {
        self.push(DELETE_VALUE, table, key, [value, &[]]);
    }

    /// Removes all keys of the table. Applied at once, after all planned changes.
    pub(crate) fn clear(
        &mut self,
        table: Table,
        txn: &mut WriteTxn<'_>,
    ) -> Result<(), lmdb::Error> {
        self.apply(txn)?;
        txn.clear(table)?;
        self.push(CLEAR, table, &[], [&[], &[]]);
        self.applied = self.changes.len();
        Ok(())
    }

    /// Whether all changes are in the journal.
    pub(super) fn is_recorded(&self) -> bool {
        self.recorded == self.changes.len()
    }

    /// Appends the changes that are not in the journal to `bytes`; `name` returns the name of a
    /// table.
    pub(super) fn write(&self, bytes: &mut Vec<u8>, name: impl Fn(Table) -> Option<String>) {
        // Only open tables are looked up, which all have names, of at most 501 bytes; and LMDB
        // counts tables in four bytes.
        bytes.extend_from_slice(&(self.tables.len() as u32).to_le_bytes());
        for table in &self.tables {
            let name = name(*table).unwrap_or_default();
            bytes.extend_from_slice(&(name.len() as u16).to_le_bytes());
            bytes.extend_from_slice(name.as_bytes());
        }
        bytes.extend_from_slice(&self.changes[self.recorded..]);
    }

    /// Marks all changes as recorded.
    pub(crate) fn recorded(&mut self) {
        self.recorded = self.changes.len();
        self.let_go();
    }

    /// Drops the changes that are not in the journal, if none of them is applied. Returns whether
    /// that was possible.
    pub(crate) fn take_back(&mut self) -> bool {
        let can = self.applied <= self.recorded;
        if can {
            self.changes.truncate(self.recorded);
        }
        can
    }

    /// Applies the remaining changes, in key order: neighbours share pages, and keys above all
    /// existing keys fill their pages to the end. After an error the transaction is of no use.
    pub(crate) fn apply(&mut self, txn: &mut WriteTxn<'_>) -> Result<(), lmdb::Error> {
        let mut rest = &self.changes[self.applied..];
        if rest.is_empty() {
            return Ok(());
        }
        let mut changes: Vec<_> = std::iter::from_fn(|| Change::take(&mut rest)).collect();
        // A stable sort keeps the order of the changes of a key.
        changes.sort_by(|one, other| (one.table, one.key).cmp(&(other.table, other.key)));
        for of_table in changes.chunk_by(|one, other| one.table == other.table) {
            let Some(table) = of_table.first().and_then(|change| self.tables.get(change.table))
            else {
                continue;
            };
            let mut cursor = txn.cursor_mut(*table)?;
            let last = match of_table {
                [Change { what: PUT | DELETE, .. }, ..] => cursor.last_key()?.map(<[u8]>::to_vec),
                _ => None,
            };
            let mut how = Put::Over;
            for of_key in of_table.chunk_by(|one, other| one.key == other.key) {
                match of_key {
                    // In a table with one value under each key, only the last change of a key
                    // matters.
                    [.., change] if matches!(change.what, PUT | DELETE) => {
                        if how == Put::Over && last.as_deref().is_none_or(|last| change.key > last)
                        {
                            how = Put::Append;
                        }
                        // Above all existing keys, there is nothing to delete.
                        if change.what == PUT || how == Put::Over {
                            change.apply(&mut cursor, how)?;
                        }
                    }
                    all => {
                        all.iter().try_for_each(|change| change.apply(&mut cursor, Put::Over))?
                    }
                }
            }
        }
        self.applied = self.changes.len();
        self.let_go();
        Ok(())
    }

    /// Empties the log once all changes are recorded and applied.
    fn let_go(&mut self) {
        if self.recorded == self.changes.len() && self.applied == self.changes.len() {
            self.clear_all();
        }
    }

    /// Empties the log, and keeps its memory up to [`KEPT_BYTES_MAX`].
    fn clear_all(&mut self) {
        self.tables.clear();
        self.changes.clear();
        self.changes.shrink_to(KEPT_BYTES_MAX);
        (self.recorded, self.applied) = (0, 0);
    }

    fn push(&mut self, what: u8, table: Table, key: &[u8], value: [&[u8]; 2]) {
        let known = self.tables.iter().rposition(|known| *known == table);
        let number = known.unwrap_or_else(|| {
            self.tables.push(table);
            self.tables.len() - 1
        });
        let value_bytes = value[0].len() + value[1].len();
        self.changes.reserve(11 + key.len() + value_bytes);
        self.changes.push(what);
        self.changes.extend_from_slice(&(number as u32).to_le_bytes());
        // The lengths fit: keys and values were checked by the batch.
        self.changes.extend_from_slice(&(key.len() as u16).to_le_bytes());
        self.changes.extend_from_slice(&(value_bytes as u32).to_le_bytes());
        for part in [key, value[0], value[1]] {
            self.changes.extend_from_slice(part);
        }
    }
}

/// Reason why a log cannot be applied.
#[derive(Debug)]
pub(super) enum Unfit {
    /// The bytes are not a log, or name a table that does not exist.
    Log,
    Engine(lmdb::Error),
}

impl From<lmdb::Error> for Unfit {
    fn from(error: lmdb::Error) -> Unfit {
        Unfit::Engine(error)
    }
}

/// A change as stored in a log.
#[derive(Clone, Copy, Debug)]
struct Change<'l> {
    what: u8,
    /// Index of the table in the log.
    table: usize,
    key: &'l [u8],
    value: &'l [u8],
}

impl<'l> Change<'l> {
    /// Removes the first change from `bytes` and returns it.
    fn take(bytes: &mut &'l [u8]) -> Option<Change<'l>> {
        let what = number(bytes, 1)? as u8;
        let table = number(bytes, 4)?;
        let (key_bytes, value_bytes) = (number(bytes, 2)?, number(bytes, 4)?);
        let (key, value) = (take(bytes, key_bytes)?, take(bytes, value_bytes)?);
        Some(Change { what, table, key, value })
    }

    /// Applies the change with a cursor of its table, unless it clears the table.
    fn apply(&self, cursor: &mut WriteCursor<'_>, how: Put) -> Result<(), lmdb::Error> {
        let Change { key, value, .. } = *self;
        match self.what {
            PUT | PUT_VALUE => cursor.put(key, value, how),
            DELETE | DELETE_ALL => cursor.delete(key, self.what == DELETE_ALL),
            DELETE_VALUE => cursor.delete_value(key, value),
            _ => Ok(()),
        }
    }
}

/// Applies the bytes of [`Log::write`], in the order in which they were written.
pub(super) fn apply(
    mut bytes: &[u8],
    txn: &mut WriteTxn<'_>,
    table: impl Fn(&str) -> Option<Table>,
) -> Result<(), Unfit> {
    let bytes = &mut bytes;
    let count = number(bytes, 4).ok_or(Unfit::Log)?;
    let tables = (0..count)
        .map(|_| {
            let length = number(bytes, 2)?;
            let name = std::str::from_utf8(take(bytes, length)?).ok()?;
            table(name)
        })
        .collect::<Option<Vec<Table>>>()
        .ok_or(Unfit::Log)?;
    while !bytes.is_empty() {
        let change = Change::take(bytes).ok_or(Unfit::Log)?;
        let table = *tables.get(change.table).ok_or(Unfit::Log)?;
        match change.what {
            CLEAR => txn.clear(table)?,
            PUT..CLEAR => change.apply(&mut txn.cursor_mut(table)?, Put::Over)?,
            _ => return Err(Unfit::Log),
        }
    }
    Ok(())
}

fn take<'b>(bytes: &mut &'b [u8], length: usize) -> Option<&'b [u8]> {
    bytes.split_off(..length)
}

fn number(bytes: &mut &[u8], length: usize) -> Option<usize> {
    let digits = take(bytes, length)?.iter().rev();
    Some(digits.fold(0, |sum, digit| sum << 8 | usize::from(*digit)))
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::Options;
    use crate::disk::claim::Claim;
    use crate::disk::lmdb::{Env, Make, Move};

    /// A step of the test.
    #[derive(Clone, Debug)]
    enum Step {
        /// Puts a value into the table of one value under each key, or of several.
        Put(bool, u8, u8),
        Delete(bool, u8),
        DeleteValue(u8, u8),
        Clear(bool),
        Apply,
        Record,
        TakeBack,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let (key, value) = (|| 0..6u8, || 0..4u8);
        let step = prop_oneof![
            8 => (any::<bool>(), key(), value()).prop_map(|(many, key, value)| Step::Put(many, key, value)),
            3 => (any::<bool>(), key()).prop_map(|(many, key)| Step::Delete(many, key)),
            3 => (key(), value()).prop_map(|(key, value)| Step::DeleteValue(key, value)),
            1 => any::<bool>().prop_map(Step::Clear),
            2 => Just(Step::Apply),
            3 => Just(Step::Record),
            1 => Just(Step::TakeBack),
        ];
        vec(step, 0..60)
    }

    /// Opens an environment with a table of one value under each key, and a table of several.
    fn open(directory: &Path) -> (Arc<Env>, [Table; 2], Claim) {
        let claim = Claim::to_write(directory).unwrap();
        let options = Options::default().map_bytes(1 << 20);
        let env = Env::open(&claim, &options.settings()).unwrap().0;
        let table =
            |name, duplicates| env.make_table(name, Make { duplicates }, |_| Ok(())).unwrap();
        let tables = [table("one", false), table("many", true)];
        (env, tables, claim)
    }

    fn content(env: &Arc<Env>, tables: [Table; 2]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let txn = env.begin_read().unwrap();
        let mut content = Vec::new();
        for table in tables {
            let mut cursor = txn.cursor(table).unwrap();
            let mut entry = cursor.step(Move::First).unwrap();
            while let Some((key, value)) = entry {
                content.push((key.to_vec(), value.to_vec()));
                entry = cursor.step(Move::Next).unwrap();
            }
            content.push(Default::default());
        }
        content
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]
        #[test]
        fn replaying_the_records_gives_the_applied_state(steps in steps()) {
            let directory = tempfile::tempdir().unwrap();
            let (env, tables, _claim) = open(directory.path());
            let table = |many: bool| tables[usize::from(many)];
            let mut txn = env.begin_write().unwrap();
            let (mut log, mut records) = (Log::default(), Vec::new());
            let mut record = |log: &mut Log| {
                let mut bytes = Vec::new();
                let name = |found| if found == tables[0] { "one" } else { "many" };
                log.write(&mut bytes, |found| Some(name(found).to_owned()));
                records.push(bytes);
                log.recorded();
            };
            for step in steps {
                match step {
                    Step::Put(false, key, value) => log.put(table(false), &[key], [&[7], &[value]]),
                    Step::Put(true, key, value) => log.put_value(table(true), &[key], &[value]),
                    Step::Delete(many, key) => log.delete(table(many), &[key], many),
                    // An empty value never exists.
                    Step::DeleteValue(key, 0) => log.delete_value(table(true), &[key], &[]),
                    Step::DeleteValue(key, value) => log.delete_value(table(true), &[key], &[value]),
                    Step::Clear(many) => log.clear(table(many), &mut txn).unwrap(),
                    Step::Apply => log.apply(&mut txn).unwrap(),
                    Step::Record => record(&mut log),
                    Step::TakeBack => {
                        let (all, unapplied) = (log.changes.len(), log.applied <= log.recorded);
                        prop_assert_eq!(log.take_back(), unapplied);
                        let left = if unapplied { log.recorded } else { all };
                        prop_assert_eq!(log.changes.len(), left);
                    }
                }
            }
            record(&mut log);
            log.apply(&mut txn).unwrap();
            prop_assert!(log.changes.is_empty() && log.is_recorded());
            txn.commit().unwrap();

            let directory = tempfile::tempdir().unwrap();
            let (again, tables_again, _claim) = open(directory.path());
            let mut txn = again.begin_write().unwrap();
            let find = |name: &str| Some(tables_again[usize::from(name == "many")]);
            for record in &records {
                apply(record, &mut txn, find).unwrap();
            }
            txn.commit().unwrap();
            prop_assert_eq!(content(&env, tables), content(&again, tables_again));
        }
    }

    #[test]
    fn malformed_records_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let (env, tables, _claim) = open(directory.path());
        let mut log = Log::default();
        log.put(tables[0], b"key", [b"va", b"lue"]);
        let mut record = Vec::new();
        log.write(&mut record, |_| Some("one".to_owned()));
        let refused = |record: &[u8], known: bool| {
            let mut txn = env.begin_write().unwrap();
            matches!(apply(record, &mut txn, |_| known.then_some(tables[0])), Err(Unfit::Log))
        };
        assert!(!refused(&record, true));
        assert!(refused(&record, false));
        assert!(
            (0..record.len())
                .filter(|length| *length != 9)
                .all(|cut| refused(&record[..cut], true))
        );
        let what = 9;
        for other in [0, CLEAR + 1, u8::MAX] {
            record[what] = other;
            assert!(refused(&record, true));
        }
    }
}
