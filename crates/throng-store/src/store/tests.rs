//! Tests of a store that need its parts: recovery of the engine, and what a reader sees beside changes that
//! go into LMDB at once.
// Clippy allows this in tests, but does not recognise the file.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc;
use std::time::Duration;
use std::{fs, mem};

use tempfile::TempDir;

use super::*;
use crate::disk::{LOG, format, recovery};
use crate::elmdb::Reader;
use crate::log::{Access, Point, Replay, faults};
use crate::read::follower::Follower;
use crate::read::state::State;
use crate::{
    CommitFailure, Database, DatabaseError, Durability, Str, Submission, SubmitError, WriteError,
};

/// Makes the engine refuse further writes as after a failed commit: a thread ends within its
/// transaction, and the engine notices the lock left behind.
fn leave_a_commit_half_done(store: &Store) {
    let environment = store.0.environment.clone();
    let leave = thread::spawn(move || {
        let env = environment.env().unwrap();
        // The environment is closed nevertheless.
        mem::forget(env.begin_write().unwrap());
    });
    leave.join().unwrap();
}

#[test]
fn after_a_commit_with_unknown_outcome_the_store_recovers_when_old_snapshots_end() {
    let (_directory, store) = new_store();
    let named = store.database::<Str, Str>("named").unwrap();
    let early = store.database::<Str, Str>("early").unwrap();
    named.put("key", "value").wait().unwrap();
    db(&store).put(b"key", b"value").wait().unwrap();
    let before = store.snapshot().unwrap();
    let mut reader = Reader::new(&store);
    assert_eq!(reader.get(&db(&store), b"key").unwrap(), Some(&b"value"[..]));
    reader.rest();
    assert!(store.is_writable());

    leave_a_commit_half_done(&store);
    let refused = store.database::<Str, Str>("new");
    assert_eq!(refused.unwrap_err(), DatabaseError::Recovering);
    let batch = Batch::new().put(&db(&store), b"late", b"value");
    let refused = store.write(batch.clone()).wait();
    assert!(matches!(refused, Err(WriteError::Recovering(handed)) if handed == batch));
    assert!(!store.is_writable());
    let refused = store.write(batch.clone()).wait();
    assert!(matches!(refused, Err(WriteError::Recovering(handed)) if handed == batch));
    // The old snapshot stays readable, and delays the recovery.
    while !matches!(store.snapshot(), Err(ReadError::Recovering)) {
        thread::yield_now();
    }
    assert!(matches!(store.stat(), Err(ReadError::Recovering)));
    assert_eq!(db(&store).get(&before, b"key").unwrap(), Some(&b"value"[..]));
    drop(before);

    while !store.is_writable() {
        thread::yield_now();
    }
    store.write(batch).wait().unwrap();
    early.put("still", "itself").wait().unwrap();
    let snapshot = store.snapshot().unwrap();
    assert_eq!(db(&store).get(&snapshot, b"late").unwrap(), Some(&b"value"[..]));
    assert_eq!(named.get(&snapshot, "key").unwrap(), Some("value"));
    assert_eq!(named.get(&snapshot, "still").unwrap(), None);
    assert_eq!(early.get(&snapshot, "still").unwrap(), Some("itself"));
    assert_eq!(reader.get(&db(&store), b"late").unwrap(), Some(&b"value"[..]));
    assert_eq!(store.stat().unwrap().recoveries, 1);
}

#[test]
fn a_commit_without_a_record_that_is_found_after_reopening_is_committed_again() {
    let (_directory, store) = new_store();
    // Nothing is in memory, as before each commit without a record.
    db(&store).load([(*b"a", *b"load")]).unwrap();
    let environment = store.environment();
    let log_at = || environment.log().unwrap().point();
    let before = log_at();
    // A commit of LMDB whose end the store did not see.
    let env = environment.env().unwrap();
    let format = env.open_table("format").unwrap().unwrap();
    let mut txn = env.begin_write().unwrap();
    let unseen = Point { position: before.position + 5, ..before };
    format::put_applied(&mut txn, format, unseen).unwrap();
    txn.commit().unwrap();
    let committed = env.last_txn();
    drop(env);
    leave_a_commit_half_done(&store);
    assert!(store.database::<Str, Str>("new").is_err());
    while environment.engine().is_broken() {
        thread::yield_now();
    }
    assert_eq!(environment.env().unwrap().last_txn(), committed + 1);
    assert_eq!(log_at(), unseen);
    assert_eq!(store.snapshot().unwrap().commit(), unseen.position);
    db(&store).put(b"later", b"value").wait().unwrap();
    assert_eq!(store.snapshot().unwrap().commit(), unseen.position + 1);
}

#[test]
fn a_commit_that_may_have_failed_unseen_is_followed_by_another_one() {
    let (directory, store) = new_store();
    db(&store).load([(*b"a", *b"load")]).unwrap();
    let commits = |store: &Store| store.environment().env().unwrap().last_txn();
    let before = commits(&store);
    drop(store);
    // The last commit had no record, and the process that made it may have ended by a failure.
    let store = Store::open(directory.path()).unwrap();
    assert_eq!(commits(&store), before + 1);
    // Its page may be on the disk although it is not seen.
    leave_a_commit_half_done(&store);
    assert!(store.database::<Str, Str>("new").is_err());
    while store.environment().engine().is_broken() {
        thread::yield_now();
    }
    assert_eq!(commits(&store), before + 2);
    assert_eq!(db(&store).get(&store.snapshot().unwrap(), b"a").unwrap(), Some(&b"load"[..]));
}

#[test]
fn a_store_can_be_closed_during_recovery() {
    let (_directory, store) = new_store();
    let held = store.snapshot().unwrap();
    leave_a_commit_half_done(&store);
    assert!(store.database::<Str, Str>("new").is_err());
    assert!(db(&store).put(b"key", b"value").wait().is_err());
    store.close();
    let refused = db(&store).put(b"key", b"value").wait();
    assert!(matches!(refused, Err(WriteError::Closed(_))));
    drop(held);
}

/// Number of the store's state: its steps are done one after the other, and each leaves a trace of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// A put, which goes through the log if there is room.
    Put,
    /// A load, which goes into LMDB at once.
    Load,
    /// A new database, and a put there.
    Database,
}

const STEPS: [Step; 5] = [Step::Put, Step::Load, Step::Put, Step::Database, Step::Load];

fn step(number: u64) -> Step {
    STEPS[(number % STEPS.len() as u64) as usize]
}

fn take_step(store: &Store, number: u64) {
    let key = number.to_be_bytes();
    let is_taken = || match step(number) {
        Step::Put => db(store).put(&key, b"put").wait().is_ok(),
        Step::Load => db(store).load([(key, *b"load")]).is_ok(),
        Step::Database => store
            .database::<Str, Str>(&number.to_string())
            .is_ok_and(|database| database.put("key", "value").wait().is_ok()),
    };
    // The pages that readers see may fill a small map.
    while !is_taken() {
        thread::yield_now();
    }
}

/// Returns the number of steps that a state shows, which must be the first ones of `all`.
fn steps_in(environment: &Environment, state: State<'_>, all: u64) -> u64 {
    let databases: BTreeMap<_, _> = environment.databases().into_iter().collect();
    let shows = |number: u64| match step(number) {
        Step::Put | Step::Load => {
            state.stored(environment.entries(), &number.to_be_bytes()).unwrap().is_some()
        }
        Step::Database => databases
            .get(&number.to_string())
            .is_some_and(|database| state.stored(*database, b"key").unwrap().is_some()),
    };
    let shown: Vec<bool> = (0..all).map(shows).collect();
    let steps = shown.iter().take_while(|shown| **shown).count();
    assert!(!shown[steps..].contains(&true), "the state has gaps: {shown:?}");
    steps as u64
}

/// The store's files as a process finds them that reads beside this one.
fn follower(store: &Store) -> Follower {
    let environment = store.environment();
    let format = environment.env().unwrap().open_table("format").unwrap().unwrap();
    Follower::new(environment.location(), format, environment.readers().tables_max(), 1 << 20)
}

/// A reader, which `looks` for the steps again and again.
enum Reads {
    Snapshot,
    Follower(Box<Follower>),
    Backup,
}

fn look(store: &Store, reads: &mut Reads, all: u64) -> u64 {
    let environment = store.environment();
    let begin = || environment.env().unwrap().begin_read().map_err(ReadError::from_engine);
    let (txn, layers) = match reads {
        Reads::Snapshot => environment.readers().begin().unwrap(),
        Reads::Follower(follower) => follower.begin(begin, || Ok(true)).unwrap(),
        Reads::Backup => {
            let to = tempfile::tempdir().unwrap();
            store.backup(to.path().join("copy")).unwrap();
            let copy = Store::open(to.path().join("copy")).unwrap();
            return look(&copy, &mut Reads::Snapshot, all);
        }
    };
    steps_in(environment, State { txn: &txn, layers: &layers }, all)
}

/// Takes steps while others read; each must see the first ones, up to all that were done when it began.
fn reads_beside_steps(options: &Options, all: u64) {
    let (_directory, store) = new_store_with(&options.clone().durability(Durability::Volatile));
    let (done, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let looks = thread::scope(|scope| {
        let readers = [
            Reads::Snapshot,
            Reads::Snapshot,
            Reads::Follower(Box::new(follower(&store))),
            Reads::Backup,
        ];
        let reader = |mut reads: Reads| {
            let (store, done, is_over) = (&store, &done, &is_over);
            move || {
                let mut looks = 0;
                while !is_over.load(Ordering::Acquire) {
                    let before = done.load(Ordering::Acquire);
                    let seen = look(store, &mut reads, all);
                    assert!(seen >= before, "{seen} steps of {before}");
                    looks += 1;
                }
                assert_eq!(look(store, &mut reads, all), all);
                looks
            }
        };
        let readers = readers.map(|reads| scope.spawn(reader(reads)));
        let steps = scope.spawn(|| {
            for number in 0..all {
                take_step(&store, number);
                done.store(number + 1, Ordering::Release);
            }
        });
        let steps = steps.join();
        is_over.store(true, Ordering::Release);
        steps.unwrap();
        readers.map(|reader| reader.join().unwrap())
    });
    assert!(looks.iter().all(|looks| *looks > 0), "{looks:?}");
}

#[test]
fn every_reader_sees_loads_and_new_databases_in_the_order_of_all_changes() {
    let options = Options::default().databases_max(200);
    reads_beside_steps(&options, 400);
    reads_beside_steps(&options.clone().checkpoint_bytes(0), 400);
    // No group has room in memory.
    reads_beside_steps(&options.map_bytes(256 << 10), 20);
}

/// Lets a change go on between the begin of a reader's transaction and the choice of its position.
fn snapshot_around(store: &Store, change: impl FnOnce() + Send) -> u64 {
    let environment = store.environment();
    let before = environment.env().unwrap().last_txn();
    thread::scope(|scope| {
        let (txn, layers) = environment
            .view()
            .begin(|| {
                let txn = environment.env().unwrap().begin_read()?;
                scope.spawn(change);
                while environment.env().unwrap().last_txn() == before {
                    thread::yield_now();
                }
                thread::sleep(Duration::from_millis(20));
                Ok::<_, crate::disk::lmdb::Error>(txn)
            })
            .unwrap();
        steps_in(environment, State { txn: &txn, layers: &layers }, 10)
    })
}

#[test]
fn a_snapshot_with_an_older_transaction_has_an_older_position() {
    for options in [Options::default(), Options::default().map_bytes(192 << 10)] {
        let (_directory, store) = new_store_with(&options);
        db(&store).load([(0u64.to_be_bytes(), *b"in place of a put")]).unwrap();
        let steps = || (1..4).for_each(|number| take_step(&store, number));
        assert_eq!(snapshot_around(&store, steps), 1);
        assert_eq!(look(&store, &mut Reads::Snapshot, 4), 4);
    }
}

#[test]
fn a_follower_that_meets_a_load_begins_again() {
    let (_directory, store) = new_store();
    take_step(&store, 0);
    let mut follower = follower(&store);
    let begins = AtomicU64::new(0);
    let begin = || {
        let txn = store.environment().env().unwrap().begin_read();
        if begins.fetch_add(1, Ordering::Relaxed) == 0 {
            (1..3).for_each(|number| take_step(&store, number));
        }
        txn.map_err(ReadError::from_engine)
    };
    let (txn, layers) = follower.begin(begin, || Ok(true)).unwrap();
    assert_eq!(steps_in(store.environment(), State { txn: &txn, layers: &layers }, 10), 3);
    assert_eq!(begins.into_inner(), 2);
}

#[test]
fn a_copy_of_the_log_ends_at_the_mark_of_its_beginning() {
    let (_directory, store) = new_store();
    let put = |key: &str| db(&store).put(key.as_bytes(), b"value").wait().unwrap();
    let environment = store.environment();
    let env = environment.env().unwrap();
    let format = env.open_table("format").unwrap().unwrap();
    let applied = format::applied(&env.begin_read().unwrap(), format).unwrap();
    put("before");
    let mut from = Replay::open(&environment.location(), applied, Access::Read).unwrap();
    put("after");
    let tables = environment.readers().tables_max();
    let lmdb = (&*env, format, applied);
    let (copied, at) =
        recovery::replay(&mut from, lmdb, tables, usize::MAX, u64::MAX, |_| true).unwrap();
    assert_eq!((at.position, environment.view().position()), (1, 2));
    assert_eq!((copied.changes(), environment.view().memtables()[0].changes()), (1, 2));
}

#[test]
fn a_backup_ends_beside_writers_that_do_not_pause() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::default().durability(Durability::Volatile);
    let store = options.open(directory.path()).unwrap();
    let is_over = AtomicBool::new(false);
    let put = |number: u64| db(&store).put(&number.to_be_bytes(), &[7; 100]);
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut number = 0;
            while !is_over.load(Ordering::Relaxed) {
                let tickets: Vec<_> = (number..number + 1000).map(put).collect();
                tickets.into_iter().for_each(|ticket| ticket.wait().unwrap());
                number += 1000;
            }
            number
        });
        while store.environment().view().position() < 5_000 {
            thread::yield_now();
        }
        let to = tempfile::tempdir().unwrap();
        store.backup(to.path().join("copy")).unwrap();
        is_over.store(true, Ordering::Relaxed);
        let written = writer.join().unwrap();
        let copied = Store::open(to.path().join("copy")).unwrap().verify().unwrap();
        assert!((5_000..=written).contains(&copied), "{copied} of {written}");
    });
}

#[test]
fn nothing_goes_into_lmdb_at_once_while_the_log_is_broken() {
    let mut refused = 0;
    for before in 0..6 {
        let (directory, store) = new_store();
        db(&store).put(b"key", b"before").wait().unwrap();
        // The disk fails on the writer thread from some operation on.
        let entries = db(&store);
        let broken = store.update(move |update| {
            update.put(&entries, b"key", b"unknown");
            faults::set(Some((before, faults::ALL)));
            Ok::<_, ReadError>(())
        });
        let is_unknown = broken.wait().is_err();
        let loaded = db(&store).load([(*b"key", *b"loaded")]);
        let made = store.database::<Str, Str>("made").map(drop);
        if let Err(error) = &loaded {
            assert!(matches!(error.failure, LoadFailure::Recovering), "{error:?}");
            assert_eq!(made, Err(DatabaseError::Recovering));
            assert!(is_unknown);
            refused += 1;
        }
        // The files as a killed process leaves them.
        let killed = tempfile::tempdir().unwrap();
        fs::create_dir(killed.path().join(LOG)).unwrap();
        fs::copy(directory.path().join("data.mdb"), killed.path().join("data.mdb")).unwrap();
        for entry in fs::read_dir(directory.path().join(LOG)).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), killed.path().join(LOG).join(entry.file_name())).unwrap();
        }
        let again = Store::open(killed.path()).unwrap();
        let snapshot = again.snapshot().unwrap();
        let entries = db(&again);
        let found = entries.get(&snapshot, b"key").unwrap();
        match loaded {
            Ok(_) => assert_eq!(found, Some(&b"loaded"[..]), "{before}"),
            Err(_) => assert_ne!(found, Some(&b"loaded"[..]), "{before}"),
        }
    }
    assert!(refused > 0);
}

/// Writes ascending counts under a key, each built upon the last, without waiting.
struct Author {
    key: String,
    count: u32,
    last: Submission,
    /// All counts that were accepted.
    given: Vec<(Submission, u32)>,
}

impl Author {
    fn read(&self, store: &Store) -> u32 {
        loop {
            if store.is_writable()
                && let Ok(snapshot) = store.snapshot()
            {
                let found = db(store).get(&snapshot, self.key.as_bytes()).unwrap();
                return found.map_or(0, |count| u32::from_le_bytes(count.try_into().unwrap()));
            }
            thread::yield_now();
        }
    }

    fn write(&mut self, store: &Store) {
        let mut batch =
            Batch::new().put(&db(store), self.key.as_bytes(), &(self.count + 1).to_le_bytes());
        match store.submit(&mut batch, self.last) {
            Ok(submission) => {
                self.count += 1;
                self.last = submission;
                self.given.push((submission, self.count));
            }
            Err(SubmitError::Lost(_) | SubmitError::Recovering) => {
                assert_eq!(batch.len(), 1, "the batch is handed back");
                self.count = self.read(store);
                self.last = Submission::START;
            }
            Err(other) => panic!("{other}"),
        }
    }

    /// Checks that each durable count follows those before it, and that the last one is stored. Returns
    /// the numbers of counts that were lost, and of those whose outcome is unknown.
    fn check(&self, store: &Store) -> [usize; 2] {
        // The greatest count that is stored for certain, and the greatest that may be.
        let (mut certain, mut possible) = (0, 0);
        let mut lost = [0, 0];
        for (submission, count) in &self.given {
            let is_next = certain < *count && *count <= possible + 1;
            match store.settled(*submission).wait() {
                Ok(()) => {
                    assert!(is_next, "{count} after {certain} to {possible}");
                    (certain, possible) = (*count, *count);
                }
                Err(CommitFailure::NotWritten(_)) => lost[0] += 1,
                Err(CommitFailure::Unknown(_)) => {
                    assert!(is_next, "{count} after {certain} to {possible}");
                    possible = *count;
                    lost[1] += 1;
                }
            }
        }
        let found = self.read(store);
        assert!((certain..=possible).contains(&found), "{found}, not {certain} to {possible}");
        lost
    }
}

#[test]
fn a_lost_submission_takes_with_it_all_that_build_on_it() {
    let mut lost = [0, 0];
    for (before, failures) in (0..6).flat_map(|before| [(before, 1), (before, 3)]) {
        let (directory, store) = new_store();
        let mut authors = ["ada", "alan", "grace"].map(|key| {
            let (count, last) = (0, Submission::START);
            Author { key: key.to_owned(), count, last, given: Vec::new() }
        });
        for round in 0..90 {
            if round % 30 == 10 {
                // An operation of the writer thread on its files fails.
                let entries = db(&store);
                drop(store.update(move |update| {
                    update.put(&entries, b"other", b"value");
                    faults::set(Some((before, failures)));
                    Ok::<_, ReadError>(())
                }));
            }
            authors.iter_mut().for_each(|author| author.write(&store));
            if round % 5 == 0 {
                // The writer gets some groups of each size.
                let _ = store.settled(authors[0].last).wait();
            }
        }
        for author in &authors {
            let [not_written, unknown] = author.check(&store);
            lost[0] += not_written;
            lost[1] += unknown;
        }
        let found = authors.each_ref().map(|author| author.read(&store));
        drop(store);
        let store = Store::open(directory.path()).unwrap();
        assert_eq!(authors.each_ref().map(|author| author.read(&store)), found);
    }
    assert!(lost[0] > 0 && lost[1] > 0, "{lost:?}");
}

fn within_seconds(seconds: u64, work: impl FnOnce() + Send + 'static) -> bool {
    let (done, wait) = mpsc::channel();
    thread::spawn(move || {
        work();
        let _ = done.send(());
    });
    wait.recv_timeout(Duration::from_secs(seconds)).is_ok()
}

#[test]
fn a_store_whose_checkpoint_thread_could_not_be_started_ends() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::default();
    let environment = Environment::open(directory.path(), &options).unwrap();
    let mut shared = Shared::new(environment, &options);
    let writer = shared.make_writer();
    let writer = thread::spawn(move || writer::run(writer));
    shared.writer = OnceLock::from(writer.thread().id());
    shared.threads = Mutex::new(vec![writer]);
    assert!(within_seconds(20, move || drop(shared)));
}

#[test]
fn a_waker_may_close_the_store_while_another_thread_does() {
    struct Closes(Store);
    impl std::task::Wake for Closes {
        fn wake(self: Arc<Self>) {
            thread::sleep(Duration::from_millis(100));
            self.0.close();
        }
    }
    let (_directory, store) = new_store();
    let waker = std::task::Waker::from(Arc::new(Closes(store.clone())));
    let (go, wait) = mpsc::channel::<()>();
    let mut updating = store.update(move |_| {
        let _ = wait.recv();
        Ok::<_, ReadError>(())
    });
    let mut context = std::task::Context::from_waker(&waker);
    assert!(std::pin::Pin::new(&mut updating).poll(&mut context).is_pending());
    drop(waker);
    go.send(()).unwrap();
    assert!(within_seconds(20, move || store.close()));
}

#[test]
fn the_number_of_databases_does_not_make_checkpoints_frequent() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::default().databases_max(20_000).checkpoint_bytes(256 << 10);
    let store = options.durability(Durability::Volatile).open(directory.path()).unwrap();
    let commits = || store.environment().env().unwrap().last_txn();
    let before = commits();
    for number in 0..500u32 {
        db(&store).put(&number.to_be_bytes(), b"value").wait().unwrap();
    }
    assert!(commits() - before < 20, "{}", commits() - before);
}

/// A transaction that a thread has kept would retain the pages that a checkpoint frees until its end, and the
/// checkpoint would need as many new ones.
#[test]
fn a_checkpoint_uses_the_pages_again_that_it_has_freed() {
    const ENTRIES: u64 = 50_000;
    let (_directory, store) = new_store();
    let environment = &store.0.environment;
    let mut file_bytes = Vec::new();
    for round in 0..3 {
        let all = (0..ENTRIES).map(|entry| (entry * 7919 % ENTRIES).to_be_bytes());
        for some in all.collect::<Vec<_>>().chunks(1_000) {
            let put = |batch: Batch, key: &[u8; 8]| batch.put(&db(&store), key, &[round; 100]);
            store.write(some.iter().fold(Batch::new(), put)).wait().unwrap();
        }
        // The thread keeps the transaction of the snapshot.
        assert!(db(&store).get(&store.snapshot().unwrap(), &[0; 8]).unwrap().is_some());
        environment.drain(&environment.log().unwrap()).unwrap();
        assert_eq!(environment.readers().memory_bytes(), 0);
        file_bytes.push(environment.engine().file_bytes().unwrap());
    }
    // Two transactions of several replace pages before those of the first are free.
    assert!(file_bytes[2] < file_bytes[0] * 7 / 4, "{file_bytes:?}");
}

/// Opens a store in a directory of its own.
fn new_store() -> (TempDir, Store) {
    new_store_with(&Options::default())
}

fn new_store_with(options: &Options) -> (TempDir, Store) {
    let directory = tempfile::tempdir().unwrap();
    let store = options.open(directory.path()).unwrap();
    (directory, store)
}

fn db(store: &Store) -> Database {
    store.default_database()
}
