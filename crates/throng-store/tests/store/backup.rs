//! Backups of a store in use, and the search for damage.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Seek, SeekFrom, Write};

use throng_store::{Batch, OpenError, ReadError, Store};

use crate::{db, texts};

fn key(number: u32) -> String {
    format!("key {number:05}")
}

fn filled(directory: &std::path::Path) -> Store {
    let store = Store::open(directory).unwrap();
    let batch = (0..1000)
        .fold(Batch::new(), |batch, number| batch.put(&texts(&store), &key(number), &[7; 100]));
    store.write(batch).wait().unwrap();
    store
}

#[test]
fn a_backup_is_a_store_of_that_moment() {
    let directory = tempfile::tempdir().unwrap();
    let store = filled(&directory.path().join("data"));
    // Deleted entries leave free pages, which the backup omits.
    let batch =
        (0..900).fold(Batch::new(), |batch, number| batch.delete(&texts(&store), &key(number)));
    store.write(batch).wait().unwrap();
    let copy = directory.path().join("backups/first");
    store.backup(&copy).unwrap();
    db(&store).put(b"later", b"value").wait().unwrap();

    // A backup overwrites neither another backup nor a store in use.
    for path in [&copy, &directory.path().join("data")] {
        assert_eq!(store.backup(path).unwrap_err().kind(), ErrorKind::AlreadyExists);
    }
    let backup = Store::open(&copy).unwrap();
    assert_eq!(backup.verify().unwrap(), 100);
    assert_eq!(db(&backup).get(&backup.snapshot().unwrap(), b"later").unwrap(), None);
    assert!(backup.stat().unwrap().file_bytes < store.stat().unwrap().file_bytes);
    db(&backup).put(b"own", b"life").wait().unwrap();
}

#[test]
fn the_remains_of_a_backup_are_no_store_and_do_not_stop_the_next() {
    let directory = tempfile::tempdir().unwrap();
    let store = filled(&directory.path().join("data"));
    let copy = directory.path().join("copy");
    std::fs::create_dir_all(copy.join("draft")).unwrap();
    std::fs::write(copy.join("draft/data.mdb"), "half of it").unwrap();
    let to_read = Store::options().read_only(true);
    assert!(matches!(to_read.open(&copy), Err(OpenError::Io { .. })));
    store.backup(&copy).unwrap();
    assert!(!copy.join("draft").exists());
    assert_eq!(Store::open(&copy).unwrap().verify().unwrap(), 1000);

    // A crash between the renaming of the log and that of the data file.
    std::fs::create_dir(copy.join("draft")).unwrap();
    std::fs::rename(copy.join("data.mdb"), copy.join("draft/data.mdb")).unwrap();
    db(&store).put(b"later", b"value").wait().unwrap();
    store.backup(&copy).unwrap();
    assert_eq!(Store::open(&copy).unwrap().verify().unwrap(), 1001);
    // A log without a data file anywhere may be what is left of a store.
    std::fs::remove_file(copy.join("data.mdb")).unwrap();
    let refused = store.backup(&copy).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::AlreadyExists);
    assert!(copy.join("log").exists());
}

#[test]
fn verify_finds_a_damaged_value() {
    let directory = tempfile::tempdir().unwrap();
    let store = filled(directory.path());
    let value: [u8; 100] = std::array::from_fn(|index| index as u8);
    db(&store).put(b"key of the unlucky", &value).wait().unwrap();
    assert_eq!(store.verify().unwrap(), 1001);
    drop(store);

    // Flips a bit of the value, which the engine itself would not notice. All copies are changed,
    // because a free page may hold an old copy.
    let path = directory.path().join("data.mdb");
    let bytes = std::fs::read(&path).unwrap();
    let copies = bytes.windows(100).enumerate().filter(|(_, window)| *window == value);
    let mut file = OpenOptions::new().write(true).open(&path).unwrap();
    for (position, _) in copies {
        file.seek(SeekFrom::Start(position as u64 + 50)).unwrap();
        file.write_all(&[value[50] ^ 1]).unwrap();
    }
    drop(file);

    let store = Store::open(directory.path()).unwrap();
    match store.verify() {
        Err(ReadError::Corrupt(message)) => {
            assert_eq!(message, "wrong checksum under the key \"key of the unlucky\"");
        }
        other => panic!("{other:?}"),
    }
    // The other entries are still readable, in both directions.
    let snapshot = store.snapshot().unwrap();
    assert_eq!(db(&store).range(&snapshot, ..).filter(Result::is_ok).count(), 1000);
    assert_eq!(db(&store).range(&snapshot, ..).rev().filter(Result::is_ok).count(), 1000);
}
