//! Bulk loads: what is stored after an end of any kind, and beside writers, readers and crashes.

use std::collections::BTreeMap;
use std::panic::{self, AssertUnwindSafe};
use std::thread;

use throng_store::elmdb::Reader;
use throng_store::{
    Batch, Bytes, DatabaseOptions, Durability, LoadFailure, ReadError, Rejection, Store, Str, U32,
    U64, VALUE_BYTES_MAX,
};

use crate::{db, new_store, new_store_with};

/// More entries than a chunk has.
const MANY: u32 = 150_000;

fn entry(number: u32) -> ([u8; 4], [u8; 16]) {
    (number.to_be_bytes(), [number as u8; 16])
}

#[test]
fn a_load_replaces_adds_and_fills_its_pages() {
    for durability in [Durability::Durable, Durability::Volatile] {
        let directory = tempfile::tempdir().unwrap();
        let options = Store::options().durability(durability);
        let store = options.open(directory.path()).unwrap();
        assert_eq!(db(&store).load((0..MANY).map(entry)).unwrap(), u64::from(MANY));
        let stat = store.stat().unwrap();
        // An entry takes 34 bytes of its page; half-full pages would take twice as much.
        assert!(stat.used_bytes < u64::from(MANY) * 40, "{stat:?}");

        // Odd numbers get other values, and there are more behind.
        let again = (0..2 * MANY).filter(|number| number % 2 == 1);
        let again = again.map(|number| (number.to_be_bytes(), *b"again"));
        assert_eq!(db(&store).load(again).unwrap(), u64::from(MANY));
        let snapshot = store.snapshot().unwrap();
        let mut range = db(&store).range(&snapshot, ..);
        for number in (0..2 * MANY).filter(|number| *number < MANY || number % 2 == 1) {
            let (key, value) = entry(number);
            let value = if number % 2 == 1 { &b"again"[..] } else { &value };
            assert_eq!(range.next().unwrap().unwrap(), (&key[..], value));
        }
        assert!(range.next().is_none());
    }
}

#[test]
fn a_load_ends_at_the_first_entry_that_cannot_be_stored() {
    let (_directory, store) = new_store();
    let (long_key, long_value) = (vec![b'x'; 512], vec![0; VALUE_BYTES_MAX + 1]);
    let (bytes, bytes_max) = (VALUE_BYTES_MAX + 1, VALUE_BYTES_MAX);
    let cases: [(&[u8], &[u8], Option<Rejection>); 5] = [
        (b"b", b"", None),
        (b"a", b"", None),
        (b"", b"", Some(Rejection::KeyEmpty)),
        (&long_key, b"", Some(Rejection::KeyTooLong { bytes: 512 })),
        (b"c", &long_value, Some(Rejection::ValueTooLong { bytes, bytes_max })),
    ];
    for (round, (key, value, rejection)) in cases.into_iter().enumerate() {
        let first = round.to_string();
        let entries: [(&[u8], &[u8]); 4] =
            [(b"a", first.as_bytes()), (b"b", b"1"), (key, value), (b"z", b"never")];
        let ended = db(&store).load(entries).unwrap_err();
        let expected = rejection.map_or(LoadFailure::Order, LoadFailure::Rejected);
        assert_eq!((ended.loaded, ended.failure.to_string()), (2, expected.to_string()));
        let snapshot = store.snapshot().unwrap();
        assert_eq!(db(&store).get(&snapshot, b"a").unwrap(), Some(first.as_bytes()));
        assert_eq!(db(&store).len(&snapshot).unwrap(), 2);
    }

    let several = DatabaseOptions::new().duplicates();
    let tags = store.database_with::<Str, U64>("tags", &several).unwrap();
    tags.put("a", &2).wait().unwrap();
    assert_eq!(tags.load([("a", 1), ("a", 3), ("b", 0)]).unwrap(), 3);
    let ended = tags.load([("b", 1), ("b", 1)]).unwrap_err();
    assert!(ended.loaded == 1 && matches!(ended.failure, LoadFailure::Order), "{ended}");
    let snapshot = store.snapshot().unwrap();
    let stored: Result<Vec<_>, ReadError> = tags.range(&snapshot, ..).collect();
    assert_eq!(stored.unwrap(), [("a", 1), ("a", 2), ("a", 3), ("b", 0), ("b", 1)]);
    let plain = store.database_with::<Str, Bytes>("plain", &several).unwrap();
    let ended = plain.load([("a", &b""[..])]).unwrap_err();
    let reason = LoadFailure::Rejected(Rejection::ValueEmpty);
    assert_eq!((ended.loaded, ended.failure.to_string()), (0, reason.to_string()));
}

#[test]
fn a_store_that_takes_no_writes_takes_no_load() {
    let (directory, store) = new_store();
    store.close();
    let ended = db(&store).load([entry(1)]).unwrap_err();
    assert!(ended.loaded == 0 && matches!(ended.failure, LoadFailure::Closed));
    drop(store);
    let store = Store::options().read_only(true).open(directory.path()).unwrap();
    let ended = db(&store).load([entry(1)]).unwrap_err();
    assert!(ended.loaded == 0 && matches!(ended.failure, LoadFailure::ReadOnly));
}

#[test]
fn a_full_map_ends_a_load_and_keeps_what_is_stored() {
    let (_directory, store) = new_store_with(&Store::options().map_bytes(4 << 20));
    let ended = db(&store).load((0..10 * MANY).map(entry)).unwrap_err();
    assert!(ended.loaded > 0 && matches!(ended.failure, LoadFailure::Full(_)), "{ended}");
    let stored = db(&store).len(&store.snapshot().unwrap()).unwrap();
    assert_eq!(stored, ended.loaded);
    assert!(store.verify().unwrap() == stored && store.is_writable());
    db(&store).put(b"small", b"value").wait().unwrap();
    db(&store).load([(*b"zz", *b"small too")]).unwrap();
}

#[test]
fn a_load_whose_entries_panic_stores_those_before() {
    let (_directory, store) = new_store();
    // In the first chunk, and in the second.
    for end in [3, MANY - 1] {
        let entries = (0..MANY).map(|number| {
            assert!(number < end, "the source of the entries failed");
            entry(number)
        });
        let load = AssertUnwindSafe(|| db(&store).load(entries));
        let panic = panic::catch_unwind(load).unwrap_err();
        assert_eq!(panic.downcast_ref(), Some(&"the source of the entries failed"));
        assert_eq!(store.verify().unwrap(), u64::from(end));
    }
    // The store is as it was before in all else.
    db(&store).put(b"key", b"value").wait().unwrap();
    db(&store).load([(*b"z", *b"later")]).unwrap();
}

#[test]
fn a_load_during_which_the_store_is_closed_keeps_what_it_counts() {
    let (directory, store) = new_store();
    let entries = (0..MANY).map(|number| {
        if number == MANY / 2 {
            store.close();
        }
        entry(number)
    });
    let loaded = match db(&store).load(entries) {
        Ok(loaded) => loaded,
        Err(ended) => {
            assert!(matches!(ended.failure, LoadFailure::Closed), "{ended}");
            ended.loaded
        }
    };
    drop(store);
    let store = Store::open(directory.path()).unwrap();
    assert!(loaded > 0 && store.verify().unwrap() == loaded);
}

#[test]
fn a_load_beside_writers_and_readers_loses_nothing() {
    let (_directory, store) = new_store();
    let loaded = store.database::<U32, U32>("loaded").unwrap();
    thread::scope(|scope| {
        for thread in 0..4u32 {
            let (store, loaded) = (&store, &loaded);
            scope.spawn(move || {
                let mut reader = Reader::new(store);
                for number in 0..200u32 {
                    let key = number * 4 + thread;
                    let batch = Batch::new().put(loaded, &(key + 10 * MANY), &key);
                    store.write(batch.add(&db(store), b"count", 1)).wait().unwrap();
                    assert_eq!(reader.get(loaded, &(key + 10 * MANY)).unwrap(), Some(key));
                }
            });
        }
        assert_eq!(loaded.load((0..MANY).map(|key| (key, key))).unwrap(), u64::from(MANY));
    });
    let snapshot = store.snapshot().unwrap();
    assert_eq!(db(&store).get(&snapshot, b"count").unwrap(), Some(&800i64.to_le_bytes()[..]));
    let stored: Result<BTreeMap<_, _>, _> = loaded.range(&snapshot, ..).collect();
    let written = (0..800).map(|key| (key + 10 * MANY, key));
    assert!(stored.unwrap().into_iter().eq((0..MANY).map(|key| (key, key)).chain(written)));
}

#[test]
#[ignore = "the child of a_load_survives_the_end_of_its_process"]
fn loading_child() {
    let directory = std::env::var(super::DIRECTORY).unwrap();
    let store = Store::open(directory).unwrap();
    let batch = Batch::new().put(&db(&store), &entry(3).0, b"replaced");
    store.write(batch.put(&db(&store), b"above", b"stays")).wait().unwrap();
    db(&store).load((0..MANY).map(entry)).unwrap();
    db(&store).put(&entry(5).0, b"after").wait().unwrap();
    // Ends without closing the store.
    std::process::exit(7);
}

#[cfg(unix)]
#[test]
fn a_load_survives_the_end_of_its_process() {
    let directory = tempfile::tempdir().unwrap();
    let status = super::child("load::loading_child", directory.path(), "").status().unwrap();
    assert_eq!(status.code(), Some(7));
    let store = Store::open(directory.path()).unwrap();
    let snapshot = store.snapshot().unwrap();
    assert_eq!(db(&store).len(&snapshot).unwrap(), u64::from(MANY) + 1);
    assert_eq!(db(&store).get(&snapshot, &entry(3).0).unwrap(), Some(&entry(3).1[..]));
    assert_eq!(db(&store).get(&snapshot, &entry(5).0).unwrap(), Some(&b"after"[..]));
    assert_eq!(db(&store).get(&snapshot, b"above").unwrap(), Some(&b"stays"[..]));
}
