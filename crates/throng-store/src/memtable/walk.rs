//! [`Walk`]: the changes of a table in several memtables, as if they were one sorted run.
//!
//! ```text
//! newest │   │ b=7 │     │ d deleted │          b=7
//!        │ a=1     │ c=3 │ d=4       │   ──▶    a=1  b=7  c=3  d deleted
//! oldest │ a=0 b=2 │     │ d=0       │
//! ```
//!
//! 1. The newest of the changes of a sort key counts, among those with positions that count.
//! 2. A change of all values of a key hides the changes of its values at lower positions, and a
//!    change of a whole table hides all changes of its keys at lower positions.
//! 3. The sources, a source for each run of each memtable, stay sorted by their next changes. A
//!    step advances the first and moves it to its place, mostly after a single comparison.

use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic;

use crate::memtable::change::{Change, Operation};
use crate::memtable::order::Run;
use crate::memtable::{Layers, Memtable, Part, decoded};
use crate::table::Table;

/// Number of changes in a row without a value after which a memtable is tiresome.
const IDLE_MAX: usize = 1_000;

/// An iteration over the changes of a table, forward or backward; see the file's head.
pub(crate) struct Walk<'l> {
    layers: &'l Layers,
    table: Table,
    /// Position of the last change that clears the table; changes up to it do not count.
    cleared: Option<u64>,
    has_resets: bool,
    is_empty: bool,
    is_forward: bool,
    /// The sources, that of the next change first; none before the walk is positioned.
    sources: Vec<Source<'l>>,
    /// Number of changes since the last value.
    idle: usize,
    /// The last key that was searched for a change of all its values, and the position of that.
    reset: (&'l [u8], u64),
}

struct Source<'l> {
    memtable: &'l Memtable,
    part: &'l Part,
    age: usize,
    run: Arc<Run>,
    /// Index of the node after those taken if the walk goes forward, and of the last one taken otherwise.
    at: usize,
    next: Option<(u64, Change<'l>)>,
    /// The changes after the next one that are loaded already, the last one first.
    ahead: Vec<(u64, Change<'l>)>,
    /// Number of nodes to take together the next time.
    batch: usize,
}

/// Most nodes that are taken together. Each is several cache misses away, and those of different nodes overlap:
/// a walk over a million changes takes half as long as one by one, with 32 no less than with 16.
const BATCH_MAX: usize = 16;

impl<'l> Walk<'l> {
    /// Creates a walk without a position, which has no next change.
    pub(crate) fn new(layers: &'l Layers, table: Table) -> Walk<'l> {
        let cleared = layers.cleared(table);
        let mut parts = layers.parts(table);
        let is_empty = cleared.is_none() && parts.all(|(_, part)| part.is_empty(layers.upto));
        let mut parts = layers.parts(table);
        Walk {
            layers,
            table,
            cleared,
            has_resets: parts.any(|(_, part)| part.has_resets.load(atomic::Ordering::Relaxed)),
            is_empty,
            is_forward: true,
            sources: Vec::new(),
            idle: 0,
            reset: (&[], 0),
        }
    }

    /// Whether the table was cleared, so that LMDB's entries do not count.
    pub(crate) fn is_cleared(&self) -> bool {
        self.cleared.is_some()
    }

    /// Whether the memtables do not change the table.
    pub(crate) fn is_empty(&self) -> bool {
        self.is_empty
    }

    /// Number of keys that the positioned walk passes over at most, those of all memtables.
    pub(crate) fn keys(&self) -> usize {
        self.sources.iter().map(|source| source.run.len()).sum()
    }

    pub(crate) fn go_first(&mut self) {
        self.position(true, |_| 0);
    }

    /// Goes before the first change, and leaves out deletions of keys other than these, which the layers are over.
    ///
    /// Only for a walk from the first change on, over a single memtable that does not change any more.
    pub(crate) fn go_first_without_deleted<'k>(&mut self, but: impl Iterator<Item = &'k [u8]>) {
        if let Some((memtable, part)) = self.layers.parts(self.table).next() {
            let run = Arc::new(part.run_without_deleted(memtable, but));
            self.sources = vec![Source::new((memtable, part), 0, run)];
        }
        self.go_first();
    }

    pub(crate) fn go_last(&mut self) {
        self.position(false, |source| source.run.len());
    }

    /// Goes between the changes that are below this key and value and those that are not, to walk
    /// forward or backward.
    pub(crate) fn seek(&mut self, key: &[u8], value: &[u8], is_forward: bool) {
        self.position(is_forward, |Source { memtable, part, run, .. }| {
            run.seek((key, value), |node| part.text(memtable, node))
        });
    }

    fn position(&mut self, is_forward: bool, at: impl Fn(&Source<'l>) -> usize) {
        if self.is_empty {
            return;
        }
        if self.sources.is_empty() {
            self.open();
        }
        self.is_forward = is_forward;
        self.idle = 0;
        for index in 0..self.sources.len() {
            let at = at(&self.sources[index]);
            self.sources[index].go_to(at);
            self.load(index);
        }
        self.sources.sort_by(|one, other| one.compare(other, is_forward));
    }

    /// Collects the sources, without memtables whose changes are all cleared.
    fn open(&mut self) {
        let floor = self.floor();
        for (age, (memtable, part)) in self.layers.parts(self.table).enumerate() {
            if memtable.last() <= floor {
                break;
            }
            for run in part.runs(memtable, self.layers.upto).iter() {
                self.sources.push(Source::new((memtable, part), age, Arc::clone(run)));
            }
        }
    }

    /// Returns the next change that counts; `None` after the last, and before the walk is
    /// positioned.
    pub(crate) fn step(&mut self) -> Option<Change<'l>> {
        loop {
            let Source { memtable, age, next, .. } = self.sources.first()?;
            let (memtable, age, (position, change)) = (*memtable, *age, (*next)?);
            let is_hidden = position < self.reset_of(change.key);
            match change.operation.puts() && !is_hidden {
                true => self.idle = 0,
                false => self.pass(memtable),
            }
            self.advance();
            // Older changes of the sort key come next, if there are any.
            while let Some(other) = self.sources.first()
                && other.age != age
                && other.next.is_some_and(|(_, next)| next.sort_key() == change.sort_key())
            {
                self.advance();
            }
            if !is_hidden {
                return Some(change);
            }
        }
    }

    /// Whether a change of all values of the key hides LMDB's.
    pub(crate) fn hides_older(&self, key: &[u8]) -> bool {
        self.has_resets && self.find_reset(key) > 0
    }

    /// Returns the position of the last change of all values of a key; 0 if there is none.
    fn reset_of(&mut self, key: &'l [u8]) -> u64 {
        if self.has_resets && self.reset.0 != key {
            self.reset = (key, self.find_reset(key));
        }
        self.reset.1
    }

    fn find_reset(&self, key: &[u8]) -> u64 {
        let found = self.layers.find(self.table, key);
        let reset = found.filter(|(_, change)| change.operation == Operation::DeleteAll);
        reset.map_or(0, |(position, _)| position)
    }

    /// Loads the next change of the first source, and moves the source to its place.
    fn advance(&mut self) {
        self.load(0);
        let mut at = 0;
        while let [one, other, ..] = &self.sources[at..]
            && one.compare(other, self.is_forward).is_gt()
        {
            self.sources.swap(at, at + 1);
            at += 1;
        }
    }

    /// Loads the next change of a source that counts.
    fn load(&mut self, index: usize) {
        let floor = self.floor();
        loop {
            let source = &mut self.sources[index];
            source.next = source.ahead.pop();
            if source.next.is_some() {
                return;
            }
            let taken = source.look_ahead(self.is_forward, self.layers.upto, floor);
            let (passed, memtable) = (taken - source.ahead.len(), source.memtable);
            (0..passed).for_each(|_| self.pass(memtable));
            if taken == 0 {
                return;
            }
        }
    }

    /// Returns the position up to which changes do not count.
    fn floor(&self) -> u64 {
        self.cleared.unwrap_or(self.layers.after)
    }

    /// Counts a change without a value.
    fn pass(&mut self, memtable: &Memtable) {
        self.idle += 1;
        if self.idle > IDLE_MAX {
            memtable.is_tiresome.store(true, atomic::Ordering::Relaxed);
        }
    }
}

impl<'l> Source<'l> {
    fn new((memtable, part): (&'l Memtable, &'l Part), age: usize, run: Arc<Run>) -> Source<'l> {
        Source { memtable, part, age, run, at: 0, next: None, ahead: Vec::new(), batch: 1 }
    }

    fn go_to(&mut self, at: usize) {
        (self.at, self.batch) = (at, 1);
        self.ahead.clear();
    }

    /// Loads the changes of the next nodes that count, and returns the number of all nodes taken, which is 0
    /// at the end. Reads in stages, each of the same depth in memory for all nodes.
    fn look_ahead(&mut self, is_forward: bool, upto: u64, floor: u64) -> usize {
        let Source { memtable, part, .. } = *self;
        let left = if is_forward { self.run.len() - self.at } else { self.at };
        let taken = self.batch.min(left);
        let start = if is_forward { self.at } else { self.at - taken };
        self.at = if is_forward { self.at + taken } else { start };
        self.batch = (2 * self.batch).min(BATCH_MAX);
        // The last one first, so that `ahead` ends with the next change.
        let node =
            |at: usize| self.run.node(if is_forward { start + taken - 1 - at } else { start + at });
        let nodes = &mut [None; BATCH_MAX][..taken];
        for (at, found) in nodes.iter_mut().enumerate() {
            *found = Some(part.entry(node(at)));
        }
        let entries = &mut [None; BATCH_MAX][..taken];
        for (node, found) in nodes.iter().zip(&mut *entries) {
            let visible = node.and_then(|node| part.visible(node, upto));
            *found = visible.filter(|entry| entry.position > floor);
        }
        let texts = &mut [None; BATCH_MAX][..taken];
        for (entry, found) in entries.iter().zip(&mut *texts) {
            *found = entry.map(|entry| (entry.position, memtable.encoded(entry)));
        }
        let changes = texts.iter().flatten().map(|(position, bytes)| (*position, decoded(bytes)));
        self.ahead.extend(changes);
        taken
    }

    /// Compares by the next change, and by age if both have one sort key; exhausted sources come
    /// last.
    fn compare(&self, other: &Self, is_forward: bool) -> Ordering {
        match (&self.next, &other.next) {
            (Some((_, one)), Some((_, next))) => {
                let order = (one.key, sorted_by(one)).cmp(&(next.key, sorted_by(next)));
                let order = if is_forward { order } else { order.reverse() };
                order.then(self.age.cmp(&other.age))
            }
            (one, next) => next.is_some().cmp(&one.is_some()),
        }
    }
}

/// Returns the value of a change as a part of its sort key.
fn sorted_by<'c>(change: &Change<'c>) -> &'c [u8] {
    change.sort_key().2
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::LazyLock;

    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::*;
    use crate::memtable::{Found, encoded};

    const ONE: Table = Table(1);
    const MANY: Table = Table(2);

    /// Keys, some with prefixes in common that are longer than heads.
    static KEYS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
        let prefixes = ["k", "common/prefix/", "common/prefix/longer/"];
        let tails = ["", "\0", "\0\0", "a", "b", "bc", "b\0", "z23456789", "z2345678a"];
        let key = |prefix: &str| tails.map(|tail| [prefix, tail].concat().into_bytes());
        prefixes.iter().flat_map(|prefix| key(prefix)).collect()
    });

    const VALUES: [&[u8]; 4] = [b"1", b"2", b"2\0", b"longer than a head"];

    /// A change of a table with one value under each key, or of one with several.
    #[derive(Clone, Debug)]
    enum Step {
        Put(bool, Index, Index),
        Delete(bool, Index),
        DeleteValue(Index, Index),
        Clear(bool),
        /// A walk, which makes a run.
        Walk,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let index = any::<Index>;
        let step = prop_oneof![
            20 => (any::<bool>(), index(), index()).prop_map(|(many, k, v)| Step::Put(many, k, v)),
            6 => (any::<bool>(), index()).prop_map(|(many, key)| Step::Delete(many, key)),
            6 => (index(), index()).prop_map(|(key, value)| Step::DeleteValue(key, value)),
            1 => any::<bool>().prop_map(Step::Clear),
            3 => Just(Step::Walk),
        ];
        vec(step, 0..40)
    }

    impl Step {
        fn change(&self) -> Option<Change<'static>> {
            use Operation::*;
            let key = |index: &Index| index.get(&KEYS).as_slice();
            let value = |index: &Index| *index.get(&VALUES);
            let (operation, table, key, value): (_, _, &'static [u8], &'static [u8]) = match self {
                Step::Put(false, at, of) => (Put, ONE, key(at), value(of)),
                Step::Put(true, at, of) => (PutValue, MANY, key(at), value(of)),
                Step::Delete(false, at) => (Delete, ONE, key(at), &[]),
                Step::Delete(true, at) => (DeleteAll, MANY, key(at), &[]),
                Step::DeleteValue(at, of) => (DeleteValue, MANY, key(at), value(of)),
                Step::Clear(many) => (Clear, if *many { MANY } else { ONE }, &[], &[]),
                Step::Walk => return None,
            };
            Some(Change { operation, table, key, value })
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

    fn overlaid(layers: &Layers, below: &Content) -> Content {
        let mut content = Content::new();
        for table in [ONE, MANY] {
            let mut walk = layers.walk(table);
            let is_cleared = walk.is_cleared();
            assert!(walk.step().is_none());
            walk.go_first();
            let mut changes = BTreeMap::new();
            while let Some(change) = walk.step() {
                let (_, key, value) = change.sort_key();
                changes.insert((key.to_vec(), value.to_vec()), change);
            }
            assert!(!walk.is_empty() || (changes.is_empty() && !is_cleared));
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
        #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
        #[test]
        fn layers_have_the_content_of_their_changes_in_order(
            groups in vec(vec(steps(), 0..4), 3),
            bounds in (any::<Index>(), any::<Index>()),
        ) {
            // The content after each position.
            let mut contents = vec![Content::new()];
            let mut memtables = Vec::new();
            for group in &groups {
                let memtable = Arc::new(Memtable::new(3, 0));
                memtables.insert(0, Arc::clone(&memtable));
                for steps in group {
                    let layers = || Layers {
                        memtables: Arc::new([Arc::clone(&memtable)]),
                        after: 0,
                        upto: memtable.last(),
                    };
                    for steps in steps.split_inclusive(|step| matches!(step, Step::Walk)) {
                        let changes: Vec<_> = steps.iter().filter_map(Step::change).collect();
                        memtable.add(contents.len() as u64, encoded(&changes));
                        for change in changes {
                            let mut content = contents.last().unwrap().clone();
                            apply(&mut content, change);
                            contents.push(content);
                        }
                        layers().walk(MANY).go_first();
                        layers().walk(ONE).go_first();
                    }
                }
            }
            let mut bounds = [bounds.0.index(contents.len()), bounds.1.index(contents.len())];
            bounds.sort();
            for [after, upto] in [bounds, [0, contents.len() - 1], [0, bounds[1]]] {
                let memtables = memtables.clone().into();
                let layers = Layers { memtables, after: after as u64, upto: upto as u64 };
                let (below, content) = (&contents[after], &contents[upto]);
                prop_assert_eq!(&overlaid(&layers, below), content);

                for key in KEYS.iter() {
                    let of = |content: &Content| {
                        let found = content.iter().find(|entry| entry.0 == ONE && entry.1 == *key);
                        found.map(|entry| entry.2.clone())
                    };
                    let found = match layers.get(ONE, key) {
                        Found::Value(value) => Some(value.to_vec()),
                        Found::Deleted => None,
                        Found::Unchanged => of(below),
                    };
                    prop_assert_eq!(found, of(content));
                }

                for table in [ONE, MANY] {
                    let mut walk = layers.walk(table);
                    walk.go_first();
                    let forward: Vec<_> = std::iter::from_fn(|| walk.step()).collect();
                    prop_assert!(forward.is_sorted_by_key(|change| change.sort_key()));
                    walk.go_last();
                    let mut backward: Vec<_> = std::iter::from_fn(|| walk.step()).collect();
                    backward.reverse();
                    prop_assert_eq!(&forward, &backward);
                    let sought = KEYS.iter().flat_map(|key| VALUES.map(|value| (key, value)));
                    for (key, value) in sought {
                        let value = if table == MANY { value } else { &[] };
                        let at = forward.partition_point(|change| {
                            change.sort_key() < (table, key.as_slice(), value)
                        });
                        walk.seek(key, value, true);
                        prop_assert_eq!(walk.step(), forward.get(at).copied());
                        walk.seek(key, value, false);
                        let before = at.checked_sub(1).map(|before| forward[before]);
                        prop_assert_eq!(walk.step(), before);
                    }
                }
            }
        }
    }

    #[test]
    fn many_deletions_in_a_row_are_tiresome() {
        for (deleted, is_tiresome) in [(IDLE_MAX, false), (IDLE_MAX + 1, true)] {
            let memtable = Memtable::new(2, 0);
            for number in 0..2_000 {
                let key = u32::to_be_bytes(number);
                let (operation, value) = match number >= 500 && number - 500 < deleted as u32 {
                    true => (Operation::Delete, &b""[..]),
                    false => (Operation::Put, &b"value"[..]),
                };
                let change = Change { operation, table: ONE, key: &key, value };
                memtable.add(u64::from(number) + 1, encoded(&[change]));
            }
            let layers = Layers::of(memtable);
            let mut walk = layers.walk(ONE);
            walk.go_first();
            while walk.step().is_some() {}
            assert_eq!(layers.memtables[0].is_tiresome(), is_tiresome);
        }
    }
}
