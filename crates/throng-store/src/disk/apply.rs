//! Applies a run of changes to a transaction of LMDB.

use crate::disk::lmdb::{Error, Put, WriteTxn};
use crate::memtable::Run;
use crate::memtable::change::{Change, Operation};

/// Applies all changes, in key order: neighbours share pages, and keys above all existing keys fill their
/// pages to the end. After an error the transaction is of no use.
pub(crate) fn apply(run: &Run, txn: &mut WriteTxn<'_>) -> Result<(), Error> {
    for section in run.sections() {
        if section.is_cleared() {
            txn.clear(section.table())?;
        }
        let mut cursor = txn.cursor_mut(section.table())?;
        let last = cursor.last_key()?.map(<[u8]>::to_vec);
        let mut is_above = last.is_none();
        for index in section.changes() {
            let Change { operation, key, value, .. } = run.change(index);
            is_above = is_above || last.as_deref().is_some_and(|last| key > last);
            match operation {
                Operation::Put if is_above => cursor.put(key, value, Put::Append)?,
                Operation::Put | Operation::PutValue => cursor.put(key, value, Put::Over)?,
                // Above all existing keys, there is nothing to delete.
                Operation::Delete if is_above => {}
                Operation::Delete => cursor.delete(key, false)?,
                Operation::DeleteAll => cursor.delete(key, true)?,
                Operation::DeleteValue => cursor.delete_value(key, value)?,
                // The section says it.
                Operation::Clear => {}
            }
        }
    }
    Ok(())
}
