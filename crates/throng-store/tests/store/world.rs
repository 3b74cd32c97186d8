//! All kinds of databases and all operations, compared with ordered sets on random histories.
//!
//! A history writes batches, runs updates, takes snapshots and reads them later, and opens the
//! store again. After each step, and inside each update, every way to read must agree with the model.

use std::collections::BTreeSet;
use std::ops::{Bound, RangeBounds};

use proptest::prelude::*;
use throng_store::elmdb::Cursor;
use throng_store::{
    Batch, Bytes, Database, DatabaseOptions, Snapshot, Store, Update, UpdateError, WriteError,
};

use crate::directory_in_memory;

type Pair = (Vec<u8>, Vec<u8>);

/// The entries of the databases: with checksums, without, and with several values under a key.
#[derive(Clone, Debug, Default)]
struct World([BTreeSet<Pair>; 3]);

const SEVERAL: usize = 2;

#[derive(Clone, Debug)]
struct Operation {
    database: usize,
    key: Vec<u8>,
    value: Vec<u8>,
    action: Action,
}

#[derive(Clone, Copy, Debug)]
enum Action {
    Put,
    PutNew,
    Delete,
    /// Deletes a value of a database with several values under a key; elsewhere it is a `Put`.
    DeleteValue,
    /// Adds to a counter; in a database with several values under a key it is a `Put`.
    Add,
    Clear,
}

#[derive(Clone, Debug)]
enum Step {
    Batch(Vec<Operation>),
    /// An update, and whether it aborts at its end.
    Update(Vec<Operation>, bool),
    Keep,
    Forget,
    Reopen,
}

#[derive(Clone, Copy, Debug)]
enum Go {
    First,
    Last,
    Next,
    Prev,
    NextKey,
    PrevKey,
    Current,
    FirstValue,
    LastValue,
    NextValue,
    PrevValue,
    Seek,
    SeekRange,
    SeekValueRange,
}

impl World {
    fn has(&self, database: usize, key: &[u8]) -> bool {
        self.0[database].iter().any(|(own, _)| own == key)
    }

    fn delete(&mut self, database: usize, key: &[u8]) {
        self.0[database].retain(|(own, _)| own != key);
    }

    /// Applies an operation of a batch. No other function of this file defines its effect.
    fn apply(&mut self, Operation { database, key, value, action }: &Operation) {
        let several = *database == SEVERAL;
        let mut value = value.clone();
        match action {
            Action::Delete => return self.delete(*database, key),
            Action::Clear => return self.0[*database].clear(),
            Action::DeleteValue if several => {
                self.0[*database].remove(&(key.clone(), value));
                return;
            }
            Action::Add if !several => {
                let own = self.0[*database].iter().find(|(own, _)| own == key);
                let before = own.and_then(|(_, value)| value.as_slice().try_into().ok());
                let sum = before.map_or(0, i64::from_le_bytes).wrapping_add(difference(&value));
                value = sum.to_le_bytes().to_vec();
            }
            Action::Put | Action::PutNew | Action::DeleteValue | Action::Add => {}
        }
        if !several {
            self.delete(*database, key);
        }
        self.0[*database].insert((key.clone(), value));
    }
}

fn difference(value: &[u8]) -> i64 {
    let short = value.first().map_or(-1, |first| i64::from(*first));
    value.try_into().map_or(short, i64::from_le_bytes)
}

type Databases = [Database<Bytes, Bytes>; 3];

fn open(store: &Store) -> Databases {
    let plain = DatabaseOptions::new().without_checksums();
    let several = DatabaseOptions::new().duplicates();
    let options = [("checked", DatabaseOptions::new()), ("plain", plain), ("several", several)];
    options.map(|(name, options)| store.database_with(name, &options).unwrap())
}

fn batch(databases: &Databases, operations: &[Operation]) -> Batch {
    operations.iter().fold(Batch::new(), |batch, operation| {
        let Operation { database, key, value, action } = operation;
        let (own, several) = (&databases[*database], *database == SEVERAL);
        match action {
            Action::PutNew => batch.put_new(own, key, value),
            Action::Delete => batch.delete(own, key),
            Action::DeleteValue if several => batch.delete_value(own, key, value),
            Action::Add if !several => batch.add(own, key, difference(value)),
            Action::Clear => batch.clear(own),
            Action::Put | Action::DeleteValue | Action::Add => batch.put(own, key, value),
        }
    })
}

/// Runs the operations that an update supports, and returns them for the model.
fn update(
    update: &mut Update<'_>,
    databases: &Databases,
    operations: &[Operation],
) -> Vec<Operation> {
    let done = operations.iter().filter_map(|operation| {
        let Operation { database, key, value, action } = operation;
        let (own, several) = (&databases[*database], *database == SEVERAL);
        match action {
            Action::Delete => update.delete(own, key),
            Action::DeleteValue if several => update.delete_value(own, key, value),
            Action::Clear => update.clear(own),
            Action::PutNew | Action::Add => return None,
            Action::Put | Action::DeleteValue => update.put(own, key, value),
        }
        Some(operation.clone())
    });
    done.collect()
}

fn slices(pair: &Pair) -> (&[u8], &[u8]) {
    (&pair.0, &pair.1)
}

/// Reads that are compared with the model after each step.
#[derive(Clone, Debug)]
struct Probes {
    walks: Vec<(Go, Pair)>,
    ranges: Vec<Bounds>,
    /// The ends from which a range is read, over and over: `true` for its begin.
    ends: Vec<bool>,
    /// Number of entries in a chunk of a scan.
    chunk: usize,
}

type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

fn slices_of((start, end): &Bounds) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (start.as_ref().map(Vec::as_slice), end.as_ref().map(Vec::as_slice))
}

/// Compares a range with the pairs that it shall have: forward, backward, and a few calls past its end from both.
fn check_range<'e, R: DoubleEndedIterator<Item = (&'e [u8], &'e [u8])>>(
    range: impl Fn() -> R,
    expected: &[(&'e [u8], &'e [u8])],
    ends: &[bool],
) {
    assert!(range().eq(expected.iter().copied()));
    assert!(range().rev().eq(expected.iter().rev().copied()));
    let (mut range, mut pairs) = (range(), expected.iter().copied());
    for from_begin in ends.iter().cycle().take(expected.len() + 3) {
        match from_begin {
            true => assert_eq!(range.next(), pairs.next()),
            false => assert_eq!(range.next_back(), pairs.next_back()),
        }
    }
}

/// Compares all reads of a snapshot with the model.
fn check(snapshot: &Snapshot, databases: &Databases, world: &World, probes: &Probes) {
    for (own, pairs) in databases.iter().zip(&world.0) {
        let all: Vec<_> = pairs.iter().map(slices).collect();
        assert_eq!(own.len(snapshot).unwrap(), all.len() as u64);
        assert_eq!(own.is_empty(snapshot).unwrap(), all.is_empty());
        let those = |of: &dyn Fn(&[u8]) -> bool| -> Vec<_> {
            all.iter().filter(|(key, _)| of(key)).copied().collect()
        };
        for (_, (key, _)) in &probes.walks {
            let of_key = those(&|own| own == key);
            let first = of_key.first().map(|(_, value)| *value);
            assert_eq!(own.get(snapshot, key).unwrap(), first);
            let values = || own.values(snapshot, key).map(Result::unwrap);
            check_range(values, &of_key, &probes.ends);
            let prefix = &key[..key.len() / 2];
            let found = || own.prefix(snapshot, prefix).map(Result::unwrap);
            check_range(found, &those(&|key| key.starts_with(prefix)), &probes.ends);
        }
        for bounds in &probes.ranges {
            let expected = those(&|key| slices_of(bounds).contains(key));
            let found = || own.range(snapshot, slices_of(bounds)).map(Result::unwrap);
            check_range(found, &expected, &probes.ends);
        }
        walk(&mut Cursor::new(own, snapshot).unwrap(), &all, &probes.walks);
    }
}

/// Compares all reads of an update, which show its own writes, with the model.
fn check_update(update: &Update<'_>, databases: &Databases, world: &World, probes: &Probes) {
    for (own, pairs) in databases.iter().zip(&world.0) {
        let all: Vec<_> = pairs.iter().map(slices).collect();
        for (_, (key, _)) in &probes.walks {
            let first = all.iter().find(|(own, _)| own == key).map(|(_, value)| *value);
            assert_eq!(update.get(own, key).unwrap(), first);
        }
        for bounds in &probes.ranges {
            let within = |(key, _): &&(&[u8], &[u8])| slices_of(bounds).contains(*key);
            let expected: Vec<_> = all.iter().filter(within).copied().collect();
            let found = || update.range(own, slices_of(bounds)).map(Result::unwrap);
            check_range(found, &expected, &probes.ends);
        }
        walk(&mut Cursor::of_update(own, update).unwrap(), &all, &probes.walks);
    }
}

/// Compares scans in chunks, which take their own snapshots, with the newest state.
fn check_scans(databases: &Databases, world: &World, probes: &Probes) {
    for (number, (own, pairs)) in databases.iter().zip(&world.0).enumerate() {
        for bounds in &probes.ranges {
            for backward in [false, true] {
                let scan = own.scan(slices_of(bounds)).chunk(probes.chunk);
                let mut found = Vec::new();
                for chunk in if backward { scan.backward() } else { scan } {
                    let chunk = chunk.unwrap();
                    let pairs = chunk.iter().map(|pair| pair.unwrap());
                    let before = found.len();
                    found.extend(pairs.map(|(key, value)| (key.to_vec(), value.to_vec())));
                    // A chunk never splits the values of a key, and may be longer for this.
                    let length = found.len() - before;
                    assert!(length > 0 && (number == SEVERAL || length <= probes.chunk.max(1)));
                }
                if backward {
                    found.reverse();
                }
                let within = |(key, _): &&Pair| slices_of(bounds).contains(key.as_slice());
                assert!(found.iter().eq(pairs.iter().filter(within)));
            }
        }
    }
}

/// Position of a cursor.
#[derive(Clone, Copy)]
enum Stands {
    Before,
    At(usize),
    Behind,
}

fn walk(cursor: &mut Cursor<'_>, all: &[(&[u8], &[u8])], walks: &[(Go, Pair)]) {
    let mut stands = Stands::Before;
    for (go, (key, value)) in walks {
        let found = match go {
            Go::First => cursor.first(),
            Go::Last => cursor.last(),
            Go::Next => cursor.next(),
            Go::Prev => cursor.prev(),
            Go::NextKey => cursor.next_key(),
            Go::PrevKey => cursor.prev_key(),
            Go::Current => cursor.current(),
            Go::FirstValue => cursor.first_value(),
            Go::LastValue => cursor.last_value(),
            Go::NextValue => cursor.next_value(),
            Go::PrevValue => cursor.prev_value(),
            Go::Seek => cursor.seek(key),
            Go::SeekRange => cursor.seek_range(key),
            Go::SeekValueRange => cursor.seek_value_range(key, value),
        };
        let at = match stands {
            Stands::At(at) => Some(at),
            _ => None,
        };
        let of_key = |other: usize| at.is_some_and(|at| all[at].0 == all[other].0);
        let here = |stays: Option<usize>| (stays, stands);
        let (index, otherwise) = match go {
            Go::First => ((!all.is_empty()).then_some(0), Stands::Behind),
            Go::Last => (all.len().checked_sub(1), Stands::Before),
            Go::Next | Go::NextKey => match stands {
                Stands::Before => ((!all.is_empty()).then_some(0), Stands::Behind),
                Stands::At(at) => {
                    let mut next = at + 1..all.len();
                    let next = next.find(|at| matches!(go, Go::Next) || !of_key(*at));
                    (next, Stands::Behind)
                }
                Stands::Behind => (None, Stands::Behind),
            },
            Go::Prev | Go::PrevKey => match stands {
                Stands::Before => (None, Stands::Before),
                Stands::At(at) => {
                    let next = (0..at).rev().find(|at| matches!(go, Go::Prev) || !of_key(*at));
                    (next, Stands::Before)
                }
                Stands::Behind => (all.len().checked_sub(1), Stands::Before),
            },
            Go::Current => here(at),
            Go::FirstValue => here((0..all.len()).find(|other| of_key(*other))),
            Go::LastValue => here((0..all.len()).rfind(|other| of_key(*other))),
            Go::NextValue => here(at.map(|at| at + 1).filter(|at| *at < all.len() && of_key(*at))),
            Go::PrevValue => here(at.and_then(|at| at.checked_sub(1)).filter(|at| of_key(*at))),
            Go::Seek => (all.iter().position(|(own, _)| own == key), Stands::Behind),
            Go::SeekRange => (all.iter().position(|(own, _)| *own >= &**key), Stands::Behind),
            Go::SeekValueRange => {
                let fits = |(own, other): &(&[u8], &[u8])| own == key && *other >= &**value;
                (all.iter().position(fits), Stands::Behind)
            }
        };
        assert_eq!(found.unwrap(), index.map(|index| all[index]), "{go:?} {key:?}");
        stands = index.map_or(otherwise, Stands::At);
        let values = match stands {
            Stands::At(at) => all.iter().filter(|(key, _)| *key == all[at].0).count(),
            _ => 0,
        };
        assert_eq!(cursor.values().unwrap(), values as u64);
    }
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop_oneof![Just(0), Just(b'a'), Just(0xff)], 1..3)
}

/// Keys from a set so small that operations meet, with the longest in it.
fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![16 => bytes(), 1 => (0u8..3).prop_map(|byte| vec![byte; 511])]
}

/// Values where a key may have several: so few that operations meet, and neither empty nor long.
fn one_of_several() -> impl Strategy<Value = Vec<u8>> {
    prop::sample::select(vec![vec![0], b"a".to_vec(), b"a\0".to_vec(), vec![0xff]])
}

/// Keys to search for, some of which no entry can have.
fn sought() -> impl Strategy<Value = Vec<u8>> {
    let impossible = (0u8..3).prop_map(|byte| vec![byte; 512]);
    prop_oneof![8 => key(), 1 => Just(Vec::new()), 1 => impossible]
}

fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
    prop_oneof![
        1 => Just(Bound::Unbounded),
        2 => sought().prop_map(Bound::Included),
        2 => sought().prop_map(Bound::Excluded),
    ]
}

/// Values from empty to several pages, some of them counters.
fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => bytes(),
        1 => Just(Vec::new()),
        1 => any::<i64>().prop_map(|counter| counter.to_le_bytes().to_vec()),
        1 => (any::<u8>(), 0usize..20_000).prop_map(|(byte, length)| vec![byte; length]),
    ]
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let action = prop_oneof![
        8 => Just(Action::Put), 1 => Just(Action::PutNew), 3 => Just(Action::Delete),
        6 => Just(Action::DeleteValue), 3 => Just(Action::Add), 1 => Just(Action::Clear),
    ];
    let of_any = (0..SEVERAL, key(), value(), action.clone());
    // So few keys that an update often meets several values.
    let of_several = (Just(SEVERAL), bytes(), one_of_several(), action)
        .prop_map(|(database, key, value, action)| (database, key[..1].to_vec(), value, action));
    let operation = prop_oneof![of_any, of_several]
        .prop_map(|(database, key, value, action)| Operation { database, key, value, action });
    prop::collection::vec(operation, 0..10)
}

fn probes() -> impl Strategy<Value = Probes> {
    let walks = prop::collection::vec((go(), (sought(), one_of_several())), 1..30);
    let ranges = prop::collection::vec((bound(), bound()), 1..6);
    let ends = prop::collection::vec(any::<bool>(), 1..6);
    (walks, ranges, ends, 0usize..6).prop_map(|(walks, ranges, ends, chunk)| Probes {
        walks,
        ranges,
        ends,
        chunk,
    })
}

fn go() -> impl Strategy<Value = Go> {
    prop::sample::select(vec![
        Go::First,
        Go::Last,
        Go::Next,
        Go::Next,
        Go::Prev,
        Go::Prev,
        Go::NextKey,
        Go::PrevKey,
        Go::Current,
        Go::FirstValue,
        Go::LastValue,
        Go::NextValue,
        Go::PrevValue,
        Go::Seek,
        Go::SeekRange,
        Go::SeekValueRange,
    ])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn every_database_agrees_with_its_model(
        steps in prop::collection::vec(prop_oneof![
            6 => operations().prop_map(Step::Batch),
            6 => (operations(), any::<bool>()).prop_map(|(all, ends)| Step::Update(all, ends)),
            2 => Just(Step::Keep),
            1 => Just(Step::Forget),
            1 => Just(Step::Reopen),
        ], 1..12),
        probes in probes(),
    ) {
        let directory = directory_in_memory();
        let reopen = || Store::options().map_bytes(64 << 20).open(directory.path()).unwrap();
        let mut store = reopen();
        let mut databases = open(&store);
        let mut world = World::default();
        let mut kept: Vec<(Snapshot, World)> = Vec::new();
        for step in steps.into_iter().chain([Step::Reopen]) {
            match step {
                Step::Batch(operations) => {
                    let exists = operations.iter().any(|operation| {
                        matches!(operation.action, Action::PutNew)
                            && world.has(operation.database, &operation.key)
                    });
                    match store.write(batch(&databases, &operations)).wait() {
                        Err(WriteError::KeyExists(_)) => prop_assert!(exists),
                        written => {
                            written.unwrap();
                            prop_assert!(!exists);
                            operations.iter().for_each(|operation| world.apply(operation));
                        }
                    }
                }
                Step::Update(operations, gives_up) => {
                    let (own, before, probes) = (databases.clone(), world.clone(), probes.clone());
                    let done = store.update(move |transaction| {
                        let done = update(transaction, &own, &operations);
                        let mut after = before.clone();
                        done.iter().for_each(|operation| after.apply(operation));
                        check_update(transaction, &own, &after, &probes);
                        if gives_up { Err(()) } else { Ok(done) }
                    });
                    match done.wait() {
                        Err(UpdateError::Aborted(())) => prop_assert!(gives_up),
                        done => done.unwrap().iter().for_each(|operation| world.apply(operation)),
                    }
                }
                Step::Keep => kept.push((store.snapshot().unwrap(), world.clone())),
                Step::Forget => kept.clear(),
                Step::Reopen => {
                    kept.clear();
                    drop((databases, store));
                    store = reopen();
                    databases = open(&store);
                }
            }
            check(&store.snapshot().unwrap(), &databases, &world, &probes);
            check_scans(&databases, &world, &probes);
            // Later commits do not change the snapshots that are kept.
            for (snapshot, world) in &kept {
                check(snapshot, &databases, world, &probes);
            }
        }
        let all: usize = world.0.iter().map(BTreeSet::len).sum();
        prop_assert_eq!(store.verify().unwrap(), all as u64);
    }
}
