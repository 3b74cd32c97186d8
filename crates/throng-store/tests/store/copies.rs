//! Copies of a shared log: what is in flight, published, lost and applied.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use throng_store::{
    AppliedRecord, ApplyError, Batch, CommitFailure, LoadFailure, NewRecord, OpenError, Options,
    ReadError, Sequencer, Settlement, Stamp, Store, Submission, SubmitError, Ticket, WriteError,
};

use crate::{copy_files, db, entries, number_or};

/// A shared log, and what the store under test has in flight to it.
#[derive(Debug, Default)]
struct Shared(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    log: Vec<Record>,
    in_flight: VecDeque<Record>,
    /// State of the log after what is in flight.
    ahead: Option<Stamp>,
    begun: u64,
    /// Whether records are refused although there is room, and number of those that were.
    refuses: bool,
    refused: u64,
    /// Whether the node has left.
    is_over: bool,
    window: usize,
    bytes_max: usize,
}

#[derive(Clone, Debug)]
struct Record {
    number: u64,
    first: u64,
    count: u32,
    stamp: Stamp,
    changes: Vec<u8>,
}

fn stamp_of(number: u64) -> Stamp {
    let mut stamp = Stamp::START;
    stamp.0[..8].copy_from_slice(&number.to_le_bytes());
    stamp
}

impl Shared {
    fn new(window: usize) -> Arc<Shared> {
        let state = State { window, bytes_max: 1 << 20, ..State::default() };
        Arc::new(Shared(Mutex::new(state)))
    }

    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.0.lock().unwrap())
    }

    /// Waits until so many records are in flight.
    fn in_flight(&self, records: usize) {
        let since = Instant::now();
        while self.with(|state| state.in_flight.len()) < records {
            assert!(since.elapsed() < Duration::from_secs(20), "{records} records are not begun");
            thread::sleep(Duration::from_micros(100));
        }
    }

    /// Makes the first record in flight a part of the log, and tells the store.
    fn publish(&self, store: &Store) {
        let record = self.with(|state| {
            let record = state.in_flight.pop_front().unwrap();
            state.log.push(record.clone());
            record
        });
        store.settle(record.number, Settlement::Published(record.stamp));
    }

    /// Publishes all that is begun while `f` runs.
    fn publishing<T>(&self, store: &Store, f: impl FnOnce() -> T) -> T {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    match self.with(|state| state.in_flight.is_empty()) {
                        true => thread::sleep(Duration::from_micros(50)),
                        false => self.publish(store),
                    }
                }
            });
            let result = f();
            is_over.store(true, Ordering::Relaxed);
            result
        })
    }

    /// Drops all that is in flight, and tells the store.
    fn give_up(&self, store: &Store, settlement: Settlement) {
        let lost = self.with(|state| {
            state.ahead = None;
            std::mem::take(&mut state.in_flight)
        });
        lost.iter().for_each(|record| store.settle(record.number, settlement));
    }

    /// Applies the records that a copy lacks, the last of which it has by the stamp.
    fn catch_up(&self, store: &Store) {
        let (_, stamp) = store.stamp().unwrap();
        let log = self.with(|state| state.log.clone());
        let known = log.iter().position(|record| record.stamp == stamp).map_or(0, |at| at + 1);
        log[known..].iter().for_each(|record| apply(store, record).unwrap());
    }
}

impl Sequencer for Shared {
    fn has_room(&self, after: &Stamp) -> bool {
        self.with(|state| {
            let is_ahead = state.ahead.is_none_or(|ahead| ahead == *after);
            is_ahead && !state.is_over && state.in_flight.len() < state.window
        })
    }

    fn begin(&self, record: &NewRecord<'_>) -> Option<(u64, Stamp)> {
        let has_room = self.has_room(record.after);
        self.with(|state| {
            if !has_room || state.refuses {
                state.refused += 1;
                return None;
            }
            state.begun += 1;
            let (number, stamp) = (state.begun, stamp_of(state.begun));
            let NewRecord { first, count, changes, .. } = *record;
            let changes = changes.concat();
            state.in_flight.push_back(Record { number, first, count, stamp, changes });
            state.ahead = Some(stamp);
            Some((number, stamp))
        })
    }

    fn bytes_max(&self) -> usize {
        self.with(|state| state.bytes_max)
    }
}

fn apply(store: &Store, record: &Record) -> Result<(), ApplyError> {
    let (done, outcome) = mpsc::channel();
    let Record { first, count, stamp, changes, .. } = record;
    let record = AppliedRecord { first: *first, count: *count, stamp: *stamp, changes };
    store.apply(&record, move |outcome| done.send(outcome).unwrap());
    outcome.recv().unwrap()
}

fn options(shared: &Arc<Shared>) -> Options {
    Store::options().map_bytes(64 << 20).sequencer(shared.clone())
}

/// Opens a copy that leads.
fn leader(shared: &Arc<Shared>, directory: &Path) -> Store {
    let store = options(shared).open(directory).unwrap();
    lead(&store, true);
    store
}

/// Makes a copy lead or not, and waits until it does.
fn lead(store: &Store, leads: bool) {
    let (done, is_done) = mpsc::channel();
    store.lead(leads, move || done.send(()).unwrap());
    is_done.recv().unwrap();
    assert_eq!(store.is_writable(), leads);
}

fn put(store: &Store, key: &str, value: &str) -> Ticket {
    store.write(Batch::new().put(&db(store), key.as_bytes(), value.as_bytes()))
}

fn shown(store: &Store) -> String {
    let shown = entries(store).into_iter().map(|(key, value)| {
        let value = match <[u8; 8]>::try_from(&*value) {
            Ok(number) => i64::from_le_bytes(number).to_string(),
            Err(_) => String::from_utf8(value).unwrap(),
        };
        format!("{}={value}", String::from_utf8(key).unwrap())
    });
    shown.collect::<Vec<_>>().join(" ")
}

#[test]
fn a_group_is_visible_and_acknowledged_once_it_is_published() {
    let (shared, directory) = (Shared::new(4), tempfile::tempdir().unwrap());
    let store = leader(&shared, directory.path());
    let first = put(&store, "a", "1");
    shared.in_flight(1);
    let second = put(&store, "b", "2");
    shared.in_flight(2);
    assert_eq!(shown(&store), "");
    shared.publish(&store);
    first.wait().unwrap();
    assert_eq!(shown(&store), "a=1");
    shared.publish(&store);
    second.wait().unwrap();
    assert_eq!(shown(&store), "a=1 b=2");
    assert_eq!(store.stamp().unwrap(), (2, stamp_of(2)));
    assert_eq!(store.stat().unwrap().commits, 2);
}

#[test]
fn a_group_is_planned_on_those_in_flight() {
    let (shared, directory) = (Shared::new(8), tempfile::tempdir().unwrap());
    let store = leader(&shared, directory.path());
    let db = db(&store);
    let add = |difference| store.write(Batch::new().add(&db, b"sum", difference));
    let mut tickets = vec![add(1)];
    shared.in_flight(1);
    tickets.push(add(10));
    shared.in_flight(2);
    let inserted = store.write(Batch::new().put_new(&db, b"sum", b"new"));
    let read = {
        let db = db.clone();
        store.update(move |update| {
            let sum = update.get(&db, b"sum")?.map(<[u8]>::to_vec);
            update.put(&db, b"seen", &sum.unwrap_or_default());
            Ok::<_, ReadError>(())
        })
    };
    shared.in_flight(3);
    for _ in 0..3 {
        shared.publish(&store);
    }
    tickets.into_iter().for_each(|ticket| ticket.wait().unwrap());
    read.wait().unwrap();
    assert!(matches!(inserted.wait(), Err(WriteError::KeyExists(_))));
    assert_eq!(shown(&store), "seen=11 sum=11");
    // And on those that are published while later ones are in flight.
    shared.publishing(&store, || {
        let tickets: Vec<_> = (0..2_000).map(|_| add(1)).collect();
        tickets.into_iter().for_each(|ticket| ticket.wait().unwrap());
    });
    assert_eq!(shown(&store), "seen=11 sum=2011");
}

#[test]
fn what_is_lost_is_handed_back_with_all_behind_it() {
    let (shared, directory) = (Shared::new(2), tempfile::tempdir().unwrap());
    let store = leader(&shared, directory.path());
    let db = db(&store);
    let add = |difference| Batch::new().add(&db, b"sum", difference);
    let kept = store.write(add(1));
    shared.in_flight(1);
    shared.publish(&store);
    kept.wait().unwrap();
    let lost = store.write(add(10));
    shared.in_flight(1);
    let last = store.submit(&mut add(100), Submission::START).unwrap();
    shared.in_flight(2);
    // The window is full, so these are queued.
    let behind = store.submit(&mut add(1_000), last).unwrap();
    let ticketed = store.write(add(10_000));
    shared.give_up(&store, Settlement::Lost);
    assert!(matches!(lost.wait(), Err(WriteError::Failed { batch, .. }) if batch.len() == 1));
    for lost in [last, behind] {
        assert!(matches!(store.settled(lost).wait(), Err(CommitFailure::NotWritten(_))));
    }
    assert!(matches!(store.submit(&mut add(1), behind), Err(SubmitError::Lost(_))));
    // A batch with a ticket builds on nothing.
    shared.in_flight(1);
    shared.publish(&store);
    ticketed.wait().unwrap();
    assert_eq!(shown(&store), "sum=10001");

    let unknown = store.write(add(5));
    shared.in_flight(1);
    shared.give_up(&store, Settlement::Unknown);
    assert!(matches!(unknown.wait(), Err(WriteError::Unknown { .. })));
    assert_eq!(shown(&store), "sum=10001");
}

#[test]
fn what_was_taken_and_could_not_be_begun_is_lost_with_what_is_before_it() {
    let (shared, directory) = (Shared::new(4), tempfile::tempdir().unwrap());
    let store = leader(&shared, directory.path());
    let add = |difference| Batch::new().add(&db(&store), b"sum", difference);
    let first = store.submit(&mut add(1), Submission::START).unwrap();
    shared.in_flight(1);
    shared.with(|state| state.refuses = true);
    let second = store.submit(&mut add(10), first).unwrap();
    let ticketed = store.write(add(100));
    let since = Instant::now();
    while shared.with(|state| state.refused == 0) {
        assert!(since.elapsed() < Duration::from_secs(20), "nothing was refused");
        thread::sleep(Duration::from_micros(100));
    }
    shared.with(|state| state.refuses = false);
    shared.give_up(&store, Settlement::Lost);
    for lost in [first, second] {
        assert!(matches!(store.settled(lost).wait(), Err(CommitFailure::NotWritten(_))));
    }
    shared.publishing(&store, || ticketed.wait()).unwrap();
    assert_eq!(shown(&store), "sum=100");
}

#[test]
fn a_copy_has_what_the_log_has_and_goes_on_after_its_last_checkpoint() {
    let (shared, directory) = (Shared::new(4), tempfile::tempdir().unwrap());
    let path = |name: &str| directory.path().join(name);
    let store = leader(&shared, &path("leader"));
    for round in 0..50 {
        let ticket = put(&store, &format!("{round:02}"), "value");
        shared.in_flight(1);
        shared.publish(&store);
        ticket.wait().unwrap();
    }
    let other = Shared::new(4);
    let standby = options(&other).open(path("standby")).unwrap();
    shared.catch_up(&standby);
    assert_eq!((entries(&standby), standby.stamp()), (entries(&store), store.stamp()));
    // Its checkpoint has the stamp; a crash before the next one goes back to that.
    standby.backup(path("backup")).unwrap();
    let at = standby.stamp();
    let ticket = put(&store, "later", "value");
    shared.in_flight(1);
    shared.publish(&store);
    ticket.wait().unwrap();
    shared.catch_up(&standby);
    assert_ne!(standby.stamp(), at);
    copy_at_rest(&path("standby"), &path("crashed"));
    for name in ["crashed", "backup"] {
        let again = options(&other).open(path(name)).unwrap();
        assert_eq!(again.stamp(), at, "{name}");
        shared.catch_up(&again);
        assert_eq!((entries(&again), again.stamp()), (entries(&store), store.stamp()), "{name}");
    }
    // Closed in order, it has all.
    let stamp = standby.stamp();
    drop(standby);
    assert_eq!(options(&other).open(path("standby")).unwrap().stamp(), stamp);
}

#[test]
fn records_that_do_not_fit_are_refused_and_change_nothing() {
    let (shared, directory) = (Shared::new(1), tempfile::tempdir().unwrap());
    let path = |name: &str| directory.path().join(name);
    let store = leader(&shared, &path("leader"));
    let named = store.database::<throng_store::Str, throng_store::Str>("named").unwrap();
    let ticket = store.write(Batch::new().put(&named, "a", "b").put(&db(&store), b"c", b"d"));
    shared.in_flight(1);
    shared.publish(&store);
    ticket.wait().unwrap();
    let good = shared.with(|state| state.log[0].clone());

    let standby = options(&Shared::new(1)).open(path("standby")).unwrap();
    // It has no such database.
    assert!(matches!(apply(&standby, &good), Err(ApplyError::Unreadable)));
    standby.database::<throng_store::Str, throng_store::Str>("named").unwrap();
    for (first, count, cut) in [(2, 2, 0), (0, 2, 0), (1, 1, 0), (1, 3, 0), (1, 2, 1)] {
        let changes = good.changes[cut..].to_vec();
        let error = apply(&standby, &Record { first, count, changes, ..good.clone() }).unwrap_err();
        let is_misplaced =
            matches!(error, ApplyError::Misplaced { found, last: 0 } if found == first);
        assert!(is_misplaced == (first != 1), "{first} {count} {cut}: {error}");
    }
    assert_eq!((shown(&standby), standby.stamp().unwrap().1), (String::new(), Stamp::START));
    // A record of the log's own purposes has no changes. Its stamp would pass over a record that could not be applied.
    let own = |number| {
        let (stamp, changes) = (stamp_of(number), Vec::new());
        apply(&standby, &Record { number: 0, first: 0, count: 0, stamp, changes })
    };
    assert!(matches!(own(77), Err(ApplyError::Misplaced { .. })));
    apply(&standby, &good).unwrap();
    own(78).unwrap();
    assert_eq!(standby.stamp().unwrap(), (2, stamp_of(78)));
    assert!(matches!(apply(&standby, &good), Err(ApplyError::Misplaced { found: 1, last: 2 })));
    own(79).unwrap();
    assert_eq!(shown(&standby), "c=d");
    standby.close();
    assert!(matches!(apply(&standby, &good), Err(ApplyError::Closed)));
}

#[test]
fn a_standby_refuses_writes_and_hands_back_what_was_queued() {
    let (shared, directory) = (Shared::new(1), tempfile::tempdir().unwrap());
    let store = options(&shared).open(directory.path()).unwrap();
    let refused = |ticket: Ticket| match ticket.wait() {
        Err(WriteError::Standby(batch)) => batch.len(),
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(put(&store, "a", "1")), 1);
    let mut batch = Batch::new().put(&db(&store), b"a", b"1");
    assert!(matches!(store.submit(&mut batch, Submission::START), Err(SubmitError::Standby)));
    assert_eq!(batch.len(), 1);
    assert!(!store.is_writable());

    lead(&store, true);
    let in_flight = put(&store, "a", "1");
    shared.in_flight(1);
    let queued = put(&store, "b", "2");
    let submitted = store.submit(&mut batch, Submission::START).unwrap();
    shared.publish(&store);
    in_flight.wait().unwrap();
    shared.in_flight(1);
    shared.give_up(&store, Settlement::Lost);
    lead(&store, false);
    assert!(queued.wait().unwrap_err().into_batch().is_some());
    assert!(matches!(store.settled(submitted).wait(), Err(CommitFailure::NotWritten(_))));
    assert_eq!(refused(put(&store, "c", "3")), 1);
    assert_eq!(shown(&store), "a=1");
}

#[test]
fn a_closed_copy_leaves_what_is_in_flight_unknown() {
    let (shared, directory) = (Shared::new(1), tempfile::tempdir().unwrap());
    let store = leader(&shared, directory.path());
    let (in_flight, queued) = (put(&store, "a", "1"), {
        shared.in_flight(1);
        put(&store, "b", "2")
    });
    store.close();
    assert!(matches!(in_flight.wait(), Err(WriteError::Unknown { .. })));
    assert!(matches!(queued.wait(), Err(WriteError::Closed(_))));
}

#[test]
fn a_batch_beyond_the_records_of_the_log_is_refused_alone() {
    let (shared, directory) = (Shared::new(8), tempfile::tempdir().unwrap());
    shared.with(|state| state.bytes_max = 1_000);
    let store = leader(&shared, directory.path());
    let first = put(&store, "first", "");
    shared.in_flight(1);
    let put = |number: u32| {
        let bytes = if number == 4 { 1_100 } else { 300 };
        put(&store, &number.to_string(), &"x".repeat(bytes))
    };
    // They come while the writer waits for company, so several are in a group.
    let tickets: Vec<_> = (0..9).map(put).collect();
    for (number, ticket) in [first].into_iter().chain(tickets).enumerate() {
        let outcome = shared.publishing(&store, || ticket.wait());
        match outcome {
            Err(WriteError::Full { batch, .. }) if number == 5 => assert_eq!(batch.len(), 1),
            outcome => assert!(outcome.is_ok() && number != 5, "{number}: {outcome:?}"),
        }
    }
    assert_eq!(entries(&store).len(), 9);
    assert!(shared.with(|state| state.log.iter().all(|record| record.changes.len() <= 1_000)));
}

#[test]
fn submissions_in_flight_are_not_lost_with_one_that_is_too_large() {
    let (shared, directory) = (Shared::new(4), tempfile::tempdir().unwrap());
    shared.with(|state| state.bytes_max = 1_000);
    let store = leader(&shared, directory.path());
    let put = |bytes: usize| Batch::new().put(&db(&store), b"key", &vec![b'x'; bytes]);
    let first = store.submit(&mut put(3), Submission::START).unwrap();
    shared.in_flight(1);
    let too_large = store.submit(&mut put(2_000), first).unwrap();
    thread::sleep(Duration::from_millis(50));
    shared.publishing(&store, || {
        store.settled(first).wait().unwrap();
        let lost = store.settled(too_large).wait();
        assert!(matches!(lost, Err(CommitFailure::NotWritten(_))), "{lost:?}");
    });
    assert_eq!(shown(&store), "key=xxx");
    assert_eq!(store.outcomes().settled_through(), too_large);
}

#[test]
fn a_copy_and_a_store_with_a_log_of_its_own_are_not_taken_for_each_other() {
    let (shared, directory) = (Shared::new(1), tempfile::tempdir().unwrap());
    let path = |name: &str| directory.path().join(name);
    let own = Store::options().map_bytes(64 << 20).open(path("own")).unwrap();
    put(&own, "a", "1").wait().unwrap();
    drop(own);
    let refused = options(&shared).open(path("own"));
    assert!(matches!(refused, Err(OpenError::Single { .. })), "{refused:?}");

    let store = leader(&shared, &path("copy"));
    let ticket = put(&store, "a", "1");
    shared.in_flight(1);
    shared.publish(&store);
    ticket.wait().unwrap();
    let loaded = db(&store).load([(&b"k"[..], &b"v"[..])]);
    assert!(matches!(loaded.unwrap_err().failure, LoadFailure::Shared));
    drop(store);
    let refused = Store::open(path("copy"));
    assert!(matches!(refused, Err(OpenError::Shared { .. })), "{refused:?}");
    let read = Store::options().read_only(true).open(path("copy")).unwrap();
    assert_eq!(shown(&read), "a=1");
    assert!(read.stamp().is_none());
    drop(read);
    assert_eq!(Store::check(path("copy")).unwrap().entries, 1);
}

/// Copies the files of a store as a crash leaves them: not while a checkpoint writes them.
fn copy_at_rest(from: &Path, to: &Path) {
    let bytes = || fs::read(from.join("data.mdb")).unwrap();
    loop {
        let before = bytes();
        copy_files(from, to);
        if bytes() == before {
            return;
        }
    }
}

/// A key, and the difference to add to it.
type Addition = (u8, i64);

fn add(sums: &mut BTreeMap<u8, i64>, additions: Vec<Addition>) {
    for (key, difference) in additions {
        *sums.entry(key).or_default() += difference;
    }
}

/// Nodes take turns as the leader of a log that loses what is in flight at times; they crash, and go on from their last
/// checkpoint. The log, folded by its definition, is what each has in the end.
fn copies_agree(seed: u64) {
    let mut random = Rng::with_seed(seed);
    let directory = crate::directory_in_memory();
    let shared = Shared::new(random.usize(1..5));
    let path = |node: usize, life: usize| directory.path().join(format!("{node}-{life}"));
    let open =
        |node, life| options(&shared).checkpoint_bytes(4 << 10).open(path(node, life)).unwrap();
    let mut nodes: Vec<(Store, usize)> = (0..3).map(|node| (open(node, 0), 0)).collect();
    let mut acknowledged: BTreeMap<u8, i64> = BTreeMap::new();
    for _ in 0..random.usize(3..8) {
        let leading = random.usize(..3);
        shared.catch_up(&nodes[leading].0);
        let store = nodes[leading].0.clone();
        lead(&store, true);
        let mut tickets: Vec<(Vec<Addition>, Ticket)> = Vec::new();
        for _ in 0..random.usize(1..60) {
            let additions: Vec<Addition> =
                (0..random.usize(1..4)).map(|_| (random.u8(..9), random.i64(1..100))).collect();
            let batch = additions.iter().fold(Batch::new(), |batch, (key, difference)| {
                batch.add(&db(&store), &[b'k', *key], *difference)
            });
            tickets.push((additions, store.write(batch)));
            if random.u8(..3) == 0 && shared.with(|state| !state.in_flight.is_empty()) {
                shared.publish(&store);
            }
        }
        if random.bool() {
            for (additions, ticket) in tickets.drain(..) {
                shared.publishing(&store, || ticket.wait()).unwrap();
                add(&mut acknowledged, additions);
            }
        }
        shared.with(|state| state.is_over = true);
        shared.give_up(&store, Settlement::Lost);
        lead(&store, false);
        shared.with(|state| state.is_over = false);
        for (additions, ticket) in tickets {
            match ticket.wait() {
                Ok(()) => add(&mut acknowledged, additions),
                Err(error) => assert!(error.into_batch().is_some(), "seed {seed}: none is unknown"),
            }
        }
        drop(store);
        let crashing = random.usize(..3);
        let (_, life) = nodes[crashing];
        copy_at_rest(&path(crashing, life), &path(crashing, life + 1));
        nodes[crashing] = (open(crashing, life + 1), life + 1);
        let (late, _) = &nodes[random.usize(..3)];
        shared.catch_up(late);
    }
    for (node, (store, _)) in nodes.iter().enumerate() {
        shared.catch_up(store);
        let sums: BTreeMap<u8, i64> = entries(store)
            .into_iter()
            .map(|(key, sum)| (key[1], i64::from_le_bytes(sum.try_into().unwrap())))
            .collect();
        assert_eq!(sums, acknowledged, "seed {seed}: node {node}");
    }
}

#[test]
fn copies_agree_whoever_leads_loses_and_crashes() {
    for seed in 0..number_or("THRONG_STORE_COPIES", 10) {
        copies_agree(seed);
    }
}
