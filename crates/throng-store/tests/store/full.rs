//! A full map or a full disk: the error hands the batch back, and writes work again with room.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::thread;

use throng_store::{Batch, Durability, Store, WriteError};

use crate::{db, new_store_with, texts};

static VALUE: [u8; 20_000] = [7; 20_000];

fn key(number: usize) -> String {
    format!("key {number:06}")
}

/// Writes until there is no room, and returns the number of writes that fitted.
fn fill(store: &Store) -> usize {
    for number in 0..100_000 {
        let batch = Batch::new().put(&texts(store), &key(number), &VALUE);
        match store.write(batch.clone()).wait() {
            Ok(()) => {}
            Err(WriteError::Full { batch: handed, .. }) => {
                assert_eq!(handed, batch);
                return number;
            }
            Err(other) => panic!("{other}"),
        }
    }
    panic!("the store did not become full");
}

/// Checks that all acknowledged writes are there, deletions make room, and writes work again.
fn check_and_heal(store: &Store, fitted: usize) {
    assert!(fitted > 10, "{fitted}");
    assert!(
        store.is_failing() && store.is_writable(),
        "the last write failed, and the next may be tried"
    );
    let snapshot = store.snapshot().unwrap();
    assert_eq!(db(store).len(&snapshot).unwrap(), fitted as u64);
    for entry in db(store).prefix(&snapshot, b"key ") {
        assert!(entry.unwrap().1 == VALUE);
    }
    drop(snapshot);

    for number in 0..fitted / 2 {
        texts(store).delete(&key(number)).wait().unwrap();
    }
    db(store).put(b"again", &VALUE).wait().unwrap();
    assert!(!store.is_failing());
    assert_eq!(db(store).get(&store.snapshot().unwrap(), b"again").unwrap(), Some(&VALUE[..]));
}

/// Fills the store with small entries until not even the smallest fits, and then deletes them all, in batches of
/// five from all over the keys, beside writes that do not fit.
fn fill_and_empty(store: &Store) {
    let entry = |number: usize| (scattered(number), vec![7; 1 + number * 37 % 700]);
    let mut stored = Vec::new();
    // A smaller entry may fit where a larger one did not.
    let mut refused = 0;
    for number in 0.. {
        let (key, value) = entry(number);
        match texts(store).put(&key, &value).wait() {
            Ok(()) => stored.push(key),
            Err(WriteError::Full { .. }) => refused += 1,
            Err(other) => panic!("{other:?}"),
        }
        if refused == 500 {
            break;
        }
    }
    assert!(stored.len() > 500, "{}", stored.len());
    let mut left = stored.len() as u64;
    stored.sort_by_key(|key| key.chars().rev().collect::<String>());
    for (number, keys) in stored.chunks(5).enumerate() {
        let batch = keys.iter().fold(Batch::new(), |batch, key| batch.delete(&texts(store), key));
        // As an entity does that is forgotten.
        let batch = batch.add(&db(store), b"count", -1);
        let large = db(store).put(b"large", &vec![0; 3 << 20]);
        store.write(batch).wait().unwrap_or_else(|error| panic!("batch {number}: {error}"));
        assert!(matches!(large.wait(), Err(WriteError::Full { .. })));
        left -= keys.len() as u64;
        assert_eq!(store.stat().unwrap().entries, left + 1);
    }
    db(store).put(b"again", &VALUE).wait().unwrap();
}

/// A key whose place among the keys has nothing to do with the number.
fn scattered(number: usize) -> String {
    format!("{:016x}", (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

#[test]
fn what_makes_room_goes_on_a_full_map() {
    let directory = tempfile::tempdir().unwrap();
    let options = Store::options().map_bytes(2 << 20).durability(Durability::Volatile);
    fill_and_empty(&options.open(directory.path()).unwrap());
}

#[test]
#[ignore = "the child of what_makes_room_goes_on_a_full_disk and .._in_a_limited_file"]
fn emptying_child() {
    let directory = std::env::var(super::DIRECTORY).unwrap();
    fill_and_empty(&Store::open(Path::new(&directory).join("data")).unwrap());
}

#[cfg(unix)]
#[test]
fn what_makes_room_goes_in_a_limited_file() {
    let directory = tempfile::tempdir().unwrap();
    let limit = "trap '' XFSZ; ulimit -f 4096;";
    let status = super::child("full::emptying_child", directory.path(), limit).status().unwrap();
    assert!(status.success());
}

#[cfg(target_os = "linux")]
#[test]
fn what_makes_room_goes_on_a_full_disk() {
    on_a_small_disk("full::emptying_child", 8);
}

#[test]
fn a_full_map_refuses_and_heals() {
    let (_directory, store) = new_store_with(&Store::options().map_bytes(2 << 20));
    let fitted = fill(&store);
    check_and_heal(&store, fitted);
}

#[test]
fn a_batch_that_does_not_fit_leaves_its_neighbours_alone() {
    let (_directory, store) = new_store_with(&Store::options().map_bytes(1 << 20));
    // However the batches are grouped, only the large batches may fail.
    let tickets: Vec<_> = (0..40)
        .map(|number| {
            let bytes = if number % 10 == 7 { 4 << 20 } else { 10 };
            (number, texts(&store).put(&key(number), &vec![0; bytes]))
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

/// A limit on the size of files stands in for a full disk: the engine's write call fails.
#[cfg(unix)]
#[test]
fn a_full_disk_refuses_and_heals() {
    let directory = tempfile::tempdir().unwrap();
    let limit = "trap '' XFSZ; ulimit -f 4096;";
    let status = super::child("full::filling_child", directory.path(), limit).status().unwrap();
    assert!(status.success());
    let store = Store::open(directory.path()).unwrap();
    assert_eq!(db(&store).get(&store.snapshot().unwrap(), b"again").unwrap(), Some(&VALUE[..]));
    db(&store).put(b"without limit", &VALUE).wait().unwrap();
}

/// Writes from several threads until each gets `Full`, and adds the acknowledged entries to
/// `acknowledged`.
fn write_until_full(store: &Store, round: u8, acknowledged: &Mutex<BTreeMap<String, Vec<u8>>>) {
    thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                for number in 0.. {
                    let key = format!("{round}/{thread}/{number:06}");
                    // Values of all lengths, so that the disk can become full inside a page.
                    let value = vec![round; 1 + number * 977 % 30_000];
                    let batch = Batch::new().put(&texts(store), &key, &value);
                    match store.write(batch.clone()).wait() {
                        Ok(()) => acknowledged.lock().unwrap().insert(key, value),
                        Err(WriteError::Full { batch: handed, .. }) => {
                            assert_eq!(handed, batch);
                            break;
                        }
                        Err(other) => panic!("{other:?}"),
                    };
                }
            });
        }
    });
}

#[test]
#[ignore = "the child of a_disk_without_room_refuses_writes_until_there_is_room"]
fn filling_a_disk_child() {
    let disk = std::env::var(super::DIRECTORY).unwrap();
    let disk = Path::new(&disk);
    let ballast = |number: u8| disk.join(format!("ballast {number}"));
    for number in 0..2 {
        fs::write(ballast(number), vec![1; 20 << 20]).unwrap();
    }
    let store = Store::open(disk.join("data")).unwrap();
    let acknowledged: Mutex<BTreeMap<String, Vec<u8>>> = Mutex::default();
    let check = |store: &Store| {
        let acknowledged = acknowledged.lock().unwrap();
        let snapshot = store.snapshot().unwrap();
        assert_eq!(db(store).len(&snapshot).unwrap(), acknowledged.len() as u64);
        for (key, value) in acknowledged.iter() {
            assert!(db(store).get(&snapshot, key.as_bytes()).unwrap() == Some(&value[..]), "{key}");
        }
        acknowledged.len()
    };
    let mut entries = 0;
    for round in 0..3 {
        write_until_full(&store, round, &acknowledged);
        // Reads go on, no entry is lost, and each round has room for more entries.
        let now = check(&store);
        assert!(now > entries + 100, "{now} after {entries}");
        entries = now;
        if round < 2 {
            fs::remove_file(ballast(round)).unwrap();
        }
    }
    assert_eq!(store.stat().unwrap().recoveries, 0);
    drop(store);
    Store::check(disk.join("data")).unwrap();
    let store = Store::open(disk.join("data")).unwrap();
    assert_eq!(check(&store), entries);
    println!("{entries} writes acknowledged; the disk was full three times");
}

#[cfg(target_os = "linux")]
#[test]
fn a_disk_without_room_refuses_writes_until_there_is_room() {
    on_a_small_disk("full::filling_a_disk_child", 64);
}

/// Runs a test on a file system in memory that can really be full, where the system permits the mount.
#[cfg(target_os = "linux")]
fn on_a_small_disk(test: &str, mebibytes: u8) {
    let directory = tempfile::tempdir().unwrap();
    let mount = format!("mount -t tmpfs -o size={mebibytes}m none");
    let is_permitted = Command::new("unshare")
        .args(["-rm", "sh", "-c", &format!("{mount} \"$0\"")])
        .arg(directory.path())
        .output()
        .is_ok_and(|output| output.status.success());
    if !is_permitted {
        println!("skipped: a file system in memory cannot be mounted here");
        return;
    }
    // The shell passes the arguments after its own command to the child, which runs on that disk.
    let within = format!("{mount} \"${}\" && exec \"$0\" \"$@\"", super::DIRECTORY);
    let limit = format!("exec unshare -rm sh -c '{within}' \"$0\" \"$@\";");
    let status = super::child(test, directory.path(), &limit).status().unwrap();
    assert!(status.success(), "{status}");
}
