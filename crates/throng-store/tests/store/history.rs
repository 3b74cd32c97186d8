//! Histories of concurrent writers and readers, checked for snapshot isolation.
//!
//! Each writer numbers its batches and writes the number under several keys, in two databases, in
//! the same batch. So a snapshot shows for each writer the batches that it holds, and all snapshots
//! together must be moments of a single order of commits.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use throng_store::elmdb::Reader;
use throng_store::{Batch, Database, ReadError, Snapshot, Str, U64};

use crate::{new_store, texts};

const WRITERS: usize = 4;
const READERS: usize = 3;
const KEYS: usize = 3;
const BATCHES: u64 = 150;

/// Observation of a reader at a moment.
#[derive(Clone, Debug)]
struct Seen {
    reader: usize,
    /// Number of the commit that the snapshot shows.
    commit: u64,
    /// By writer: the numbers under its keys, which come from the same batch.
    numbers: [[u64; 2 * KEYS]; WRITERS],
    /// Number of all batches, from a counter that each batch increments.
    count: u64,
    /// By writer: the last batch whose ticket had resolved before the snapshot was taken.
    resolved: [u64; WRITERS],
    /// By writer: the last batch that was handed in by the end of the snapshot's reads.
    begun: [u64; WRITERS],
}

/// Describes the first violation in a history, in which each reader's observations are in order.
fn violation(history: &[Seen]) -> Option<String> {
    let last = |seen: &Seen| seen.numbers.map(|numbers| numbers[0]);
    for seen in history {
        for (writer, numbers) in seen.numbers.iter().enumerate() {
            if numbers.iter().any(|number| *number != numbers[0]) {
                return Some(format!("a batch of writer {writer} is torn: {seen:?}"));
            }
            if numbers[0] < seen.resolved[writer] {
                return Some(format!("a durable batch of writer {writer} is not seen: {seen:?}"));
            }
            if numbers[0] > seen.begun[writer] {
                return Some(format!("a batch of writer {writer} is seen too early: {seen:?}"));
            }
        }
        // Each writer numbers its batches without gaps, so the counter equals the sum of the last
        // numbers exactly if no earlier batch is missing.
        if last(seen).iter().sum::<u64>() != seen.count {
            return Some(format!("the counter knows other batches than the keys: {seen:?}"));
        }
    }
    // A single order of commits: in the order of the snapshots' numbers, no writer's number falls.
    let mut by_commit: Vec<_> = history.iter().collect();
    by_commit.sort_by_key(|seen| seen.commit);
    for pair in by_commit.windows(2) {
        let (before, after) = (last(pair[0]), last(pair[1]));
        if pair[0].commit == pair[1].commit && before != after {
            return Some(format!("a commit shows two states: {pair:?}"));
        }
        if before.iter().zip(&after).any(|(before, after)| before > after) {
            return Some(format!("snapshots are no moments of a single order: {pair:?}"));
        }
    }
    let mut readers = BTreeMap::new();
    for seen in history {
        if readers.insert(seen.reader, seen.commit).is_some_and(|before| before > seen.commit) {
            return Some(format!("reader {} went back in time: {seen:?}", seen.reader));
        }
    }
    None
}

/// A key of a writer. Its neighbours in the order of keys belong to other writers.
fn key(writer: usize, key: usize) -> String {
    format!("{key}/{writer}")
}

fn numbered(named: &Database<Str, U64>, writer: usize, number: u64) -> Batch {
    let entries = texts(named.store());
    (0..KEYS).fold(Batch::new().add(&entries, "count", 1), |batch, at| {
        let key = key(writer, at);
        batch.put(&entries, &key, &number.to_be_bytes()).put(named, &key, &number)
    })
}

fn inspect(
    snapshot: &Snapshot,
    named: &Database<Str, U64>,
) -> Result<([[u64; 2 * KEYS]; WRITERS], u64), ReadError> {
    let entries = texts(named.store());
    let mut numbers = [[0; 2 * KEYS]; WRITERS];
    for at in 0..KEYS {
        for (writer, numbers) in numbers.iter_mut().enumerate() {
            let key = key(writer, at);
            let bytes = entries.get(snapshot, &key)?;
            numbers[at] = bytes.map_or(0, |bytes| u64::from_be_bytes(bytes.try_into().unwrap()));
            numbers[KEYS + at] = named.get(snapshot, &key)?.unwrap_or(0);
        }
        thread::yield_now();
    }
    let count = entries.get(snapshot, "count")?;
    Ok((numbers, count.map_or(0, |count| u64::from_le_bytes(count.try_into().unwrap()))))
}

#[test]
fn snapshots_show_whole_batches_in_a_single_order() {
    let (_directory, store) = new_store();
    let named = store.database::<Str, U64>("named").unwrap();
    let marks = || -> [AtomicU64; WRITERS] { std::array::from_fn(|_| AtomicU64::new(0)) };
    let (resolved, begun) = (marks(), marks());
    let read = |marks: &[AtomicU64; WRITERS]| {
        std::array::from_fn(|writer| marks[writer].load(Ordering::SeqCst))
    };
    let history: Vec<Seen> = thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (store, named, resolved, begun) = (&store, &named, &resolved, &begun);
            scope.spawn(move || {
                let mut number = 0;
                while number < BATCHES {
                    // Several batches at a time, so that a group holds several from a writer.
                    let tickets: Vec<_> = (0..1 + number % 3)
                        .map(|_| {
                            number += 1;
                            begun[writer].store(number, Ordering::SeqCst);
                            store.write(numbered(named, writer, number))
                        })
                        .collect();
                    if number.is_multiple_of(2) {
                        // The next batch is an update, which reads before it writes.
                        number += 1;
                        begun[writer].store(number, Ordering::SeqCst);
                        let (own, entries, next) = (named.clone(), texts(store), number);
                        let update = store.update(move |update| {
                            assert_eq!(update.get(&own, &key(writer, 0))?, Some(next - 1));
                            for at in 0..KEYS {
                                update.put(&entries, &key(writer, at), &next.to_be_bytes());
                                update.put(&own, &key(writer, at), &next);
                            }
                            let count = update.get(&entries, "count")?.unwrap_or(&[0; 8]);
                            let count = u64::from_le_bytes(count.try_into().unwrap());
                            update.put(&entries, "count", &(count + 1).to_le_bytes());
                            Ok::<_, ReadError>(())
                        });
                        update.wait().unwrap();
                    }
                    tickets.into_iter().for_each(|ticket| ticket.wait().unwrap());
                    resolved[writer].store(number, Ordering::SeqCst);
                }
            });
        }
        let readers: Vec<_> = (0..READERS)
            .map(|reader| {
                let (store, named, resolved, begun) = (&store, &named, &resolved, &begun);
                scope.spawn(move || {
                    let mut seen = Vec::new();
                    let mut follower = Reader::new(store);
                    loop {
                        let resolved = read(resolved);
                        let own;
                        // The first reader uses `Reader::view`, the others take snapshots.
                        let snapshot = if reader == 0 {
                            follower.view().unwrap()
                        } else {
                            own = store.snapshot().unwrap();
                            &own
                        };
                        let (numbers, count) = inspect(snapshot, named).unwrap();
                        let commit = snapshot.commit();
                        let begun = read(begun);
                        seen.push(Seen { reader, commit, numbers, count, resolved, begun });
                        if resolved.iter().all(|number| *number >= BATCHES) {
                            return seen;
                        }
                    }
                })
            })
            .collect();
        readers.into_iter().flat_map(|reader| reader.join().unwrap()).collect()
    });
    assert_eq!(violation(&history), None);
    let commits: std::collections::BTreeSet<_> = history.iter().map(|seen| seen.commit).collect();
    assert!(commits.len() > 10, "the readers saw only {} commits", commits.len());
}

#[test]
fn the_checker_finds_each_kind_of_violation() {
    let seen = |reader, commit, numbers: [u64; WRITERS]| Seen {
        reader,
        commit,
        numbers: numbers.map(|number| [number; 2 * KEYS]),
        count: numbers.iter().sum(),
        resolved: [0; WRITERS],
        begun: [9; WRITERS],
    };
    let sound = [seen(0, 1, [1, 0, 0, 0]), seen(1, 2, [1, 1, 0, 0]), seen(0, 3, [2, 1, 0, 0])];
    assert_eq!(violation(&sound), None);
    let broken = |breaks: &dyn Fn(&mut Vec<Seen>)| {
        let mut history = sound.to_vec();
        breaks(&mut history);
        violation(&history).unwrap()
    };
    assert!(broken(&|history| history[1].numbers[1][4] = 0).contains("torn"));
    assert!(broken(&|history| history[2].resolved[0] = 3).contains("durable"));
    assert!(broken(&|history| history[1].begun[0] = 0).contains("too early"));
    assert!(broken(&|history| history[0].count = 2).contains("counter"));
    assert!(broken(&|history| history[1].commit = 3).contains("two states"));
    assert!(broken(&|history| history.push(seen(1, 4, [1, 2, 0, 0]))).contains("no moments"));
    assert!(broken(&|history| history.push(seen(0, 1, [1, 0, 0, 0]))).contains("back in time"));
}
