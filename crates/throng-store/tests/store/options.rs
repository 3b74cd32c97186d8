//! Options at their extremes, and limits of the process.

use std::time::Duration;

use throng_store::{Durability, Options, ReadError, Store, UpdateError, WriteError};

use crate::{db, new_store};

/// Writes, reads and closes a store with these options. Each step may be refused, and none may crash or wait
/// for ever. Returns whether the write was acknowledged.
fn use_store(path: &std::path::Path, options: &Options) -> bool {
    let Ok(store) = options.open(path) else { return false };
    let written = db(&store).put(b"key", &[7; 100]).wait();
    let entries = db(&store);
    let updated = store.update(move |update| {
        update.put(&entries, b"updated", b"value");
        Ok::<_, ReadError>(())
    });
    match updated.wait() {
        Ok(()) | Err(UpdateError::Write(WriteError::Full { .. } | WriteError::Failed { .. })) => {}
        other => panic!("{other:?}"),
    }
    let _ = store.database::<throng_store::Str, throng_store::Str>("named");
    match store.snapshot() {
        Ok(snapshot) if written.is_ok() => {
            let found = db(&store).get(&snapshot, b"key");
            assert!(matches!(found, Ok(Some(_)) | Err(ReadError::Expired)), "{found:?}");
        }
        Ok(_) | Err(ReadError::TooManySnapshots) => {}
        Err(other) => panic!("{other}"),
    }
    store.sync().wait().unwrap();
    let _ = store.stat();
    written.is_ok()
}

#[test]
fn every_option_at_its_extremes_is_harmless() {
    let with = Store::options;
    let volatile = with().durability(Durability::Volatile).map_bytes(1 << 20);
    let mut options = vec![volatile.clone(), volatile.write_map(true).keep_log(true)];
    for number in [0, 1, u32::MAX - 1, u32::MAX] {
        options.push(with().databases_max(number));
        options.push(with().snapshots_max(number));
    }
    for number in [0, 1, usize::MAX - 1, usize::MAX] {
        options.push(with().map_bytes(number));
        options.push(with().checkpoint_bytes(number));
        options.push(with().queue_batches_max(number));
        options.push(with().queue_bytes_max(number));
    }
    for age in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
        options.push(with().snapshot_age_max(age));
    }
    for flag in [false, true] {
        let flags = with().read_ahead(flag).verify_reads(flag).check(flag).keep_log(flag);
        options.push(flags.write_map(flag));
    }
    for options in options {
        let directory = super::directory_in_memory();
        let is_written = use_store(directory.path(), &options);
        // With itself, for reading, and with the defaults.
        use_store(directory.path(), &options);
        if is_written {
            let read = options.clone().read_only(true).open(directory.path()).unwrap();
            drop(read.snapshot().and_then(|snapshot| db(&read).len(&snapshot)));
            drop(read);
            let store = Store::open(directory.path()).unwrap();
            assert!(
                db(&store).get(&store.snapshot().unwrap(), b"key").unwrap().is_some(),
                "{options:?}"
            );
            store.verify().unwrap();
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
#[ignore = "the child of a_map_leaves_room_in_a_limited_address_space"]
fn limited_child() {
    let directory = std::env::var(super::DIRECTORY).unwrap();
    let store = Store::open(directory).unwrap();
    let reduced = store.reduced_map_bytes().unwrap();
    assert_eq!(reduced, store.stat().unwrap().map_bytes);
    db(&store).put(b"key", &[7; 100]).wait().unwrap();
    // A second store takes half of the rest.
    let (_place, other) = new_store();
    assert!(other.reduced_map_bytes().unwrap() < reduced);
    let mut rest = Vec::<u8>::new();
    rest.try_reserve_exact(256 << 20).unwrap();
}

/// The limit is a little more than a power of two, so that half of a half and so on fills it.
#[cfg(target_os = "linux")]
#[test]
fn a_map_leaves_room_in_a_limited_address_space() {
    let directory = tempfile::tempdir().unwrap();
    let limit = format!("ulimit -v {};", (2 << 20) + (256 << 10));
    let status = super::child("options::limited_child", directory.path(), &limit).status().unwrap();
    assert!(status.success(), "{status}");
    assert_eq!(Store::open(directory.path()).unwrap().reduced_map_bytes(), None);
}
