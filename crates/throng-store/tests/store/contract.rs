//! Guarantees of writes: durable, atomic, in order, grouped, and handed back if they are refused.

use std::thread;

use throng_store::{Batch, KEY_BYTES_MAX, Rejection, Snapshot, Store, VALUE_BYTES_MAX, WriteError};

use crate::{db, new_store, new_store_with, texts};

fn get(store: &Store, snapshot: &Snapshot, key: &str) -> Option<Vec<u8>> {
    texts(store).get(snapshot, key).unwrap().map(<[u8]>::to_vec)
}

#[test]
fn dropping_the_store_commits_queued_writes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("made/on/demand");
    let store = Store::open(&path).unwrap();
    for number in 0..1000 {
        // The caller drops the tickets without waiting.
        drop(db(&store).put(format!("{number}").as_bytes(), b"value"));
    }
    drop(store);
    assert_eq!(Store::open(&path).unwrap().stat().unwrap().entries, 1000);
}

#[test]
fn a_closed_store_reads_and_hands_writes_back() {
    let (_directory, store) = new_store();
    let ticket = db(&store).put(b"key", b"value");
    store.close();
    ticket.wait().unwrap();
    let batch = Batch::new().put(&db(&store), b"late", b"value");
    let refused = store.clone().write(batch.clone()).wait();
    assert!(matches!(refused, Err(WriteError::Closed(handed)) if handed == batch));
    assert_eq!(get(&store, &store.snapshot().unwrap(), "key"), Some(b"value".to_vec()));
    store.close();
}

#[test]
fn concurrent_writes_share_commits() {
    const THREADS: u64 = 32;
    const WRITES: u64 = 50;
    let (_directory, store) = new_store();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let store = &store;
            scope.spawn(move || {
                for write in 0..WRITES {
                    let key = format!("{thread}/{write}");
                    let all = texts(store);
                    let batch = Batch::new().put(&all, &key, key.as_bytes()).add(&all, "all", 1);
                    store.write(batch).wait().unwrap();
                    assert_eq!(
                        get(store, &store.snapshot().unwrap(), &key),
                        Some(key.into_bytes())
                    );
                }
            });
        }
    });
    let stat = store.stat().unwrap();
    assert_eq!((stat.entries, stat.batches), (THREADS * WRITES + 1, THREADS * WRITES));
    let all = i64::to_le_bytes((THREADS * WRITES) as i64).to_vec();
    assert_eq!(get(&store, &store.snapshot().unwrap(), "all"), Some(all));
    assert!(stat.commits < stat.batches / 2, "{stat:?}");
    assert!(stat.batches_per_commit() > 2.0, "{stat:?}");
}

#[test]
fn a_batch_that_cannot_be_stored_is_handed_back_and_harms_no_neighbour() {
    let (_directory, store) = new_store();
    let cases = [
        (Batch::new().put(&db(&store), b"", b"value"), Rejection::KeyEmpty),
        (Batch::new().put(&db(&store), b"a", b"b").delete(&db(&store), b""), Rejection::KeyEmpty),
        (
            Batch::new().put(&db(&store), &vec![b'k'; KEY_BYTES_MAX + 1], b"value"),
            Rejection::KeyTooLong { bytes: KEY_BYTES_MAX + 1 },
        ),
        (
            Batch::new().put(&db(&store), b"k", &vec![0; VALUE_BYTES_MAX + 1]),
            Rejection::ValueTooLong { bytes: VALUE_BYTES_MAX + 1, bytes_max: VALUE_BYTES_MAX },
        ),
    ];
    for (batch, expected) in cases {
        let neighbour = db(&store).put(b"neighbour", b"value");
        match store.write(batch.clone()).wait() {
            Err(WriteError::Rejected { batch: handed, reason }) => {
                assert_eq!((handed, reason), (batch, expected));
            }
            other => panic!("{other:?}"),
        }
        neighbour.wait().unwrap();
    }
    let longest = vec![b'k'; KEY_BYTES_MAX];
    let largest = vec![b'v'; VALUE_BYTES_MAX];
    db(&store).put(&longest, &largest).wait().unwrap();
    let snapshot = store.snapshot().unwrap();
    assert_eq!(db(&store).get(&snapshot, &longest).unwrap(), Some(largest.as_slice()));
    assert_eq!(db(&store).get(&snapshot, b"a").unwrap(), None);
    // A read of an impossible key finds no value and is no error.
    assert_eq!(db(&store).get(&snapshot, b"").unwrap(), None);
    assert_eq!(db(&store).get(&snapshot, &[b'k'; 600]).unwrap(), None);
}

#[test]
fn an_overloaded_store_hands_back_and_recovers() {
    let (_directory, store) = new_store_with(&Store::options().queue_batches_max(4));
    let mut accepted = 0;
    let mut refused = 0;
    let mut tickets = Vec::new();
    // Pushing takes far less time than a flush, so the queue of four soon runs over.
    while refused < 10 {
        tickets.push(db(&store).put(format!("{}", tickets.len()).as_bytes(), b"value"));
        if tickets.len() % 100 == 0 {
            for ticket in tickets.drain(..) {
                match ticket.wait() {
                    Ok(()) => accepted += 1,
                    Err(WriteError::Overloaded(batch)) if batch.len() == 1 => refused += 1,
                    Err(other) => panic!("{other}"),
                }
            }
        }
    }
    assert!(accepted > 0);
    db(&store).put(b"after", b"the rush").wait().unwrap();
}
