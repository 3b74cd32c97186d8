//! [`Run`]: changes in the order of their sort keys, one for each; a run never changes.
//!
//! ```text
//! bytes    │ … │ put a/1 … │ put a/7 … │ delete a/9 │ clear │ put x … │
//!                ▲           ▲           ▲            ▲       ▲
//! offsets  [     0           1           2            3       4 ]
//! heads    [    "1"         "7"         "9"           –      "x"]   eight bytes behind the prefix
//! sections [ table 1: 0..3, prefix "a/"    │ table 2: 4..5, cleared ]
//! ```
//!
//! A key is searched among the heads, numbers that lie side by side, and compared byte by byte only where
//! heads are equal.

use std::ops::Range;

use crate::disk::lmdb::Table;
use crate::memtable::change::{self, Change, Operation};
use crate::memtable::filter::{Filter, hash};

/// A sorted sequence of changes; see the file's head.
pub(crate) struct Run {
    bytes: Box<[u8]>,
    offsets: Box<[usize]>,
    heads: Box<[u64]>,
    sections: Box<[Section]>,
    filter: Filter,
}

/// The changes of a table within a run.
pub(crate) struct Section {
    table: Table,
    /// Indices of the changes, without that of the table as a whole.
    changes: Range<usize>,
    /// Length of the prefix that all keys have in common.
    prefix: usize,
    /// Whether the table is cleared before its changes.
    is_cleared: bool,
    /// Whether any key is deleted with all its values.
    has_resets: bool,
}

/// Collects the changes of a run, in the order of their sort keys.
#[derive(Default)]
pub(crate) struct Builder {
    bytes: Vec<u8>,
    offsets: Vec<usize>,
}

impl Builder {
    /// Number of bytes so far.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Makes room for this many changes of this many bytes together.
    pub(crate) fn reserve(&mut self, changes: usize, bytes: usize) {
        self.offsets.reserve(changes);
        self.bytes.reserve(bytes);
    }

    /// Adds a change, whose sort key is above all others, and whose value is the parts together.
    pub(crate) fn push(
        &mut self,
        operation: Operation,
        table: Table,
        key: &[u8],
        value: [&[u8]; 2],
    ) {
        self.offsets.push(self.bytes.len());
        change::write(&mut self.bytes, operation, table, key, value);
    }

    pub(crate) fn finish(self) -> Run {
        Run::index(self.bytes.into(), self.offsets.into())
    }
}

impl Run {
    /// Makes the index of the changes at the offsets.
    fn index(bytes: Box<[u8]>, offsets: Box<[usize]>) -> Run {
        let mut run = Run {
            bytes,
            heads: vec![0; offsets.len()].into(),
            offsets,
            sections: Box::default(),
            filter: Filter::default(),
        };
        let mut sections = Vec::new();
        let mut filter = Filter::for_keys(run.len());
        let mut start = 0;
        while start < run.len() {
            let section = run.section(start);
            start = section.changes.end;
            for index in section.changes.clone() {
                let key = run.change(index).key;
                filter.insert(hash(section.table, key));
                let head = head(&key[section.prefix..]);
                run.heads[index] = head;
            }
            sections.push(section);
        }
        run.sections = sections.into();
        run.filter = filter;
        run
    }

    /// Finds the section that begins at an index.
    fn section(&self, start: usize) -> Section {
        let first = self.change(start);
        let is_of_table = |index: &usize| self.change(*index).table == first.table;
        let end = (start..self.len()).take_while(is_of_table).last().map_or(start, |last| last + 1);
        let is_cleared = first.operation == Operation::Clear;
        let changes = start + usize::from(is_cleared)..end;
        let mut prefix = 0;
        if let Some(last) = changes.clone().last() {
            let (low, high) = (self.change(changes.start).key, self.change(last).key);
            // Keys in order have in common what the first and the last have in common.
            prefix = low.iter().zip(high).take_while(|(one, other)| one == other).count();
        }
        let is_reset = |index| self.change(index).operation == Operation::DeleteAll;
        let has_resets = changes.clone().any(is_reset);
        Section { table: first.table, changes, prefix, is_cleared, has_resets }
    }

    /// Number of changes.
    pub(crate) fn len(&self) -> usize {
        self.offsets.len()
    }

    /// Number of bytes of memory.
    pub(crate) fn memory(&self) -> usize {
        self.bytes.len()
            + self.offsets.len() * (size_of::<usize>() + size_of::<u64>())
            + self.filter.bytes()
    }

    /// Number of bytes of the changes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the change at an index.
    pub(crate) fn change(&self, index: usize) -> Change<'_> {
        let mut bytes = &self.bytes[self.offsets[index]..];
        match Change::take(&mut bytes) {
            Some(change) => change,
            None => unreachable!("the offsets are those of changes"),
        }
    }

    /// The changes of all tables, in order.
    pub(crate) fn sections(&self) -> &[Section] {
        &self.sections
    }

    /// Returns the changes of a table, if there are any.
    pub(crate) fn section_of(&self, table: Table) -> Option<&Section> {
        self.sections.iter().find(|section| section.table == table)
    }

    /// Whether there may be a change of the key, given its hash.
    pub(crate) fn may_have(&self, hash: u64) -> bool {
        self.filter.may_have(hash)
    }

    /// Returns the index of the first change of the section that is not below this key and value.
    pub(crate) fn seek(&self, section: &Section, key: &[u8], value: &[u8]) -> usize {
        let Range { start, end } = section.changes;
        if start == end {
            return start;
        }
        let prefix = &self.change(start).key[..section.prefix];
        let common = &key[..key.len().min(section.prefix)];
        if common != prefix {
            return if common < prefix { start } else { end };
        }
        let head = head(&key[section.prefix..]);
        let heads = &self.heads[start..end];
        let low = heads.partition_point(|other| *other < head);
        let equal = heads[low..].iter().take(FEW).take_while(|other| **other == head).count();
        let equal = match equal {
            FEW => heads[low..].partition_point(|other| *other == head),
            few => few,
        };
        let (low, high) = (start + low, start + low + equal);
        low + self.offsets[low..high].partition_point(|offset| {
            let mut bytes = &self.bytes[*offset..];
            Change::take(&mut bytes).is_some_and(|change| {
                let (_, other_key, other_value) = change.sort_key();
                (other_key, other_value) < (key, value)
            })
        })
    }

    /// Returns the change of exactly this key and value.
    pub(crate) fn find(&self, section: &Section, key: &[u8], value: &[u8]) -> Option<Change<'_>> {
        let index = self.seek(section, key, value);
        (index < section.changes.end).then(|| self.change(index)).filter(|change| {
            let (_, found_key, found_value) = change.sort_key();
            (found_key, found_value) == (key, value)
        })
    }
}

/// Number of equal heads that are counted one by one.
const FEW: usize = 4;

impl Section {
    pub(crate) fn table(&self) -> Table {
        self.table
    }

    pub(crate) fn changes(&self) -> Range<usize> {
        self.changes.clone()
    }

    pub(crate) fn is_cleared(&self) -> bool {
        self.is_cleared
    }

    pub(crate) fn has_resets(&self) -> bool {
        self.has_resets
    }
}

/// The first eight bytes as a number of the same order; of fewer bytes, as if zeros followed.
fn head(key: &[u8]) -> u64 {
    match key.first_chunk() {
        Some(first) => u64::from_be_bytes(*first),
        None => {
            let mut padded = [0; 8];
            padded[..key.len()].copy_from_slice(key);
            u64::from_be_bytes(padded)
        }
    }
}

impl std::fmt::Debug for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Run").field("changes", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Keys with long common prefixes, some of which are prefixes of others.
    fn key() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![Just(0), Just(1), Just(b'a'), Just(0xff)];
        let middle = prop_oneof![Just(""), Just("common/prefix/"), Just("common/")];
        (middle, vec(byte, 0..4))
            .prop_map(|(middle, tail)| [b"k", middle.as_bytes(), &tail].concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
        #[test]
        fn every_search_finds_what_a_search_from_the_start_finds(
            keys in vec((0..3u32, key()), 0..40),
            sought in vec((0..3u32, key()), 0..20),
        ) {
            let keys: BTreeSet<_> = keys.into_iter().collect();
            let mut builder = Builder::default();
            for (table, key) in &keys {
                builder.push(Operation::Put, Table(*table), key, [b"value", key]);
            }
            let run = builder.finish();
            prop_assert_eq!(run.len(), keys.len());
            for (table, key) in keys.iter().chain(&sought) {
                let Some(section) = run.section_of(Table(*table)) else {
                    prop_assert!(keys.iter().all(|(other, _)| other != table));
                    continue;
                };
                let below = keys.iter().filter(|other| **other < (*table, key.clone())).count();
                prop_assert_eq!(run.seek(section, key, b""), below);
                let found = run.find(section, key, b"");
                prop_assert_eq!(found.is_some(), keys.contains(&(*table, key.clone())));
                prop_assert!(found.is_none() || run.may_have(hash(Table(*table), key)));
            }
        }
    }

    #[test]
    fn values_of_a_key_are_searched_by_value() {
        let mut builder = Builder::default();
        let (one, two) = (Table(1), Table(2));
        builder.push(Operation::Clear, one, b"", [b"", b""]);
        builder.push(Operation::DeleteAll, one, b"k", [b"", b""]);
        for value in [b"a", b"c"] {
            builder.push(Operation::PutValue, one, b"k", [value, b""]);
        }
        builder.push(Operation::Delete, two, b"k", [b"", b""]);
        let run = builder.finish();
        let [first, second] = run.sections() else { panic!("there are two tables") };
        assert!(first.is_cleared() && first.has_resets() && first.changes() == (1..4));
        assert!(!second.is_cleared() && !second.has_resets() && second.changes() == (4..5));
        let seek = |key: &[u8], value: &[u8]| run.seek(first, key, value);
        assert_eq!([seek(b"k", b""), seek(b"k", b"a"), seek(b"k", b"b")], [1, 2, 3]);
        assert_eq!([seek(b"", b""), seek(b"k", b"d"), seek(b"l", b"")], [1, 4, 4]);
        assert_eq!(run.find(first, b"k", b"").unwrap().operation, Operation::DeleteAll);
        assert_eq!(run.find(first, b"k", b"c").unwrap().value, b"c");
        assert!(run.find(first, b"k", b"b").is_none() && run.section_of(Table(3)).is_none());
    }
}
