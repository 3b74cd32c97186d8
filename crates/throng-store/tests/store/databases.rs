//! Named databases: their types, several values under a key, `clear`, and their own store only.

use throng_store::elmdb::{Children, Cursor};
use throng_store::{
    Batch, Bytes, Database, DatabaseError, DatabaseOptions, I64, KEY_BYTES_MAX, ReadError,
    Rejection, Store, Str, U64, Unit, WriteError,
};

use crate::{db, new_store, new_store_with};

#[test]
fn databases_are_separate_and_keep_their_kinds() {
    let (directory, store) = new_store();
    let before = store.snapshot().unwrap();
    let numbers = store.database::<I64, Str>("numbers").unwrap();
    let plain = DatabaseOptions::new().without_checksums();
    let bare = store.database_with::<Str, Unit>("bare", &plain).unwrap();
    let batch = [-7, 300, 5]
        .into_iter()
        .fold(Batch::new(), |batch, number| batch.put(&numbers, &number, &number.to_string()));
    store.write(batch.put(&db(&store), b"own", b"default").put(&bare, "own", &())).wait().unwrap();

    // A database made after a snapshot is empty in it.
    assert_eq!(numbers.get(&before, &5).unwrap(), None);
    assert!(numbers.is_empty(&before).unwrap());
    assert_eq!(numbers.range(&before, ..).next().map(|entry| entry.unwrap()), None);
    assert_eq!(Cursor::new(&numbers, &before).unwrap().first().unwrap(), None);
    drop(before);

    let check = |store: &Store, numbers: &Database<I64, Str>| {
        let snapshot = store.snapshot().unwrap();
        let found: Vec<_> = numbers.range(&snapshot, ..).map(|entry| entry.unwrap()).collect();
        assert_eq!(found, [(-7, "-7"), (5, "5"), (300, "300")]);
        let above: Vec<_> =
            numbers.range(&snapshot, &0..).rev().map(|entry| entry.unwrap().0).collect();
        assert_eq!(above, [300, 5]);
        assert_eq!(db(store).len(&snapshot).unwrap(), 1);
        assert_eq!(store.verify().unwrap(), 5);
        assert_eq!(store.databases(), ["bare", "numbers"]);
    };
    check(&store, &numbers);
    drop((numbers, bare, store));
    let store = Store::open(directory.path()).unwrap();
    check(&store, &store.database("numbers").unwrap());

    for (name, options, error) in [
        ("numbers", plain, DatabaseError::Kind { name: "numbers".into() }),
        ("none", DatabaseOptions::new().existing(), DatabaseError::Missing { name: "none".into() }),
        ("", DatabaseOptions::new(), DatabaseError::Name),
        ("zero\0", DatabaseOptions::new(), DatabaseError::Name),
    ] {
        assert_eq!(store.database_with::<Str, Str>(name, &options).unwrap_err(), error);
    }
}

#[test]
fn the_number_of_databases_is_limited() {
    let (directory, store) = new_store_with(&Store::options().databases_max(2));
    for name in ["one", "two"] {
        store.database::<Str, Str>(name).unwrap();
    }
    let refused = store.database::<Str, Str>("three").unwrap_err();
    assert_eq!(refused, DatabaseError::TooMany);
    store.database::<Str, Str>("two").unwrap().put("still", "works").wait().unwrap();
    drop(store);
    assert!(Store::options().databases_max(1).open(directory.path()).is_err());
}

#[test]
fn a_database_rejects_operations_that_it_does_not_support() {
    let (_directory, store) = new_store();
    let several =
        store.database_with::<Str, Str>("several", &DatabaseOptions::new().duplicates()).unwrap();
    let single = store.database::<Str, Str>("single").unwrap();
    let refused = |ticket: throng_store::Ticket| match ticket.wait() {
        Err(WriteError::Rejected { reason, .. }) => reason,
        other => panic!("{other:?}"),
    };
    let long = "v".repeat(KEY_BYTES_MAX + 1);
    assert_eq!(
        refused(several.put("key", &long)),
        Rejection::ValueTooLong { bytes: KEY_BYTES_MAX + 1, bytes_max: KEY_BYTES_MAX }
    );
    assert_eq!(refused(single.delete_value("key", "value")), Rejection::NoDuplicates);
    assert_eq!(refused(store.write(Batch::new().add(&several, "key", 1))), Rejection::Duplicates);
    single.put("key", &long).wait().unwrap();

    let (_other_directory, other) = new_store();
    assert_eq!(refused(other.write(Batch::new().delete(&single, "key"))), Rejection::OtherStore);
    let snapshot = other.snapshot().unwrap();
    assert!(matches!(single.get(&snapshot, "key"), Err(ReadError::OtherStore)));
    assert!(matches!(single.range(&snapshot, ..).next(), Some(Err(ReadError::OtherStore))));
}

#[test]
fn a_value_of_another_type_is_an_error_and_not_a_guess() {
    let (_directory, store) = new_store();
    store.database::<Str, Str>("texts").unwrap().put("key", "text").wait().unwrap();
    let numbers = store.database::<Str, U64>("texts").unwrap();
    let read = numbers.get(&store.snapshot().unwrap(), "key").map(drop);
    assert!(matches!(read, Err(ReadError::Decode(_))));
}

#[test]
fn an_empty_value_among_several_is_rejected_and_harms_no_neighbour() {
    let (_directory, store) = new_store();
    let several = DatabaseOptions::new().duplicates();
    let tags = store.database_with::<Str, Bytes>("tags", &several).unwrap();
    let empty = Batch::new().put(&tags, "key", &[][..]);
    let beside = db(&store).put(b"key", b"");
    let refused = store.write(empty).wait();
    assert!(
        matches!(refused, Err(WriteError::Rejected { reason: Rejection::ValueEmpty, .. })),
        "{refused:?}"
    );
    beside.wait().unwrap();
}

#[test]
fn an_empty_value_is_never_found_among_several() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let several = DatabaseOptions::new().duplicates();
    for _ in 0..2 {
        let store = Store::open(&path).unwrap();
        let tags: Database<Str, Str> = store.database_with("tags", &several).unwrap();
        for values in [&["one"][..], &["two", "three"]] {
            for value in values {
                tags.put("a/tag", value).wait().unwrap();
            }
            // LMDB stores a single value differently from several values.
            tags.delete_value("a/tag", "").wait().unwrap();
            let snapshot = store.snapshot().unwrap();
            let mut cursor = Cursor::new(&tags, &snapshot).unwrap();
            let first = cursor.seek("a/tag").unwrap().map(|(_, value)| value.to_owned());
            let from_empty = cursor.seek_value_range("a/tag", "").unwrap();
            assert_eq!(from_empty.map(|(_, value)| value.to_owned()), first);
            let found = |value: &[u8]| {
                let matches =
                    Children::new(&tags, &snapshot, b"", b'/').matching(&[(b"tag", value)]);
                matches.collect::<Result<Vec<_>, _>>().unwrap()
            };
            assert_eq!(found(b"one"), [b"a"]);
            assert!(found(b"").is_empty());
        }
        let snapshot = store.snapshot().unwrap();
        let values = tags.range(&snapshot, ..).map(|entry| entry.unwrap().1);
        assert_eq!(values.collect::<Vec<_>>(), ["one", "three", "two"]);
    }
}
