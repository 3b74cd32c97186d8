//! [`Log`]: the changes of one commit, as bytes that can be applied again.
//!
//! Each change is final: it says what a key holds afterwards, not what was asked for. So applying
//! all changes since some moment again gives the same as applying them once, from whichever of the
//! states in between one begins.
//!
//! | bytes       | content                                                             |
//! |-------------|---------------------------------------------------------------------|
//! | 4           | how many tables are named                                           |
//! | each        | the length of the name (2), the name                                |
//! | each change | what (1), the table, counted from 0 (4), the lengths of key (2) and value (4), the key, the value |
//!
//! Numbers are little endian. Tables have names here because their numbers are those of one run.

use crate::lmdb::{self, Put, Table, WriteTxn};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Log {
    tables: Vec<Table>,
    changes: Vec<u8>,
}

/// How much memory is kept for the next commit, in bytes.
pub(super) const KEPT_BYTES_MAX: usize = 1 << 20;

const PUT: u8 = 1;
const PUT_VALUE: u8 = 2;
const DELETE: u8 = 3;
/// The key with all its values.
const DELETE_ALL: u8 = 4;
const DELETE_VALUE: u8 = 5;
const CLEAR: u8 = 6;

impl Log {
    pub(crate) fn put(&mut self, table: Table, key: &[u8], value: [&[u8]; 2]) {
        self.push(PUT, table, key, value);
    }

    /// Beside the other values of the key.
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

    pub(crate) fn clear(&mut self, table: Table) {
        self.push(CLEAR, table, &[], [&[], &[]]);
    }

    /// Makes it empty again, for changes of as many bytes, unless those were many.
    pub(crate) fn clear_all(&mut self) {
        self.tables.clear();
        self.changes.clear();
        self.changes.shrink_to(KEPT_BYTES_MAX);
    }

    /// Whether nothing was changed.
    pub(crate) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Appends it to `bytes`, each table under the name that is found for it.
    pub(super) fn write(&self, bytes: &mut Vec<u8>, name: impl Fn(Table) -> Option<String>) {
        // A table is found by its number among those that are open, which all have names, of no
        // more than 501 bytes; and LMDB counts tables in four bytes.
        bytes.extend_from_slice(&(self.tables.len() as u32).to_le_bytes());
        for table in &self.tables {
            let name = name(*table).unwrap_or_default();
            bytes.extend_from_slice(&(name.len() as u16).to_le_bytes());
            bytes.extend_from_slice(name.as_bytes());
        }
        bytes.extend_from_slice(&self.changes);
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
        // Keys and values have been checked against bounds that fit.
        self.changes.extend_from_slice(&(key.len() as u16).to_le_bytes());
        self.changes.extend_from_slice(&(value_bytes as u32).to_le_bytes());
        for part in [key, value[0], value[1]] {
            self.changes.extend_from_slice(part);
        }
    }
}

/// Why a log cannot be applied.
#[derive(Debug)]
pub(super) enum Unfit {
    /// It is none, or names a table that is not there.
    Log,
    Engine(lmdb::Error),
}

impl From<lmdb::Error> for Unfit {
    fn from(error: lmdb::Error) -> Unfit {
        Unfit::Engine(error)
    }
}

/// Applies what [`Log::write`] wrote.
pub(super) fn apply(
    mut bytes: &[u8],
    txn: &mut WriteTxn<'_>,
    table: impl Fn(&str) -> Option<Table>,
) -> Result<(), Unfit> {
    let bytes = &mut bytes;
    let count = number(bytes, 4)?;
    let tables = (0..count)
        .map(|_| {
            let length = number(bytes, 2)?;
            let name = std::str::from_utf8(take(bytes, length)?).map_err(|_| Unfit::Log)?;
            table(name).ok_or(Unfit::Log)
        })
        .collect::<Result<Vec<Table>, Unfit>>()?;
    while !bytes.is_empty() {
        let what = number(bytes, 1)? as u8;
        let table = *tables.get(number(bytes, 4)?).ok_or(Unfit::Log)?;
        let (key_bytes, value_bytes) = (number(bytes, 2)?, number(bytes, 4)?);
        let (key, value) = (take(bytes, key_bytes)?, take(bytes, value_bytes)?);
        if what == CLEAR {
            txn.clear(table)?;
            continue;
        }
        let mut cursor = txn.cursor_mut(table)?;
        match what {
            PUT => cursor.put(key, [value, &[]], Put::Over)?,
            PUT_VALUE => cursor.put_value(key, value)?,
            DELETE | DELETE_ALL => drop(cursor.delete(key, what == DELETE_ALL)?),
            DELETE_VALUE => drop(cursor.delete_value(key, value)?),
            _ => return Err(Unfit::Log),
        }
    }
    Ok(())
}

fn take<'b>(bytes: &mut &'b [u8], length: usize) -> Result<&'b [u8], Unfit> {
    bytes.split_off(..length).ok_or(Unfit::Log)
}

fn number(bytes: &mut &[u8], length: usize) -> Result<usize, Unfit> {
    let digits = take(bytes, length)?.iter().rev();
    Ok(digits.fold(0, |sum, digit| sum << 8 | usize::from(*digit)))
}
