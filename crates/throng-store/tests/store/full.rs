//! No room, in the map or on the disk: an error that hands the batch back, then recovery.

use throng_store::{Batch, Store, WriteError};

static VALUE: [u8; 20_000] = [7; 20_000];

fn key(number: usize) -> String {
    format!("key {number:06}")
}

/// Writes until there is no room; returns how many fitted.
fn fill(store: &Store) -> usize {
    for number in 0..100_000 {
        let batch = Batch::new().put(key(number), VALUE);
        match store.write(batch.clone()).wait() {
            Ok(()) => {}
            Err(WriteError::Full { batch: handed, .. }) => {
                assert_eq!(handed, batch);
                return number;
            }
            Err(other) => panic!("{other}"),
        }
    }
    panic!("it never was full");
}

/// All that was acknowledged is there, deleting makes room, writing works again.
fn check_and_heal(store: &Store, fitted: usize) {
    assert!(fitted > 10, "{fitted}");
    let snapshot = store.snapshot().unwrap();
    assert_eq!(snapshot.len().unwrap(), fitted as u64);
    for entry in snapshot.prefix(b"key ") {
        assert!(entry.unwrap().1 == VALUE);
    }
    drop(snapshot);

    for number in 0..fitted / 2 {
        store.write(Batch::new().delete(key(number))).wait().unwrap();
    }
    store.write(Batch::new().put("again", VALUE)).wait().unwrap();
    assert_eq!(store.snapshot().unwrap().get(b"again").unwrap(), Some(&VALUE[..]));
}

#[test]
fn a_full_map_refuses_and_heals() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::options().map_bytes(2 << 20).open(directory.path()).unwrap();
    let fitted = fill(&store);
    check_and_heal(&store, fitted);
}

#[test]
fn a_batch_that_does_not_fit_leaves_its_neighbours_alone() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::options().map_bytes(1 << 20).open(directory.path()).unwrap();
    // Whether or not these end up in one group, only the large ones may fail.
    let tickets: Vec<_> = (0..40)
        .map(|number| {
            let bytes = if number % 10 == 7 { 4 << 20 } else { 10 };
            (number, store.write(Batch::new().put(key(number), vec![0; bytes])))
        })
        .collect();
    for (number, ticket) in tickets {
        match ticket.wait() {
            Err(WriteError::Full { .. }) => assert_eq!(number % 10, 7),
            outcome => assert!(outcome.is_ok() && number % 10 != 7, "{number}: {outcome:?}"),
        }
    }
    assert_eq!(store.stat().unwrap().entries, 36);
}

#[test]
#[ignore = "the child of a_full_disk_refuses_and_heals"]
fn filling_child() {
    let store = Store::open(std::env::var(super::DIRECTORY).unwrap()).unwrap();
    let fitted = fill(&store);
    check_and_heal(&store, fitted);
}

/// A limit on the size of a file stands in for a full disk: the engine's own write call fails.
#[cfg(unix)]
#[test]
fn a_full_disk_refuses_and_heals() {
    let directory = tempfile::tempdir().unwrap();
    let limit = "trap '' XFSZ; ulimit -f 4096;";
    let status = super::child("full::filling_child", directory.path(), limit).status().unwrap();
    assert!(status.success());
    let store = Store::open(directory.path()).unwrap();
    assert_eq!(store.snapshot().unwrap().get(b"again").unwrap(), Some(&VALUE[..]));
    store.write(Batch::new().put("without limit", VALUE)).wait().unwrap();
}
