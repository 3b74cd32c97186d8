//! Updates, `put_new` and counters, which read before they write, among other writes; and what LMDB has after them.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use throng_store::{Batch, KEY_BYTES_MAX, ReadError, Rejection, Store, UpdateError, WriteError};

use crate::{db, new_store};

#[test]
fn an_update_that_fails_leaves_no_trace() {
    let (_directory, store) = new_store();
    db(&store).put(b"key", b"value").wait().unwrap();
    let entries = || db(&store);

    let aborted = store.update({
        let entries = entries();
        move |update| -> Result<(), &str> {
            update.delete(&entries, b"key");
            update.put(&entries, b"trace", b"left");
            assert_eq!(update.get(&entries, b"key").unwrap(), None);
            Err("no")
        }
    });
    assert!(matches!(aborted.wait(), Err(UpdateError::Aborted("no"))));
    let panicked = store.update({
        let entries = entries();
        move |update| -> Result<(), ReadError> {
            update.put(&entries, b"trace", b"left");
            panic!("on purpose");
        }
    });
    assert!(matches!(panicked.wait(), Err(UpdateError::Panicked)));
    let rejected = store.update({
        let entries = entries();
        move |update| -> Result<(), ReadError> {
            update.put(&entries, b"trace", b"left");
            update.put(&entries, &[b'k'; KEY_BYTES_MAX + 1], b"long");
            Ok(())
        }
    });
    let bytes = KEY_BYTES_MAX + 1;
    match rejected.wait() {
        Err(UpdateError::Rejected(reason)) => assert_eq!(reason, Rejection::KeyTooLong { bytes }),
        other => panic!("{other:?}"),
    }

    let kept = store.update({
        let entries = entries();
        move |update| -> Result<Vec<u8>, ReadError> {
            let value = update.get(&entries, b"key")?.unwrap_or_default().to_vec();
            update.delete(&entries, b"key");
            Ok(value)
        }
    });
    assert_eq!(kept.wait().unwrap(), b"value");
    let snapshot = store.snapshot().unwrap();
    assert!(
        db(&store).is_empty(&snapshot).unwrap(),
        "{:?}",
        db(&store).range(&snapshot, ..).next()
    );
}

#[test]
fn put_new_of_a_key_succeeds_once_among_many_threads() {
    let (_directory, store) = new_store();
    let made = AtomicU64::new(0);
    thread::scope(|scope| {
        for thread in 0..16u64 {
            let (store, made) = (&store, &made);
            scope.spawn(move || {
                for number in 0..20 {
                    let name = format!("name/{number}");
                    let batch = Batch::new().add(&db(store), b"made", 1);
                    let batch = batch.put_new(&db(store), name.as_bytes(), &thread.to_le_bytes());
                    match store.write(batch.clone()).wait() {
                        Ok(()) => drop(made.fetch_add(1, Ordering::Relaxed)),
                        Err(WriteError::KeyExists(handed)) => assert_eq!(handed, batch),
                        Err(other) => panic!("{other}"),
                    }
                }
            });
        }
    });
    assert_eq!(made.into_inner(), 20);
    let snapshot = store.snapshot().unwrap();
    assert_eq!(db(&store).get(&snapshot, b"made").unwrap(), Some(&20i64.to_le_bytes()[..]));
    assert_eq!(db(&store).len(&snapshot).unwrap(), 21);
    // A deleted key can be made again, also within a group.
    let tickets = [
        db(&store).delete(b"name/0"),
        db(&store).put_new(b"name/0", b"again"),
        db(&store).put_new(b"name/0", b"too late"),
    ];
    let outcomes = tickets.map(throng_store::Ticket::wait);
    assert!(matches!(outcomes, [Ok(()), Ok(()), Err(WriteError::KeyExists(_))]), "{outcomes:?}");
}

#[test]
fn keys_in_order_fill_their_pages() {
    let (_directory, store) = new_store();
    for chunk in 0..10u32 {
        let batch = (0..2000).fold(Batch::new(), |batch, number| {
            batch.put(&db(&store), &(chunk * 2000 + number).to_be_bytes(), &[7; 16])
        });
        store.write(batch).wait().unwrap();
    }
    let stat = store.stat().unwrap();
    // An entry takes 34 bytes of its page; half-full pages would take twice as much. The limit
    // leaves room for two more copies of the pages that were changed last.
    assert!(stat.used_bytes < 20_000 * 45, "{stat:?}");
    assert_eq!(store.verify().unwrap(), 20_000);
}

#[test]
fn a_queue_that_mostly_empties_itself_keeps_what_is_left() {
    const ROUNDS: u64 = 40;
    let directory = tempfile::tempdir().unwrap();
    let mut random = fastrand::Rng::with_seed(5);
    let mut expected = BTreeSet::new();
    let mut next = 0u64;
    for _ in 0..ROUNDS {
        let store = Store::open(directory.path()).unwrap();
        for _ in 0..random.usize(1..4) {
            let batch = random.u8(0..8);
            let mut changes = Batch::new();
            if batch == 0 {
                changes = changes.clear(&db(&store));
                expected.clear();
            }
            for _ in 0..random.u64(0..60) {
                changes = changes.put(&db(&store), &next.to_be_bytes(), b"waits");
                expected.insert(next);
                next += 1;
            }
            store.write(changes).wait().unwrap();
            // Of those that wait, and those that an earlier checkpoint has written, few are left; some come again.
            let left = random.usize(0..6);
            let done: Vec<u64> = expected.iter().copied().filter(|_| random.u8(..) > 12).collect();
            let done = &done[..done.len().saturating_sub(left)];
            let mut changes = Batch::new();
            for number in done {
                changes = changes.delete(&db(&store), &number.to_be_bytes());
                expected.remove(number);
            }
            if let Some(again) = done.first().filter(|_| random.bool()) {
                changes = changes.put(&db(&store), &again.to_be_bytes(), b"again");
                expected.insert(*again);
            }
            store.write(changes).wait().unwrap();
        }
        // Closing writes all to the data file, and opening reads it.
        drop(store);
        let store = Store::open(directory.path()).unwrap();
        let snapshot = store.snapshot().unwrap();
        let keys = db(&store).range(&snapshot, ..).map(|entry| entry.unwrap().0.to_vec());
        let keys: Vec<u64> = keys.map(|key| u64::from_be_bytes(key.try_into().unwrap())).collect();
        assert_eq!(keys, Vec::from_iter(expected.iter().copied()));
    }
}
