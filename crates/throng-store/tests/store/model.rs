//! The store against a `BTreeMap`, on random histories.

use std::collections::BTreeMap;
use std::ops::Bound;

use proptest::prelude::*;
use throng_store::{Batch, Database, Snapshot, Store};

use crate::db;

type Key = Vec<u8>;
type Model = BTreeMap<Key, Vec<u8>>;
type Bounds = (Bound<Key>, Bound<Key>);

/// Keys from a set so small that operations meet, with the shortest, the longest and 0xff in it.
fn key() -> impl Strategy<Value = Key> {
    prop_oneof![
        8 => prop::collection::vec(prop_oneof![Just(0), Just(1), Just(b'a'), Just(0xff)], 1..4),
        1 => (0u8..3).prop_map(|byte| vec![byte; 511]),
    ]
}

/// Bounds of ranges, some of which no key can equal.
fn bound() -> impl Strategy<Value = Bound<Key>> {
    let key = prop_oneof![
        8 => key(),
        1 => Just(Vec::new()),
        1 => (0u8..3).prop_map(|byte| vec![byte; 512]),
    ];
    prop_oneof![
        1 => Just(Bound::Unbounded),
        2 => key.clone().prop_map(Bound::Included),
        2 => key.prop_map(Bound::Excluded),
    ]
}

#[derive(Clone, Debug)]
enum Operation {
    Put(Vec<u8>),
    Delete,
    Add(i64),
}

/// Batches of operations, with values from empty to several pages.
fn history() -> impl Strategy<Value = Vec<Vec<(Key, Operation)>>> {
    let value = prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 0..40),
        1 => any::<i64>().prop_map(|counter| counter.to_le_bytes().to_vec()),
        1 => (any::<u8>(), 0usize..20_000).prop_map(|(byte, bytes)| vec![byte; bytes]),
    ];
    let operation = prop_oneof![
        5 => value.prop_map(Operation::Put),
        3 => Just(Operation::Delete),
        3 => any::<i64>().prop_map(Operation::Add),
    ];
    prop::collection::vec(prop::collection::vec((key(), operation), 0..12), 1..6)
}

fn check_range(
    db: &Database,
    snapshot: &Snapshot,
    model: &Model,
    (start, end): &Bounds,
    steps: &[bool],
) {
    let within = |key: &Key| {
        (match start {
            Bound::Included(start) => key >= start,
            Bound::Excluded(start) => key > start,
            Bound::Unbounded => true,
        }) && (match end {
            Bound::Included(end) => key <= end,
            Bound::Excluded(end) => key < end,
            Bound::Unbounded => true,
        })
    };
    let expected: Vec<_> = model.iter().filter(|(key, _)| within(key)).collect();
    let bounds = || (start.as_ref().map(Vec::as_slice), end.as_ref().map(Vec::as_slice));

    let forward: Vec<_> = db.range(snapshot, bounds()).map(|entry| entry.unwrap()).collect();
    assert!(forward.iter().eq(&slices(&expected)));
    let mut backward: Vec<_> =
        db.range(snapshot, bounds()).rev().map(|entry| entry.unwrap()).collect();
    backward.reverse();
    assert!(backward.iter().eq(&slices(&expected)));

    // From either end, as `steps` says, and a few calls past the end.
    let mut range = db.range(snapshot, bounds());
    let mut model = expected.into_iter();
    for step in steps.iter().cycle().take(model.len() + 3) {
        let (entry, expected) = if *step {
            (range.next(), model.next())
        } else {
            (range.next_back(), model.next_back())
        };
        let expected = expected.map(|(key, value)| (key.as_slice(), value.as_slice()));
        assert_eq!(entry.map(|entry| entry.unwrap()), expected);
    }
}

fn slices<'m>(entries: &[(&'m Key, &'m Vec<u8>)]) -> Vec<(&'m [u8], &'m [u8])> {
    entries.iter().map(|(key, value)| (key.as_slice(), value.as_slice())).collect()
}

fn check(
    db: &Database,
    snapshot: &Snapshot,
    model: &Model,
    ranges: &[Bounds],
    prefix: &[u8],
    steps: &[bool],
) {
    assert_eq!(db.len(snapshot).unwrap(), model.len() as u64);
    for (key, value) in model {
        assert_eq!(db.get(snapshot, key).unwrap(), Some(value.as_slice()));
    }
    for bounds in ranges {
        check_range(db, snapshot, model, bounds, steps);
    }
    let expected: Vec<_> = model.iter().filter(|(key, _)| key.starts_with(prefix)).collect();
    let found: Vec<_> = db.prefix(snapshot, prefix).map(|entry| entry.unwrap()).collect();
    assert!(found.iter().eq(&slices(&expected)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn the_store_is_an_ordered_map(
        history in history(),
        ranges in prop::collection::vec((bound(), bound()), 1..8),
        prefix in prop::collection::vec(prop_oneof![Just(1), Just(0xff)], 0..3),
        steps in prop::collection::vec(any::<bool>(), 1..6),
        missing in key(),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::options().map_bytes(256 << 20).open(directory.path()).unwrap();
        let mut model = Model::new();
        let mut past = Vec::new();
        for operations in history {
            let mut batch = Batch::new();
            for (key, operation) in operations {
                match operation {
                    Operation::Put(value) => {
                        batch = batch.put(&db(&store), &key, &value);
                        model.insert(key, value);
                    }
                    Operation::Delete => {
                        batch = batch.delete(&db(&store), &key);
                        model.remove(&key);
                    }
                    Operation::Add(difference) => {
                        batch = batch.add(&db(&store), &key, difference);
                        let counter = model.entry(key).or_default();
                        let before = counter.as_slice().try_into().map_or(0, i64::from_le_bytes);
                        *counter = before.wrapping_add(difference).to_le_bytes().to_vec();
                    }
                }
            }
            store.write(batch).wait().unwrap();
            past.push((store.snapshot().unwrap(), model.clone()));
        }
        let missed = db(&store).get(&store.snapshot().unwrap(), &missing).unwrap().map(<[u8]>::to_vec);
        prop_assert_eq!(missed.as_ref(), model.get(&missing));
        // Every snapshot still shows its own moment.
        for (snapshot, model) in &past {
            check(&db(&store), snapshot, model, &ranges, &prefix, &steps);
        }
        drop(past);
        drop(store);
        let store = Store::open(directory.path()).unwrap();
        check(&db(&store), &store.snapshot().unwrap(), &model, &ranges, &prefix, &steps);
    }
}
