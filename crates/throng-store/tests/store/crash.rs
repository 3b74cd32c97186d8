//! Killed at any moment, the store keeps every write it acknowledged, whole.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::thread;

use throng_store::{Batch, Store};

const ROUNDS: usize = 5;
const THREADS: usize = 4;

/// A value that shows any tear: its length and all its bytes follow from the number. The largest
/// span several pages.
fn value(number: u64) -> Vec<u8> {
    let bytes = 10 + (number.wrapping_mul(2_654_435_761) % 9_000) as usize;
    number.to_le_bytes().into_iter().cycle().take(bytes).collect()
}

#[test]
#[ignore = "the child of killed_writers_lose_nothing"]
fn writing_child() {
    let directory = std::env::var(super::DIRECTORY).unwrap();
    let store = Store::open(directory).unwrap();
    let first = store.stat().unwrap().entries;
    thread::scope(|scope| {
        for thread in 0..THREADS as u64 {
            let store = &store;
            scope.spawn(move || {
                for number in (first + thread..).step_by(THREADS) {
                    let batch = Batch::new()
                        .put(format!("left/{number:020}"), value(number))
                        .put(format!("right/{number:020}"), value(number));
                    store.write(batch).wait().unwrap();
                    let mut out = std::io::stdout().lock();
                    writeln!(out, "\nacknowledged {number}").unwrap();
                    out.flush().unwrap();
                }
            });
        }
    });
}

#[test]
fn killed_writers_lose_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mut acknowledged = Vec::new();
    for round in 0..ROUNDS {
        let mut child = super::child("crash::writing_child", directory.path(), "")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut numbers = lines.filter_map(|line| {
            line.unwrap().strip_prefix("acknowledged ").map(|number| number.parse::<u64>().unwrap())
        });
        acknowledged.extend(numbers.by_ref().take(50 + 37 * round));
        child.kill().unwrap();
        // What was printed before the kill took effect counts as well.
        acknowledged.extend(numbers);
        assert!(!child.wait().unwrap().success());

        let store = Store::open(directory.path()).unwrap();
        let snapshot = store.snapshot().unwrap();
        let side = |side: &str| -> BTreeMap<u64, Vec<u8>> {
            let entries = snapshot.prefix(side.as_bytes()).map(|entry| {
                let (key, value) = entry.unwrap();
                let number = std::str::from_utf8(&key[side.len()..]).unwrap();
                (number.parse().unwrap(), value.to_vec())
            });
            entries.collect()
        };
        let (left, right) = (side("left/"), side("right/"));
        assert!(left == right, "a batch was torn in round {round}");
        for (number, stored) in &left {
            assert!(*stored == value(*number), "value {number} is torn in round {round}");
        }
        for number in &acknowledged {
            assert!(left.contains_key(number), "{number} was lost in round {round}");
        }
    }
    assert!(acknowledged.len() > 50 * ROUNDS);
}
