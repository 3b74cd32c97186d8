//! Children of a path, matches of fields, scans by chunks, and ranges inside an update.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use proptest::prelude::*;
use throng_store::{Batch, DatabaseOptions, ReadError, Store, Str, U64};

fn store_of<'k>(keys: impl IntoIterator<Item = &'k Vec<u8>>) -> (tempfile::TempDir, Store) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::options().map_bytes(64 << 20).open(directory.path()).unwrap();
    let batch = keys.into_iter().fold(Batch::new(), |batch, key| batch.put(key, "value"));
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
                let listed = || snapshot.children(prefix, separator).map(|child| {
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
        prop_assert_eq!(&scanned(store.scan(bounds)), &expected);
        let mut backward = scanned(store.scan(bounds).backward());
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
        let outcome = store.update(move |update| {
            for (key, put) in &written {
                if *put { update.put(key, b"other") } else { update.delete(key) }
            }
            let within = |key: &[u8]| key >= start.as_slice() && key < end.as_slice();
            let mut expected = model
                .iter()
                .map(|(key, value)| (key.as_slice(), *value))
                .filter(|(key, _)| within(key))
                .collect::<Vec<_>>()
                .into_iter();
            let mut range = update.range(start.as_slice()..end.as_slice());
            for step in steps.iter().cycle().take(expected.len() + 2) {
                if *step {
                    assert_eq!(range.next().transpose()?, expected.next());
                } else {
                    assert_eq!(range.next_back().transpose()?, expected.next_back());
                }
            }
            let all: Vec<_> = model.iter().map(|(key, value)| (key.as_slice(), *value)).collect();
            let mut cursor = update.cursor();
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
            .put_in(&fields, &path("even"), if id % 2 == 0 { "yes" } else { "no" })
            .put_in(&fields, &path("third"), &(id % 3).to_string())
            .put_in(&fields, &path("z/deep"), "deep")
            .put_in(&tags, &path("tag"), &(id % 5).to_string())
            .put_in(&tags, &path("tag"), &format!("x{}", id % 7));
    }
    store.write(batch).wait().unwrap();
    let snapshot = store.snapshot().unwrap();
    let ids = |found: throng_store::Matches<'_>| -> Vec<u32> {
        let id = |path: &[u8]| std::str::from_utf8(&path[5..]).unwrap().parse().unwrap();
        found.map(|path| id(path.unwrap())).collect()
    };
    let found =
        |patterns: &[(&[u8], &[u8])]| ids(fields.matching(&snapshot, b"item/", b'/', patterns));
    assert!(found(&[]).into_iter().eq(0..200));
    let both: &[(&[u8], &[u8])] = &[(b"third", b"1"), (b"even", b"yes")];
    assert!(found(both).into_iter().eq((0..200).filter(|id| id % 3 == 1 && id % 2 == 0)));
    assert_eq!(found(&[(b"z/deep", b"deep"), (b"even", b"maybe")]), []);
    assert_eq!(found(&[(&[b'x'; 511], b"")]), []);
    let last = fields.matching(&snapshot, b"item/", b'/', both).next_back().unwrap().unwrap();
    assert_eq!(last, b"item/196");

    let tagged = tags.matching(&snapshot, b"item/", b'/', &[(b"tag", b"3"), (b"tag", b"x2")]);
    assert!(ids(tagged).into_iter().eq((0..200).filter(|id| id % 5 == 3 && id % 7 == 2)));
    let long = tags.matching(&snapshot, b"item/", b'/', &[(b"tag", &[b'3'; 600])]);
    assert_eq!(ids(long), []);

    let elsewhere = tempfile::tempdir().unwrap();
    let other = Store::open(elsewhere.path()).unwrap().snapshot().unwrap();
    let mut refused = fields.children(&other, b"", b'/');
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
    let batch = pairs.iter().fold(Batch::new(), |batch, (k, v)| batch.put_in(&many, k, v));
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
    let batch = (0..100).fold(Batch::new(), |batch, number| batch.put(key(number * 2), "old"));
    store.write(batch).wait().unwrap();
    // With an age of zero a snapshot expires at the next commit; the scan continues.
    let mut numbers = Vec::new();
    for chunk in store.scan(..).chunk(10) {
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
        let batch = Batch::new().put(key(last + 1), "new").put(key(last - 1), "new");
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

#[test]
fn an_update_reads_several_values_without_its_own_writes() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let tags = store.database_with::<Str, U64>("tags", &DatabaseOptions::new().duplicates());
    let tags = tags.unwrap();
    let batch = [("a", 1), ("a", 2), ("b", 3)]
        .iter()
        .fold(Batch::new(), |batch, (tag, post)| batch.put_in(&tags, tag, post));
    store.write(batch).wait().unwrap();
    let own = tags.clone();
    let outcome = store.update(move |update| {
        update.put_in(&own, "a", &9);
        let found: Vec<_> = update.range_in(&own, ..).collect::<Result<_, _>>()?;
        assert_eq!(found, [("a", 1), ("a", 2), ("b", 3)]);
        assert_eq!(update.prefix_in(&own, b"b").next_back().transpose()?, Some(("b", 3)));
        let mut cursor = update.cursor_in(&own)?;
        assert_eq!(cursor.last()?, Some(("b", 3)));
        assert_eq!(cursor.prev()?, Some(("a", 1)));
        Ok::<_, ReadError>(())
    });
    outcome.wait().unwrap();
    assert_eq!(tags.values(&store.snapshot().unwrap(), "a").count(), 3);
}
