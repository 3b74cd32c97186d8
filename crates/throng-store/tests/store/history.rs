//! Histories of concurrent writers and readers, checked for snapshot isolation.
//!
//! Each writer numbers its batches and writes the number under several keys, in two databases, in
//! the same batch. So a snapshot shows for each writer which of its batches it has, and all
//! snapshots together must be moments of one order of commits.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use throng_store::{Batch, Database, ReadError, Snapshot, Store, Str, U64};

const WRITERS: usize = 4;
const READERS: usize = 3;
const KEYS: usize = 3;
const BATCHES: u64 = 150;

/// What one reader saw at one moment.
#[derive(Clone, Debug)]
struct Seen {
    reader: usize,
    /// The snapshot's number of its commit.
    commit: u64,
    /// By writer: the numbers under its keys, which are those of one batch.
    numbers: [[u64; 2 * KEYS]; WRITERS],
    /// How many batches there were, by a counter that each raises.
    count: u64,
    /// By writer: the last batch whose ticket had resolved before the snapshot was taken.
    resolved: [u64; WRITERS],
    /// By writer: the last batch that was handed in before the snapshot was left.
    begun: [u64; WRITERS],
}

/// What is wrong with a history; each reader's own is in order.
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
        // As no writer leaves one out, what is seen is closed under what each wrote before.
        if last(seen).iter().sum::<u64>() != seen.count {
            return Some(format!("the counter knows other batches than the keys: {seen:?}"));
        }
    }
    // One order of commits: by the snapshots' numbers, nothing ever goes back.
    let mut by_commit: Vec<_> = history.iter().collect();
    by_commit.sort_by_key(|seen| seen.commit);
    for pair in by_commit.windows(2) {
        let (before, after) = (last(pair[0]), last(pair[1]));
        if pair[0].commit == pair[1].commit && before != after {
            return Some(format!("one commit shows two states: {pair:?}"));
        }
        if before.iter().zip(&after).any(|(before, after)| before > after) {
            return Some(format!("snapshots are no moments of one order: {pair:?}"));
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

/// The keys of a writer: not side by side with its own, but with those of the others.
fn key(writer: usize, key: usize) -> String {
    format!("{key}/{writer}")
}

fn numbered(named: &Database<Str, U64>, writer: usize, number: u64) -> Batch {
    (0..KEYS).fold(Batch::new().add("count", 1), |batch, at| {
        let key = key(writer, at);
        batch.put(&key, number.to_be_bytes()).put_in(named, &key, &number)
    })
}

fn inspect(
    snapshot: &Snapshot,
    named: &Database<Str, U64>,
) -> Result<([[u64; 2 * KEYS]; WRITERS], u64), ReadError> {
    let mut numbers = [[0; 2 * KEYS]; WRITERS];
    for at in 0..KEYS {
        for (writer, numbers) in numbers.iter_mut().enumerate() {
            let key = key(writer, at);
            let bytes = snapshot.get(key.as_bytes())?;
            numbers[at] = bytes.map_or(0, |bytes| u64::from_be_bytes(bytes.try_into().unwrap()));
            numbers[KEYS + at] = named.get(snapshot, &key)?.unwrap_or(0);
        }
        thread::yield_now();
    }
    let count = snapshot.get(b"count")?;
    Ok((numbers, count.map_or(0, |count| u64::from_le_bytes(count.try_into().unwrap()))))
}

#[test]
fn snapshots_are_moments_of_one_order_of_whole_batches() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
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
                    // Some at a time, so that groups have several of one writer.
                    let tickets: Vec<_> = (0..1 + number % 3)
                        .map(|_| {
                            number += 1;
                            begun[writer].store(number, Ordering::SeqCst);
                            store.write(numbered(named, writer, number))
                        })
                        .collect();
                    if number.is_multiple_of(2) {
                        // As an update, which reads before it writes.
                        number += 1;
                        begun[writer].store(number, Ordering::SeqCst);
                        let (own, next) = (named.clone(), number);
                        let update = store.update(move |update| {
                            assert_eq!(update.get_in(&own, &key(writer, 0))?, Some(next - 1));
                            for at in 0..KEYS {
                                update.put(key(writer, at).as_bytes(), &next.to_be_bytes());
                                update.put_in(&own, &key(writer, at), &next);
                            }
                            let count = update.get(b"count")?.unwrap_or(&[0; 8]);
                            let count = u64::from_le_bytes(count.try_into().unwrap());
                            update.put(b"count", &(count + 1).to_le_bytes());
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
                    let mut follower = store.reader();
                    loop {
                        let resolved = read(resolved);
                        let own;
                        // Some by snapshots of their own, some by one that follows.
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
    assert!(commits.len() > 10, "the readers saw next to nothing: {} moments", commits.len());
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
