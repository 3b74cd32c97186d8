//! Children of a path, matches of fields, and a scan beside commits.

use std::collections::BTreeSet;

use proptest::prelude::*;
use throng_store::elmdb::{Children, Matches};
use throng_store::{Batch, Database, DatabaseOptions, ReadError, Store, Str};

use crate::{db, new_store, new_store_with};

fn store_of<'k>(keys: impl IntoIterator<Item = &'k Vec<u8>>) -> (tempfile::TempDir, Store) {
    let (directory, store) = new_store_with(&Store::options().map_bytes(64 << 20));
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
}

#[test]
fn matches_have_all_requested_values() {
    let (_directory, store) = new_store();
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
        let batch = Batch::new().put(&db(&store), &key(last + 1), b"new");
        store.write(batch.put(&db(&store), &key(last - 1), b"new")).wait().unwrap();
        // A snapshot makes the writer commit the batch.
        drop(store.snapshot().unwrap());
        assert!(matches!(chunk.iter().next(), Some(Err(ReadError::Expired))));
    }
    assert!(numbers.is_sorted());
    let old: Vec<_> = numbers.iter().copied().filter(|number| number % 2 == 0).collect();
    assert!(old.into_iter().eq((0..100).map(|number| number * 2)));
    assert!(numbers.len() > 100, "the scan finds new keys behind a chunk");
}
