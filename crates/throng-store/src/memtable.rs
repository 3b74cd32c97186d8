//! [`Layers`]: changes in memory, in order, that lie over what LMDB has.
//!
//! ```text
//!        newest                               oldest
//! add ─▶ │ run │ run │ run │ run of many │           over LMDB
//!        └──── 4 of a size: merged ──────┘
//! ```
//!
//! The changes that were added since the last read are a [`Run`]. Runs are merged as in a
//! log-structured merge tree: four neighbours of about the same size become one, and no run is larger
//! than an older one. So a million runs become some twenty, and a change is copied once for each of the
//! sizes. What the runs have counts, and LMDB has the rest.

pub(crate) mod change;
mod filter;
mod run;
mod walk;

use std::cell::OnceCell;
use std::ops::Range;

use crate::disk::lmdb::Table;
use crate::disk::record;
use change::{Change, Operation};
pub(crate) use run::{Builder, Run};
pub(crate) use walk::Walk;
use walk::merge;

/// Number of neighbours of a size that are merged.
const MERGED: usize = 4;

/// Runs over what LMDB has; see the file's head.
#[derive(Debug, Default)]
pub(crate) struct Layers {
    /// Changes that are in no run yet, in the order in which they take effect.
    added: Vec<u8>,
    /// The run of these changes, made by the first read after them.
    newest: OnceCell<Run>,
    /// The runs before, newest first.
    runs: Vec<Run>,
}

/// Result of a search for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found<'l> {
    /// The stored bytes of the value.
    Value(&'l [u8]),
    Deleted,
    /// There is no change of the key.
    Unchanged,
}

impl Layers {
    /// Adds a change. Its value gets a checksum if `is_checked`.
    pub(crate) fn add(&mut self, change: Change<'_>, is_checked: bool) {
        if let Some(run) = self.newest.take() {
            self.added.clear();
            self.runs.insert(0, run);
            while let Some(range) = self.mergeable() {
                let merged = merge(&self.runs[range.clone()]);
                self.runs.splice(range, [merged]);
            }
        }
        let Change { operation, table, key, value } = change;
        let header =
            (is_checked && operation == Operation::Put).then(|| record::header(key, value));
        let header = header.as_deref().unwrap_or_default();
        change::write(&mut self.added, operation, table, key, [header, value]);
    }

    /// Searches for a key of a table with one value under each key.
    pub(crate) fn get(&self, table: Table, key: &[u8]) -> Found<'_> {
        if self.is_empty() {
            return Found::Unchanged;
        }
        let hash = filter::hash(table, key);
        for run in self.runs() {
            let Some(section) = run.section_of(table) else { continue };
            if run.may_have(hash)
                && let Some(change) = run.find(section, key, &[])
            {
                let puts = change.operation.puts();
                return if puts { Found::Value(change.value) } else { Found::Deleted };
            }
            if section.is_cleared() {
                return Found::Deleted;
            }
        }
        Found::Unchanged
    }

    /// Walks the changes of a table.
    pub(crate) fn walk(&self, table: Table) -> Walk<'_> {
        Walk::new(self.runs(), table)
    }

    fn is_empty(&self) -> bool {
        self.added.is_empty() && self.runs.is_empty()
    }

    /// The runs, newest first.
    fn runs(&self) -> impl Iterator<Item = &Run> {
        let newest =
            (!self.added.is_empty()).then(|| self.newest.get_or_init(|| plan(&self.added)));
        newest.into_iter().chain(&self.runs)
    }

    /// Finds runs to merge: a run with the smaller ones that are older, or neighbours of a size.
    fn mergeable(&self) -> Option<Range<usize>> {
        let class = |run: &Run| run.memory().max(1).ilog(MERGED);
        let classes: Vec<u32> = self.runs.iter().map(class).collect();
        if let Some(start) = classes.windows(2).position(|pair| pair[0] > pair[1]) {
            let smaller = classes[start + 1..].iter().take_while(|other| **other < classes[start]);
            return Some(start..start + 1 + smaller.count());
        }
        let same = classes.windows(MERGED).position(|window| window[0] == window[MERGED - 1]);
        same.map(|start| start..start + MERGED)
    }
}

/// Makes a run of changes in the order in which they take effect.
fn plan(mut bytes: &[u8]) -> Run {
    let changes: Vec<Change<'_>> = std::iter::from_fn(|| Change::take(&mut bytes)).collect();
    let mut order: Vec<usize> = (0..changes.len()).collect();
    let at = |index: usize| &changes[index];
    order.sort_unstable_by(|one, other| {
        at(*one).sort_key().cmp(&at(*other).sort_key()).then(one.cmp(other))
    });
    let mut run = Builder::default();
    // The last changes of a whole table, and of all values of a key.
    let (mut cleared, mut reset) = (None, None);
    for same in order.chunk_by(|one, other| at(*one).sort_key() == at(*other).sort_key()) {
        let Some(&last) = same.last() else { continue };
        let Change { operation, table, key, value } = *at(last);
        let hides = |hiding: Option<(Table, &[u8], usize)>, key: &[u8]| {
            hiding.is_some_and(|(of, all, at)| (of, all) == (table, key) && last < at)
        };
        if hides(cleared, &[]) || hides(reset, key) {
            continue;
        }
        match operation {
            Operation::Clear => cleared = Some((table, &[][..], last)),
            Operation::DeleteAll => reset = Some((table, key, last)),
            _ => {}
        }
        run.push(operation, table, key, [value, &[]]);
    }
    run.finish()
}

/// Makes a run of stored changes in the order in which they take effect.
#[cfg(test)]
fn planned(changes: &[Change<'_>]) -> Run {
    let mut bytes = Vec::new();
    for Change { operation, table, key, value } in changes {
        change::write(&mut bytes, *operation, *table, key, [value, &[]]);
    }
    plan(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: Table = Table(2);

    #[test]
    fn many_additions_are_few_runs() {
        const KEYS: u32 = 1 << 14;
        let mut layers = Layers::default();
        for number in 0..KEYS {
            // Not in order.
            let key = (number ^ 0x55).to_be_bytes();
            let change = Change { operation: Operation::Put, table: TABLE, key: &key, value: &key };
            layers.add(change, false);
            assert_eq!(layers.get(TABLE, &key), Found::Value(&key));
        }
        assert!(layers.runs.len() < 3 * 12, "{}", layers.runs.len());
        let mut walk = layers.walk(TABLE);
        let keys = std::iter::from_fn(|| walk.step()).map(|change| change.key.to_vec());
        let keys: Vec<_> = keys.map(|key| u32::from_be_bytes(key.try_into().unwrap())).collect();
        assert!(keys.len() == KEYS as usize && keys.is_sorted());
        for number in [0, 1, KEYS - 1] {
            let key = number.to_be_bytes();
            assert_eq!(layers.get(TABLE, &key), Found::Value(&key));
        }
        assert_eq!(layers.get(TABLE, &(KEYS + 500).to_be_bytes()), Found::Unchanged);
        assert_eq!(layers.get(Table(3), &[0]), Found::Unchanged);
    }

    #[test]
    fn the_last_change_of_a_sort_key_counts() {
        let change = |operation, key, value| Change { operation, table: TABLE, key, value };
        let run = planned(&[
            change(Operation::Put, b"a", b"old"),
            change(Operation::PutValue, b"b", b"before"),
            change(Operation::Put, b"c", b"stays"),
            change(Operation::DeleteAll, b"b", b""),
            change(Operation::Put, b"a", b"new"),
            change(Operation::PutValue, b"b", b"after"),
        ]);
        let found: Vec<_> = (0..run.len()).map(|index| run.change(index)).collect();
        let expected = [
            change(Operation::Put, b"a", b"new"),
            change(Operation::DeleteAll, b"b", b""),
            change(Operation::PutValue, b"b", b"after"),
            change(Operation::Put, b"c", b"stays"),
        ];
        assert_eq!(found, expected);
        let cleared = planned(&[
            change(Operation::Put, b"a", b"1"),
            change(Operation::Clear, b"", b""),
            change(Operation::Put, b"b", b"2"),
        ]);
        assert_eq!(cleared.len(), 2);
        assert_eq!(cleared.change(1), change(Operation::Put, b"b", b"2"));
    }
}
