//! Memtables written to LMDB, in the order of their keys.

use std::sync::Arc;

use crate::disk::format;
use crate::disk::lmdb::{self, Env, Move, Put, WriteTxn};
use crate::log::Applied;
use crate::memtable::change::{Change, Operation};
use crate::memtable::{Layers, Memtable};
use crate::table::Table;

/// Most bytes of changes in a transaction of a checkpoint.
const TXN_BYTES: usize = 4 << 20;

pub(crate) enum Event {
    /// Step that applies a change: at most `done` of the `all` changes were applied before.
    Apply { done: usize, all: usize },
    /// A transaction is committed that is not the last.
    Committed,
}

/// Writes all changes of a memtable, which ends at a point of the log, to LMDB: in transactions of bounded
/// size, or in a single one. Reports to `report`.
pub(crate) fn write(
    env: &Env,
    format: Table,
    memtable: Arc<Memtable>,
    at: impl Into<Applied>,
    is_bounded: bool,
    report: impl Fn(Event),
) -> Result<(), lmdb::Error> {
    let max = if is_bounded { (env.platform().txn_changes, TXN_BYTES) } else { UNBOUNDED };
    let mut left = max;
    let tables: Vec<Table> = memtable.tables().collect();
    let layers = Layers { memtables: Arc::new([Arc::clone(&memtable)]), after: 0, upto: u64::MAX };
    let mut txn = env.begin_write()?;
    let mut walks = Vec::new();
    for table in tables {
        let mut walk = layers.walk(table);
        if walk.is_cleared() {
            txn.clear(table)?;
        }
        match keys_if_few(&txn, table, memtable.deletions(table) / FEWER)? {
            Some(keys) => walk.go_first_without_deleted(keys.iter().map(Box::as_ref)),
            None => walk.go_first(),
        }
        walks.push((table, walk));
    }
    let all = walks.iter().map(|(_, walk)| walk.keys()).sum();
    let mut done = 0;
    for (table, mut walk) in walks {
        let mut step = || {
            report(Event::Apply { done, all });
            done += 1;
            walk.step()
        };
        while apply(&mut txn, table, &mut step, &mut left)? {
            txn.commit()?;
            report(Event::Committed);
            txn = env.begin_write()?;
            left = max;
        }
    }
    format::put_applied(&mut txn, format, at)?;
    txn.commit()
}

/// Factor by which the entries of a table have to be fewer than its deletions for the checkpoint to leave deletions
/// out. The tables of a queue are such: most that is put is deleted before a checkpoint.
const FEWER: usize = 8;

/// Returns the keys of a table if it has at most `most` entries, and any may be.
///
/// Deletions of other keys have no effect, so that their keys need neither be sorted nor searched for.
fn keys_if_few(
    txn: &WriteTxn<'_>,
    table: Table,
    most: usize,
) -> Result<Option<Vec<Box<[u8]>>>, lmdb::Error> {
    if most == 0 || txn.len(table)? > most as u64 {
        return Ok(None);
    }
    let (mut keys, mut cursor) = (Vec::new(), txn.cursor(table)?);
    while let Some((key, _)) = cursor.step(Move::Next)? {
        keys.push(key.into());
    }
    Ok(Some(keys))
}

/// No bound on the changes of a transaction and on their bytes.
pub(crate) const UNBOUNDED: (usize, usize) = (usize::MAX, usize::MAX);

/// Applies changes of a table in the order of their sort keys, while some number of changes and of bytes is
/// `left`; returns whether a bound was reached, so that more may follow. After an error the transaction is
/// of no use.
///
/// Neighbours share pages, and keys above all existing keys fill their pages to the end.
pub(crate) fn apply<'c>(
    txn: &mut WriteTxn<'_>,
    table: Table,
    mut changes: impl FnMut() -> Option<Change<'c>>,
    left: &mut (usize, usize),
) -> Result<bool, lmdb::Error> {
    let mut cursor = txn.cursor_mut(table)?;
    let last = cursor.last_key()?.map(<[u8]>::to_vec);
    let mut is_above = last.is_none();
    while left.0 > 0 && left.1 > 0 {
        let Some(Change { operation, key, value, .. }) = changes() else { return Ok(false) };
        is_above = is_above || last.as_deref().is_some_and(|last| key > last);
        match operation {
            Operation::Put if is_above => cursor.put(key, value, Put::Append)?,
            Operation::Put | Operation::PutValue => cursor.put(key, value, Put::Over)?,
            // Above all existing keys, there is nothing to delete.
            Operation::Delete if is_above => {}
            Operation::Delete => cursor.delete(key, false)?,
            Operation::DeleteAll => cursor.delete(key, true)?,
            Operation::DeleteValue => cursor.delete_value(key, value)?,
            // The caller clears the table.
            Operation::Clear => {}
        }
        left.0 -= usize::from(!is_above);
        left.1 = left.1.saturating_sub(key.len() + value.len());
    }
    Ok(true)
}
