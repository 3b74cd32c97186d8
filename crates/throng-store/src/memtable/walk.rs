//! [`Walk`]: the changes of a table in several runs, as if they were one run.
//!
//! ```text
//! newest │   │ b=7 │     │ d deleted │          b=7
//!        │ a=1     │ c=3 │ d=4       │   ──▶    a=1  b=7  c=3  d deleted
//! oldest │ a=0 b=2 │     │ d=0       │
//! ```
//!
//! The newest of several changes with one sort key counts. A change of all values of a key hides the
//! older changes of its values, and a change of a whole table hides the older changes of its keys; neither
//! hides those in its own run, which were made after it.

use crate::disk::lmdb::Table;
use crate::memtable::change::{Change, Operation};
use crate::memtable::run::{Builder, Run, Section};

/// An iteration over the changes of a table, forward or backward; see the file's head.
pub(crate) struct Walk<'r> {
    /// The runs that count, newest first.
    sources: Vec<Source<'r>>,
    is_forward: bool,
    /// Whether what is older than the runs does not count.
    is_cleared: bool,
}

struct Source<'r> {
    run: &'r Run,
    section: &'r Section,
    /// Index of the next change if the walk goes forward, and of the change behind it otherwise.
    at: usize,
    next: Option<Change<'r>>,
}

impl<'r> Walk<'r> {
    /// Begins before the first change of the table. The runs come newest first.
    pub(crate) fn new(runs: impl IntoIterator<Item = &'r Run>, table: Table) -> Walk<'r> {
        let mut walk = Walk { sources: Vec::new(), is_forward: true, is_cleared: false };
        for run in runs {
            let Some(section) = run.section_of(table) else { continue };
            walk.sources.push(Source { run, section, at: 0, next: None });
            if section.is_cleared() {
                walk.is_cleared = true;
                break;
            }
        }
        walk.go_first();
        walk
    }

    /// Whether the table was cleared, so that nothing older than the runs counts.
    pub(crate) fn is_cleared(&self) -> bool {
        self.is_cleared
    }

    /// Whether the runs have no change of the table.
    pub(crate) fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// Goes before the first change, to walk forward.
    pub(crate) fn go_first(&mut self) {
        self.position(true, |source| source.section.changes().start);
    }

    /// Goes behind the last change, to walk backward.
    pub(crate) fn go_last(&mut self) {
        self.position(false, |source| source.section.changes().end);
    }

    /// Goes between the changes that are below this key and value and those that are not, to walk forward
    /// or backward.
    pub(crate) fn seek(&mut self, key: &[u8], value: &[u8], is_forward: bool) {
        self.position(is_forward, |source| source.run.seek(source.section, key, value));
    }

    fn position(&mut self, is_forward: bool, at: impl Fn(&Source<'r>) -> usize) {
        self.is_forward = is_forward;
        for source in &mut self.sources {
            source.at = at(source);
            source.load(is_forward);
        }
    }

    /// Returns the next change that counts.
    pub(crate) fn step(&mut self) -> Option<Change<'r>> {
        let is_forward = self.is_forward;
        if let [source] = self.sources.as_mut_slice() {
            return source.take(is_forward);
        }
        loop {
            let (newest, change) = self.nearest()?;
            let sort_key = change.sort_key();
            for source in &mut self.sources[newest..] {
                if source.next.is_some_and(|next| next.sort_key() == sort_key) {
                    source.take(is_forward);
                }
            }
            if !self.is_reset(change.key, newest) {
                return Some(change);
            }
        }
    }

    /// Returns the next change by sort key and age, and the index of its run.
    fn nearest(&self) -> Option<(usize, Change<'r>)> {
        let mut nearest: Option<(usize, Change<'r>)> = None;
        for (index, source) in self.sources.iter().enumerate() {
            let Some(next) = source.next else { continue };
            let is_nearer = nearest.is_none_or(|(_, nearest)| match self.is_forward {
                true => next.sort_key() < nearest.sort_key(),
                false => next.sort_key() > nearest.sort_key(),
            });
            if is_nearer {
                nearest = Some((index, next));
            }
        }
        nearest
    }

    /// Whether a change of all values of the key hides what is older than the runs.
    pub(crate) fn hides_older(&self, key: &[u8]) -> bool {
        self.is_reset(key, self.sources.len())
    }

    /// Whether one of the newest `runs` runs changes all values of the key.
    fn is_reset(&self, key: &[u8], runs: usize) -> bool {
        self.sources[..runs].iter().any(|Source { run, section, .. }| {
            let found = || run.find(section, key, &[]);
            section.has_resets()
                && found().is_some_and(|found| found.operation == Operation::DeleteAll)
        })
    }
}

impl<'r> Source<'r> {
    /// Reads the next change.
    fn load(&mut self, is_forward: bool) {
        let changes = self.section.changes();
        self.next = match is_forward {
            true => (self.at < changes.end).then(|| self.run.change(self.at)),
            false => (self.at > changes.start).then(|| self.run.change(self.at - 1)),
        };
    }

    /// Takes the next change.
    fn take(&mut self, is_forward: bool) -> Option<Change<'r>> {
        let taken = self.next?;
        self.at = if is_forward { self.at + 1 } else { self.at - 1 };
        self.load(is_forward);
        Some(taken)
    }
}

/// Merges runs, which come newest first, into one run.
pub(crate) fn merge(runs: &[Run]) -> Run {
    let mut tables: Vec<Table> = runs.iter().flat_map(Run::sections).map(Section::table).collect();
    tables.sort_unstable();
    tables.dedup();
    let mut merged = Builder::default();
    merged.reserve(runs.iter().map(Run::len).sum(), runs.iter().map(Run::bytes).sum());
    for table in tables {
        let mut walk = Walk::new(runs, table);
        if walk.is_cleared() {
            merged.push(Operation::Clear, table, &[], [&[], &[]]);
        }
        while let Some(Change { operation, table, key, value }) = walk.step() {
            merged.push(operation, table, key, [value, &[]]);
        }
    }
    merged.finish()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::memtable::planned;

    const ONE: Table = Table(1);
    const MANY: Table = Table(2);

    /// A change of a table with one value under each key, or of one with several.
    #[derive(Clone, Debug)]
    enum Step {
        Put(bool, u8, u8),
        Delete(bool, u8),
        DeleteValue(u8, u8),
        Clear(bool),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let (key, value) = (|| 0..6u8, || 1..4u8);
        let step = prop_oneof![
            8 => (any::<bool>(), key(), value()).prop_map(|(many, key, value)| Step::Put(many, key, value)),
            3 => (any::<bool>(), key()).prop_map(|(many, key)| Step::Delete(many, key)),
            3 => (key(), value()).prop_map(|(key, value)| Step::DeleteValue(key, value)),
            1 => any::<bool>().prop_map(Step::Clear),
        ];
        vec(step, 0..12)
    }

    impl Step {
        /// The change, whose key and value lie in `bytes`.
        fn change<'b>(&self, bytes: &'b [u8]) -> Change<'b> {
            use Operation::*;
            let at = |byte: u8| &bytes[usize::from(byte)..=usize::from(byte)];
            let (operation, table, key, value): (_, _, &[u8], &[u8]) = match *self {
                Step::Put(false, key, value) => (Put, ONE, at(key), at(value)),
                Step::Put(true, key, value) => (PutValue, MANY, at(key), at(value)),
                Step::Delete(false, key) => (Delete, ONE, at(key), &[]),
                Step::Delete(true, key) => (DeleteAll, MANY, at(key), &[]),
                Step::DeleteValue(key, value) => (DeleteValue, MANY, at(key), at(value)),
                Step::Clear(many) => (Clear, if many { MANY } else { ONE }, &[], &[]),
            };
            Change { operation, table, key, value }
        }
    }

    /// Entries of a table, by key and, where there may be several, by value.
    type Content = BTreeSet<(Table, Vec<u8>, Vec<u8>)>;

    fn apply(content: &mut Content, change: Change<'_>) {
        let Change { operation, table, key, value } = change;
        let of_key = |entry: &(Table, Vec<u8>, Vec<u8>)| entry.0 == table && entry.1 == key;
        match operation {
            Operation::Put | Operation::Delete | Operation::DeleteAll => {
                content.retain(|entry| !of_key(entry));
            }
            Operation::DeleteValue => content.retain(|entry| !of_key(entry) || entry.2 != value),
            Operation::Clear => content.retain(|entry| entry.0 != table),
            Operation::PutValue => {}
        }
        if operation.puts() {
            content.insert((table, key.to_vec(), value.to_vec()));
        }
    }

    /// The content after the changes of runs, newest first, on top of a content.
    fn overlaid(runs: &[Run], below: &Content) -> Content {
        let mut content = Content::new();
        for table in [ONE, MANY] {
            let mut walk = Walk::new(runs, table);
            let is_cleared = walk.is_cleared();
            let mut changes = BTreeMap::new();
            while let Some(change) = walk.step() {
                let (_, key, value) = change.sort_key();
                changes.insert((key.to_vec(), value.to_vec()), change);
            }
            for (of, key, value) in below {
                let by_value = if table == MANY { value.clone() } else { Vec::new() };
                let is_hidden = is_cleared
                    || walk.hides_older(key)
                    || changes.contains_key(&(key.clone(), by_value));
                if *of == table && !is_hidden {
                    content.insert((table, key.clone(), value.clone()));
                }
            }
            for change in changes.values().filter(|change| change.operation.puts()) {
                content.insert((table, change.key.to_vec(), change.value.to_vec()));
            }
        }
        content
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]
        #[test]
        fn runs_together_have_the_content_of_their_changes_in_order(
            below in steps(),
            groups in vec(steps(), 1..6),
        ) {
            let bytes: Vec<u8> = (0..6).collect();
            let mut content = Content::new();
            below.iter().for_each(|step| apply(&mut content, step.change(&bytes)));
            let base = content.clone();
            let mut runs = Vec::new();
            for group in &groups {
                let changes: Vec<_> = group.iter().map(|step| step.change(&bytes)).collect();
                changes.iter().for_each(|change| apply(&mut content, *change));
                runs.insert(0, planned(&changes));
            }
            prop_assert_eq!(&overlaid(&runs, &base), &content);
            prop_assert_eq!(&overlaid(&[merge(&runs)], &base), &content);

            for table in [ONE, MANY] {
                let mut walk = Walk::new(&runs, table);
                let forward: Vec<_> = std::iter::from_fn(|| walk.step()).collect();
                walk.go_last();
                let mut backward: Vec<_> = std::iter::from_fn(|| walk.step()).collect();
                backward.reverse();
                prop_assert_eq!(&forward, &backward);
                for (index, change) in forward.iter().enumerate() {
                    let (_, key, value) = change.sort_key();
                    walk.seek(key, value, true);
                    prop_assert_eq!(walk.step(), Some(*change));
                    walk.seek(key, value, false);
                    prop_assert_eq!(walk.step(), index.checked_sub(1).map(|before| forward[before]));
                }
            }
        }
    }
}
