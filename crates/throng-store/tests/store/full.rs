//! No room, in the map or on the disk: an error that hands the batch back, then recovery.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::thread;

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

/// Writes from several threads until each was told that there is no room, keeping what was
/// acknowledged.
fn write_until_full(store: &Store, round: u8, acknowledged: &Mutex<BTreeMap<String, Vec<u8>>>) {
    thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                for number in 0.. {
                    let key = format!("{round}/{thread}/{number:06}");
                    // Of all lengths, so that the disk is full amid a page as well.
                    let value = vec![round; 1 + number * 977 % 30_000];
                    let batch = Batch::new().put(&key, &value);
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
#[ignore = "the child of a_disk_without_room_refuses_and_goes_on_when_there_is_some"]
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
        assert_eq!(snapshot.len().unwrap(), acknowledged.len() as u64);
        for (key, value) in acknowledged.iter() {
            assert!(snapshot.get(key.as_bytes()).unwrap() == Some(&value[..]), "{key}");
        }
        acknowledged.len()
    };
    let mut entries = 0;
    for round in 0..3 {
        write_until_full(&store, round, &acknowledged);
        // Reading goes on, and nothing is lost; and this time more fitted than the time before.
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
    println!("{entries} writes acknowledged, three times to the brim");
}

/// A real disk that is full, of 64 MiB of memory, where the system lets us mount one.
#[cfg(target_os = "linux")]
#[test]
fn a_disk_without_room_refuses_and_goes_on_when_there_is_some() {
    let directory = tempfile::tempdir().unwrap();
    let mount = "mount -t tmpfs -o size=64m none";
    let is_permitted = Command::new("unshare")
        .args(["-rm", "sh", "-c", &format!("{mount} \"$0\"")])
        .arg(directory.path())
        .output()
        .is_ok_and(|output| output.status.success());
    if !is_permitted {
        println!("skipped: a file system of memory cannot be mounted here");
        return;
    }
    // Everything after the shell's own command is passed on to what runs on that disk.
    let within = format!("{mount} \"${}\" && exec \"$0\" \"$@\"", super::DIRECTORY);
    let limit = format!("exec unshare -rm sh -c '{within}' \"$0\" \"$@\";");
    let status =
        super::child("full::filling_a_disk_child", directory.path(), &limit).status().unwrap();
    assert!(status.success(), "{status}");
}
