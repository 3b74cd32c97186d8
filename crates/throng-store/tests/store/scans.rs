//! Children of a path, matches of fields, scans by chunks, and ranges inside an update.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use proptest::prelude::*;
use throng_store::elmdb::{Children, Cursor, Matches};
use throng_store::{Batch, Database, DatabaseOptions, ReadError, Store, Str, U32, U64};

use crate::db;

fn store_of<'k>(keys: impl IntoIterator<Item = &'k Vec<u8>>) -> (tempfile::TempDir, Store) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::options().map_bytes(64 << 20).open(directory.path()).unwrap();
    let batch =
        keys.into_iter().fold(Batch::new(), |batch, key| batch.put(&db(&store), key, b"value"));
    store.write(batch).wait().unwrap();
    (directory, store)
}

/// The children by their definition. A child that is itself a key stands in the place of this key,
/// any other child in the place of the first key below it.
fn children_of(keys: &BTreeSet<Vec<u8>>, prefix: &[u8], separator: u8) -> Vec<(Vec<u8>, bool)> {
    let mut children = Vec::new();
    for key in keys.iter().filter(|key| key.starts_with(prefix)) {
        let rest = &key[prefix.len()..];
        let end = rest.iter().position(|byte| *byte == separator);
        let path = key[..prefix.len() + end.unwrap_or(rest.len())].to_vec();
        let child = (path.clone(), keys.contains(&path));
        if end.is_none() || (!child.1 && !children.contains(&child)) {
            children.push(child);
        }
    }
    children
}

fn path() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        3 => Just(b'/'), 3 => Just(b'a'), 1 => Just(b'-'), 1 => Just(0), 1 => Just(0xff)
    ];
    prop_oneof![
        20 => prop::collection::vec(byte, 1..6),
        1 => Just([b"a/".repeat(255), vec![b'/']].concat()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn children_come_once_each_from_either_end(
        keys in prop::collection::btree_set(path(), 0..30),
        prefixes in prop::collection::vec(prop::collection::vec(
            prop_oneof![Just(b'/'), Just(b'a'), Just(0xff)], 0..3), 1..6),
        steps in prop::collection::vec(any::<bool>(), 1..6),
    ) {
        let (_directory, store) = store_of(&keys);
        let snapshot = store.snapshot().unwrap();
        for prefix in &prefixes {
            for separator in [b'/', 0, 0xff] {
                let expected = children_of(&keys, prefix, separator);
                let listed = || Children::new(&db(&store), &snapshot, prefix, separator).map(|child| {
                    let child = child.unwrap();
                    assert_eq!(child.path, [prefix, child.name].concat());
                    (child.path.to_vec(), child.is_key)
                });
                prop_assert_eq!(&listed().collect::<Vec<_>>(), &expected);
                let mut backward: Vec<_> = listed().rev().collect();
                backward.reverse();
                prop_assert_eq!(&backward, &expected);
                let mut listed = listed();
                let mut expected = expected.into_iter();
                for step in steps.iter().cycle().take(expected.len() + 2) {
                    if *step {
                        prop_assert_eq!(listed.next(), expected.next());
                    } else {
                        prop_assert_eq!(listed.next_back(), expected.next_back());
                    }
                }
            }
        }
    }

    #[test]
    fn a_scan_by_chunks_finds_the_entries_of_a_range(
        keys in prop::collection::btree_set(path(), 0..40),
        chunk in 0usize..9,
        start in path(),
        end in path(),
    ) {
        let (_directory, store) = store_of(&keys);
        let bounds = (Bound::Excluded(start.as_slice()), Bound::Included(end.as_slice()));
        let expected: Vec<_> =
            keys.iter().filter(|key| **key > start && **key <= end).cloned().collect();
        let scanned = |scan: throng_store::Scan| {
            let mut found = Vec::new();
            for part in scan.chunk(chunk) {
                let part = part.unwrap();
                let part: Vec<_> =
                    part.iter().map(|entry| entry.unwrap().0.to_vec()).collect();
                assert!((1..=chunk.max(1)).contains(&part.len()));
                found.extend(part);
            }
            found
        };
        prop_assert_eq!(&scanned(db(&store).scan(bounds)), &expected);
        let mut backward = scanned(db(&store).scan(bounds).backward());
        backward.reverse();
        prop_assert_eq!(backward, expected);
    }

    #[test]
    fn a_range_in_an_update_shows_stored_entries_and_its_own_writes(
        there in prop::collection::btree_set(path(), 0..20),
        written in prop::collection::btree_map(path(), any::<bool>(), 0..20),
        start in path(),
        end in path(),
        steps in prop::collection::vec(any::<bool>(), 1..6),
    ) {
        let (_directory, store) = store_of(&there);
        let mut model: BTreeMap<_, &[u8]> =
            there.into_iter().map(|key| (key, &b"value"[..])).collect();
        for (key, put) in &written {
            if *put {
                model.insert(key.clone(), b"other");
            } else {
                model.remove(key);
            }
        }
        let entries = db(&store);
        let outcome = store.update(move |update| {
            for (key, put) in &written {
                if *put { update.put(&entries, key, b"other") } else { update.delete(&entries, key) }
            }
            let within = |key: &[u8]| key >= start.as_slice() && key < end.as_slice();
            let mut expected = model
                .iter()
                .map(|(key, value)| (key.as_slice(), *value))
                .filter(|(key, _)| within(key))
                .collect::<Vec<_>>()
                .into_iter();
            let mut range = update.range(&entries, start.as_slice()..end.as_slice());
            for step in steps.iter().cycle().take(expected.len() + 2) {
                if *step {
                    assert_eq!(range.next().transpose()?, expected.next());
                } else {
                    assert_eq!(range.next_back().transpose()?, expected.next_back());
                }
            }
            let all: Vec<_> = model.iter().map(|(key, value)| (key.as_slice(), *value)).collect();
            let mut cursor = Cursor::of_update(&entries, update)?;
            for entry in &all {
                assert_eq!(cursor.next()?, Some(*entry));
                assert_eq!(cursor.current()?, Some(*entry));
            }
            assert_eq!(cursor.next()?, None);
            for entry in all.iter().rev() {
                assert_eq!(cursor.prev()?, Some(*entry));
            }
            assert_eq!(cursor.prev()?, None);
            assert_eq!(cursor.next()?, all.first().copied());
            let at = model.get_key_value(&start).map(|(key, value)| (key.as_slice(), *value));
            assert_eq!(cursor.seek(&start)?, at);
            let above = all.iter().copied().find(|(key, _)| *key >= start.as_slice());
            assert_eq!(cursor.seek_range(&start)?, above);
            Ok::<_, ReadError>(())
        });
        prop_assert!(outcome.wait().is_ok());
    }
}

#[test]
fn matches_have_all_requested_values() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let fields = store.database::<Str, Str>("fields").unwrap();
    let tags =
        store.database_with::<Str, Str>("tags", &DatabaseOptions::new().duplicates()).unwrap();
    let mut batch = Batch::new();
    for id in 0..200u32 {
        let path = |field: &str| format!("item/{id:03}/{field}");
        batch = batch
            .put(&fields, &path("even"), if id % 2 == 0 { "yes" } else { "no" })
            .put(&fields, &path("third"), &(id % 3).to_string())
            .put(&fields, &path("z/deep"), "deep")
            .put(&tags, &path("tag"), &(id % 5).to_string())
            .put(&tags, &path("tag"), &format!("x{}", id % 7));
    }
    store.write(batch).wait().unwrap();
    let snapshot = store.snapshot().unwrap();
    let ids = |found: Matches<'_>| -> Vec<u32> {
        let id = |path: &[u8]| std::str::from_utf8(&path[5..]).unwrap().parse().unwrap();
        found.map(|path| id(path.unwrap())).collect()
    };
    let items = |of: &Database<Str, Str>| Children::new(of, &snapshot, b"item/", b'/');
    let found = |patterns: &[(&[u8], &[u8])]| ids(items(&fields).matching(patterns));
    assert!(found(&[]).into_iter().eq(0..200));
    let both: &[(&[u8], &[u8])] = &[(b"third", b"1"), (b"even", b"yes")];
    assert!(found(both).into_iter().eq((0..200).filter(|id| id % 3 == 1 && id % 2 == 0)));
    assert_eq!(found(&[(b"z/deep", b"deep"), (b"even", b"maybe")]), []);
    assert_eq!(found(&[(&[b'x'; 511], b"")]), []);
    let last = items(&fields).matching(both).next_back().unwrap().unwrap();
    assert_eq!(last, b"item/196");

    let tagged = items(&tags).matching(&[(b"tag", b"3"), (b"tag", b"x2")]);
    assert!(ids(tagged).into_iter().eq((0..200).filter(|id| id % 5 == 3 && id % 7 == 2)));
    let long = items(&tags).matching(&[(b"tag", &[b'3'; 600])]);
    assert_eq!(ids(long), []);

    let elsewhere = tempfile::tempdir().unwrap();
    let other = Store::open(elsewhere.path()).unwrap().snapshot().unwrap();
    let mut refused = Children::new(&fields, &other, b"", b'/');
    assert!(matches!(refused.next(), Some(Err(ReadError::OtherStore))));
    assert!(refused.next().is_none());
}

#[test]
fn a_scan_never_splits_the_values_of_a_key() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let many = store.database_with::<U64, U64>("many", &DatabaseOptions::new().duplicates());
    let many = many.unwrap();
    let pairs: Vec<_> = (0..6).flat_map(|key| (0..key).map(move |value| (key, value))).collect();
    let batch = pairs.iter().fold(Batch::new(), |batch, (k, v)| batch.put(&many, k, v));
    store.write(batch).wait().unwrap();
    for backward in [false, true] {
        let scan = many.scan(..).chunk(2);
        let scan = if backward { scan.backward() } else { scan };
        let mut found = Vec::new();
        for chunk in scan {
            found.extend(chunk.unwrap().iter().map(|entry| entry.unwrap()));
        }
        if backward {
            found.reverse();
        }
        assert_eq!(found, pairs);
    }
}

#[test]
fn a_scan_continues_after_commits_and_finds_later_keys() {
    let directory = tempfile::tempdir().unwrap();
    let options = Store::options().snapshot_age_max(std::time::Duration::ZERO);
    let store = options.open(directory.path()).unwrap();
    let key = |number: u32| number.to_be_bytes();
    let batch = (0..100)
        .fold(Batch::new(), |batch, number| batch.put(&db(&store), &key(number * 2), b"old"));
    store.write(batch).wait().unwrap();
    // With an age of zero a snapshot expires at the next commit; the scan continues.
    let mut numbers = Vec::new();
    for chunk in db(&store).scan(..).chunk(10) {
        let chunk = chunk.unwrap();
        let part: Vec<u32> = chunk
            .iter()
            .map(|entry| u32::from_be_bytes(entry.unwrap().0.try_into().unwrap()))
            .collect();
        let last = *part.last().unwrap();
        numbers.extend(part);
        if last > 190 {
            // The scan would not end if each chunk added a key behind it.
            continue;
        }
        // A key behind the chunk and a key within it.
        let batch = Batch::new().put(&db(&store), &key(last + 1), b"new").put(
            &db(&store),
            &key(last - 1),
            b"new",
        );
        store.write(batch).wait().unwrap();
        // A snapshot makes the writer commit the batch.
        drop(store.snapshot().unwrap());
        assert!(matches!(chunk.iter().next(), Some(Err(ReadError::Expired))));
    }
    assert!(numbers.is_sorted());
    let old: Vec<_> = numbers.iter().copied().filter(|number| number % 2 == 0).collect();
    assert!(old.into_iter().eq((0..100).map(|number| number * 2)));
    assert!(numbers.len() > 100, "the scan finds new keys behind a chunk");
}

/// A write of an update to a database with several values under a key.
#[derive(Clone, Debug)]
enum Write {
    Put(u8, u8),
    DeleteValue(u8, u8),
    Delete(u8),
    Clear,
}

fn write() -> impl Strategy<Value = Write> {
    let (key, value) = (|| 0..5u8, || 0..4u8);
    prop_oneof![
        8 => (key(), value()).prop_map(|(key, value)| Write::Put(key, value)),
        4 => (key(), value()).prop_map(|(key, value)| Write::DeleteValue(key, value)),
        2 => key().prop_map(Write::Delete),
        1 => Just(Write::Clear),
    ]
}

/// Moves of a cursor among pairs, as LMDB defines them.
#[derive(Clone, Copy, Debug)]
enum Step {
    Next,
    Prev,
    NextKey,
    PrevKey,
    NextValue,
    PrevValue,
    FirstValue,
    LastValue,
    Seek(u8, u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        Just(Step::Next),
        Just(Step::Prev),
        Just(Step::NextKey),
        Just(Step::PrevKey),
        Just(Step::NextValue),
        Just(Step::PrevValue),
        Just(Step::FirstValue),
        Just(Step::LastValue),
        (0..5u8, 0..4u8).prop_map(|(key, value)| Step::Seek(key, value)),
    ]
}

/// The position of a cursor: at a pair, before the first, or after the last.
fn moved(pairs: &[(u32, u64)], at: isize, step: Step) -> isize {
    let pair = usize::try_from(at).ok().and_then(|at| pairs.get(at)).copied();
    let end = pairs.len() as isize;
    let find = |is_it: &dyn Fn(&(u32, u64)) -> bool| {
        pairs.iter().position(is_it).map(|found| found as isize)
    };
    let last = |is_it: &dyn Fn(&(u32, u64)) -> bool| {
        pairs.iter().rposition(is_it).map(|found| found as isize)
    };
    match (step, pair) {
        (Step::Next | Step::NextKey, None) => {
            if at < 0 {
                0
            } else {
                end
            }
        }
        (Step::Prev | Step::PrevKey, None) => {
            if at < 0 {
                -1
            } else {
                end - 1
            }
        }
        (Step::Next, _) => at + 1,
        (Step::Prev, _) => at - 1,
        (Step::NextKey, Some((key, _))) => find(&|pair| pair.0 > key).unwrap_or(end),
        (Step::PrevKey, Some((key, _))) => last(&|pair| pair.0 < key).unwrap_or(-1),
        (Step::Seek(key, value), _) => {
            let (key, value) = (u32::from(key), u64::from(value));
            find(&|pair| pair.0 == key && pair.1 >= value).unwrap_or(end)
        }
        (_, None) => at,
        (Step::NextValue, Some((key, value))) => {
            find(&|pair| pair.0 == key && pair.1 > value).unwrap_or(at)
        }
        (Step::PrevValue, Some((key, value))) => {
            last(&|pair| pair.0 == key && pair.1 < value).unwrap_or(at)
        }
        (Step::FirstValue, Some((key, _))) => find(&|pair| pair.0 == key).unwrap_or(at),
        (Step::LastValue, Some((key, _))) => last(&|pair| pair.0 == key).unwrap_or(at),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn an_update_sees_its_own_writes_among_several_values(
        there in prop::collection::btree_set((0..5u32, 0..4u64), 0..12),
        writes in prop::collection::vec(write(), 0..12),
        steps in prop::collection::vec(step(), 0..20),
        directions in prop::collection::vec(any::<bool>(), 1..6),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let several = DatabaseOptions::new().duplicates();
        let many = store.database_with::<U32, U64>("many", &several).unwrap();
        let batch = there.iter().fold(Batch::new(), |batch, (k, v)| batch.put(&many, k, v));
        store.write(batch).wait().unwrap();
        let mut model = there;
        for write in &writes {
            match *write {
                Write::Put(key, value) => drop(model.insert((key.into(), value.into()))),
                Write::DeleteValue(key, value) => {
                    model.remove(&(u32::from(key), u64::from(value)));
                }
                Write::Delete(key) => model.retain(|pair| pair.0 != u32::from(key)),
                Write::Clear => model.clear(),
            }
        }
        let pairs: Vec<_> = model.into_iter().collect();
        let (own, expected) = (many.clone(), pairs.clone());
        let outcome = store.update(move |update| {
            for write in &writes {
                match *write {
                    Write::Put(key, value) => update.put(&own, &key.into(), &value.into()),
                    Write::DeleteValue(key, value) => {
                        update.delete_value(&own, &key.into(), &value.into());
                    }
                    Write::Delete(key) => update.delete(&own, &key.into()),
                    Write::Clear => update.clear(&own),
                }
            }
            for key in 0..5 {
                let first = pairs.iter().find(|pair| pair.0 == key).map(|pair| pair.1);
                assert_eq!(update.get(&own, &key)?, first);
            }
            let mut expected = pairs.iter().copied();
            let mut range = update.range(&own, ..);
            for forward in directions.iter().cycle().take(pairs.len() + 2) {
                if *forward {
                    assert_eq!(range.next().transpose()?, expected.next());
                } else {
                    assert_eq!(range.next_back().transpose()?, expected.next_back());
                }
            }
            let (mut cursor, mut at) = (Cursor::of_update(&own, update)?, -1);
            for step in &steps {
                let before = at;
                at = moved(&pairs, at, *step);
                let found = match *step {
                    Step::Next => cursor.next(),
                    Step::Prev => cursor.prev(),
                    Step::NextKey => cursor.next_key(),
                    Step::PrevKey => cursor.prev_key(),
                    Step::NextValue => cursor.next_value(),
                    Step::PrevValue => cursor.prev_value(),
                    Step::FirstValue => cursor.first_value(),
                    Step::LastValue => cursor.last_value(),
                    Step::Seek(key, value) => {
                        cursor.seek_value_range(&key.into(), &value.into())
                    }
                }?;
                let pair = usize::try_from(at).ok().and_then(|at| pairs.get(at)).copied();
                // A cursor that finds no other value of its key stays, and says so.
                let stays = matches!(step, Step::NextValue | Step::PrevValue) && at == before;
                assert_eq!(found, pair.filter(|_| !stays), "{step:?} of {pairs:?}");
                assert_eq!(cursor.current()?, pair);
                let values = pair.map_or(0, |at| pairs.iter().filter(|pair| pair.0 == at.0).count());
                assert_eq!(cursor.values()?, values as u64);
            }
            Ok::<_, ReadError>(())
        });
        prop_assert!(outcome.wait().is_ok());
        let snapshot = store.snapshot().unwrap();
        let stored: Vec<_> = many.range(&snapshot, ..).collect::<Result<_, _>>().unwrap();
        prop_assert_eq!(stored, expected);
    }
}
