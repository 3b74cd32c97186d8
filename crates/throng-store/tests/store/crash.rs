//! A store that is killed at any moment keeps every acknowledged write, whole.
//!
//! A child writes from many threads and prints each write after its acknowledgement. The parent
//! kills the child at random moments, opens the same store again and checks it. Each thread writes
//! its own keys in turn with rising versions, so each key must have the version that was
//! acknowledged last or a higher version.
//!
//! `THRONG_STORE_KILLS` is the number of kills, `THRONG_STORE_SEED` the seed of the moments.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use throng_store::{Batch, Bytes, Durability, Snapshot, Store, Str};

use crate::{db, number_or, texts};

/// Environment variable that is 1 if the child's store is volatile. A kill must lose no write of
/// either kind of store.
const VOLATILE: &str = "THRONG_STORE_VOLATILE";

const THREADS: u64 = 8;
/// Number of keys that each thread writes, in turn.
const SLOTS: u64 = 24;

/// A value that holds the proof that it is whole: a checksum, the version, the length, and as many
/// bytes. The longest span several pages. Every seventh version is a deletion without a value.
fn value(version: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(version);
    let bytes = if random.u8(..8) == 0 { random.usize(..20_000) } else { random.usize(..400) };
    let mut value = vec![0; 4];
    value.extend_from_slice(&version.to_le_bytes());
    value.extend_from_slice(&(bytes as u32).to_le_bytes());
    value.extend(std::iter::repeat_with(|| random.u8(..)).take(bytes));
    let checksum = crc32fast::hash(&value[4..]);
    value[..4].copy_from_slice(&checksum.to_le_bytes());
    value
}

/// The version of a value, if it is whole.
fn version_of(value: &[u8]) -> Option<u64> {
    let (checksum, rest) = value.split_first_chunk::<4>()?;
    let (version, rest) = rest.split_first_chunk::<8>()?;
    let (bytes, body) = rest.split_first_chunk::<4>()?;
    let whole = u32::from_le_bytes(*checksum) == crc32fast::hash(&value[4..])
        && u32::from_le_bytes(*bytes) as usize == body.len();
    whole.then(|| u64::from_le_bytes(*version))
}

fn is_deletion(version: u64) -> bool {
    version % 7 == 3
}

/// The version of each key, from the database of versions, which also covers deleted keys.
fn versions(store: &Store, snapshot: &Snapshot) -> BTreeMap<String, u64> {
    let counts = store.database::<Str, throng_store::U64>("versions").unwrap();
    let entries = counts.range(snapshot, ..).map(|entry| {
        let (key, version) = entry.unwrap();
        (key.to_owned(), version)
    });
    entries.collect()
}

#[test]
#[ignore = "the child of killed_writers_lose_nothing"]
fn writing_child() {
    let directory = std::env::var(super::DIRECTORY).unwrap();
    let durability = match number_or(VOLATILE, 0) {
        0 => Durability::Durable,
        _ => Durability::Volatile,
    };
    let store = Store::options().durability(durability).open(directory).unwrap();
    let copies = store.database::<Str, Bytes>("copies").unwrap();
    let counts = store.database::<Str, throng_store::U64>("versions").unwrap();
    let begun = versions(&store, &store.snapshot().unwrap());
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (store, copies, counts, begun) = (&store, &copies, &counts, &begun);
            scope.spawn(move || {
                for round in 1.. {
                    for slot in 0..SLOTS {
                        let key = format!("{thread}/{slot:03}");
                        let version = begun.get(&key).copied().unwrap_or(0) + round;
                        let batch = Batch::new().put(counts, &key, &version);
                        let batch = if is_deletion(version) {
                            batch.delete(&texts(store), &key).delete(copies, &key)
                        } else {
                            let value = value(version);
                            batch.put(&texts(store), &key, &value).put(copies, &key, &value)
                        };
                        store.write(batch).wait().unwrap();
                        let mut out = std::io::stdout().lock();
                        writeln!(out, "\nacknowledged {key} {version}").unwrap();
                        out.flush().unwrap();
                    }
                }
            });
        }
    });
}

/// Starts a child that writes into the directory, kills it, and adds the writes that it printed to
/// `acknowledged`.
fn write_and_kill(
    directory: &std::path::Path,
    random: &mut fastrand::Rng,
    acknowledged: &mut BTreeMap<String, u64>,
) {
    let mut child = super::child("crash::writing_child", directory, "")
        .env(VOLATILE, if random.bool() { "1" } else { "0" })
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let (sender, said) = mpsc::channel();
    // All whole lines count that the child printed before it died.
    let listener = thread::spawn(move || {
        for line in output.lines().map_while(Result::ok) {
            let mut words = line.split(' ');
            if let (Some("acknowledged"), Some(key), Some(version), None) =
                (words.next(), words.next(), words.next(), words.next())
            {
                let _ = sender.send((key.to_owned(), version.parse::<u64>().unwrap()));
            }
        }
    });
    // Most kills come during writes, some while the store is being opened.
    if random.u8(..5) > 0 {
        for _ in 0..random.usize(1..400) {
            let Ok((key, version)) = said.recv() else { break };
            acknowledged.insert(key, version);
        }
    }
    thread::sleep(Duration::from_micros(random.u64(..20_000)));
    child.kill().unwrap();
    assert!(!child.wait().unwrap().success());
    listener.join().unwrap();
    acknowledged.extend(said);
}

#[test]
fn killed_writers_lose_nothing() {
    let kills = number_or("THRONG_STORE_KILLS", 20);
    let seed = number_or("THRONG_STORE_SEED", fastrand::u64(..));
    println!("{kills} kills, THRONG_STORE_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let directory = tempfile::tempdir().unwrap();
    let mut acknowledged = BTreeMap::new();
    for kill in 0..kills {
        write_and_kill(directory.path(), &mut random, &mut acknowledged);

        let store = Store::options().check(true).open(directory.path()).unwrap();
        store.verify().unwrap();
        let snapshot = store.snapshot().unwrap();
        let found = versions(&store, &snapshot);
        for (key, version) in &acknowledged {
            assert!(found.get(key) >= Some(version), "kill {kill}: {key} lost version {version}");
        }
        let copies = store.database::<Str, Bytes>("copies").unwrap();
        let mut values = 0;
        for (key, version) in &found {
            let stored = db(&store).get(&snapshot, key.as_bytes()).unwrap();
            assert!(
                copies.get(&snapshot, key).unwrap() == stored,
                "kill {kill}: the batch of {key} was torn"
            );
            assert_eq!(stored.is_none(), is_deletion(*version), "kill {kill}: {key} {version}");
            if let Some(stored) = stored {
                assert_eq!(version_of(stored), Some(*version), "kill {kill}: {key} is torn");
                values += 1;
            }
        }
        assert_eq!(
            db(&store).len(&snapshot).unwrap(),
            values,
            "kill {kill}: values without a version"
        );
    }
    // More keys were written than there are threads.
    assert!(acknowledged.len() as u64 > THREADS, "{}", acknowledged.len());
}
