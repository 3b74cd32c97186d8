//! A directory has at most one store open for writing, by every path and from every process.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use throng_store::{OpenError, ReadError, Store};

use crate::{db, new_store, new_store_with};

#[track_caller]
fn assert_in_use(path: &std::path::Path) {
    match Store::open(path) {
        Err(error @ OpenError::InUse { .. }) => {
            let sentence = error.to_string();
            assert!(sentence.contains("is in use by another store"), "{sentence}");
            assert!(sentence.contains(&path.display().to_string()), "{sentence}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_second_open_in_this_process_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data");
    let store = Store::open(&path).unwrap();
    assert_in_use(&path);
    assert_in_use(&directory.path().join("data/../data"));
    #[cfg(unix)]
    {
        let alias = directory.path().join("alias");
        std::os::unix::fs::symlink(&path, &alias).unwrap();
        assert_in_use(&alias);
    }
    // The owner still works after the refusals.
    db(&store).put(b"key", b"value").wait().unwrap();

    let snapshot = store.snapshot().unwrap();
    let mut range = db(&store).range(&snapshot, ..);
    drop(store);
    assert_in_use(&path);
    assert_eq!(range.next().unwrap().unwrap(), (&b"key"[..], &b"value"[..]));
    drop(range);
    drop(snapshot);
    Store::open(&path).unwrap();
}

#[test]
#[ignore = "the child of a_second_open_in_another_process_is_refused"]
fn owning_child() {
    let _store = Store::open(std::env::var(super::DIRECTORY).unwrap()).unwrap();
    println!("\nopened");
    // The child owns the store until it is killed.
    loop {
        std::thread::park();
    }
}

#[test]
fn a_second_open_in_another_process_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let mut owner = super::child("ownership::owning_child", directory.path(), "")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(owner.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "opened"));
    assert_in_use(directory.path());
    owner.kill().unwrap();
    owner.wait().unwrap();
    // The claim ends with its process.
    Store::open(directory.path()).unwrap();
}

#[test]
fn a_path_that_cannot_be_a_directory_is_an_error() {
    let file = tempfile::NamedTempFile::new().unwrap();
    assert!(matches!(Store::open(file.path().join("data")), Err(OpenError::Io { .. })));
}

#[test]
fn too_many_snapshots_are_an_error_until_some_are_dropped() {
    let (_directory, store) = new_store_with(&Store::options().snapshots_max(3));
    let snapshots: Vec<_> = (0..3).map(|_| store.snapshot().unwrap()).collect();
    assert!(matches!(store.snapshot(), Err(ReadError::TooManySnapshots)));
    drop(snapshots);
    store.snapshot().unwrap();
}

#[test]
fn a_snapshot_can_move_to_another_thread() {
    let (_directory, store) = new_store();
    db(&store).put(b"key", b"value").wait().unwrap();
    let snapshot = store.snapshot().unwrap();
    let entries = db(&store);
    let read =
        std::thread::spawn(move || entries.get(&snapshot, b"key").unwrap().map(<[u8]>::to_vec));
    assert_eq!(read.join().unwrap(), Some(b"value".to_vec()));
}

#[test]
fn one_of_several_concurrent_opens_succeeds() {
    let directory = tempfile::tempdir().unwrap();
    let start = std::sync::Barrier::new(8);
    std::thread::scope(|scope| {
        let opened: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    start.wait();
                    Store::open(directory.path())
                })
            })
            .collect();
        // All results are kept until the last thread has tried.
        let opened: Vec<_> = opened.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert_eq!(opened.iter().filter(|store| store.is_ok()).count(), 1);
        let mut refused = opened.iter().filter_map(|store| store.as_ref().err());
        assert!(refused.all(|error| matches!(error, OpenError::InUse { .. })));
    });
}
