//! A store on a simulated disk: after a power cut at any operation it has a prefix of what was written, with
//! everything that was acknowledged; and an operation that fails loses nothing that was acknowledged.
//!
//! `THRONG_STORE_SIM` is the number of seeds. With it each operation of a run is cut and fails; without it every
//! fifth one of one seed.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use throng_store::sim::{Disk, Steps, Written};
use throng_store::{
    Batch, Change, CommitFailure, FeedError, FeedPosition, Options, Snapshot, Store, Submission,
    WriteError,
};

use crate::{db, number_or};

type State = BTreeMap<Vec<u8>, Vec<u8>>;

/// A write under way: a ticket or a submission.
type Write = Pin<Box<dyn Future<Output = Outcome>>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Stored,
    NotStored,
    Unknown,
}

fn state_of(store: &Store, snapshot: &Snapshot) -> State {
    let entry = |(key, value): (&[u8], &[u8])| (key.to_vec(), value.to_vec());
    db(store).range(snapshot, ..).map(|found| entry(found.unwrap())).collect()
}

fn poll<T>(future: impl Future<Output = T> + Unpin) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => Some(outcome),
        Poll::Pending => None,
    }
}

fn options(random: &mut fastrand::Rng) -> Options {
    // A checkpoint follows every few groups, and has several transactions.
    let options = Store::options().map_bytes(16 << 20).checkpoint_bytes(6 << 10);
    options.keep_log(random.u8(..4) == 0)
}

/// Makes a batch, and applies it to the state.
fn batch(store: &Store, state: &mut State, random: &mut fastrand::Rng) -> Batch {
    let mut batch = Batch::new();
    for _ in 0..random.usize(1..6) {
        let key = format!("key {}", random.u8(..60)).into_bytes();
        if random.u8(..4) == 0 {
            state.remove(&key);
            batch = batch.delete(&db(store), &key);
        } else {
            let length = if random.u8(..40) == 0 { 70_000 } else { random.usize(..400) };
            let value = vec![random.u8(..); length];
            batch = batch.put(&db(store), &key, &value);
            state.insert(key, value);
        }
    }
    batch
}

fn write(store: &Store, mut batch: Batch, is_submitted: bool) -> Write {
    if is_submitted {
        let Ok(number) = store.submit(&mut batch, Submission::START) else {
            return Box::pin(async { Outcome::NotStored });
        };
        let settled = store.settled(number);
        return Box::pin(async {
            match settled.await {
                Ok(()) => Outcome::Stored,
                Err(CommitFailure::NotWritten(_)) => Outcome::NotStored,
                Err(CommitFailure::Unknown(_)) => Outcome::Unknown,
            }
        });
    }
    let ticket = store.write(batch);
    Box::pin(async {
        match ticket.await {
            Ok(()) => Outcome::Stored,
            Err(WriteError::Unknown { .. }) => Outcome::Unknown,
            Err(_) => Outcome::NotStored,
        }
    })
}

/// A copy of a store's state, which follows its feed.
#[derive(Default)]
struct Replica {
    position: Option<FeedPosition>,
    state: State,
    groups: u64,
    losses: u64,
}

impl Replica {
    /// Reads what the feed has; returns whether that is all that is on the disk.
    fn follow(&mut self, store: &Store) -> bool {
        loop {
            match self.try_follow(store) {
                Ok(()) => return true,
                Err(FeedError::Lost { .. }) => {}
                Err(error) => {
                    assert!(matches!(error, FeedError::Io(_)), "{error}");
                    return false;
                }
            }
            // As a program does: the position first, and then everything.
            self.losses += 1;
            let Ok(feed) = store.feed(None) else { return false };
            self.position = Some(feed.position());
            let Ok(snapshot) = store.snapshot() else { return false };
            self.state = state_of(store, &snapshot);
        }
    }

    fn try_follow(&mut self, store: &Store) -> Result<(), FeedError> {
        let lost = || FeedError::Lost { reason: "nothing was read".into() };
        let mut feed = store.feed(Some(self.position.ok_or_else(lost)?))?;
        while let Some(group) = feed.next_group()? {
            for change in group.changes(&db(store)) {
                match change.unwrap() {
                    (key, Change::Put(value)) => _ = self.state.insert(key.into(), value.into()),
                    (key, Change::Delete) => _ = self.state.remove(key),
                    other => panic!("{other:?}"),
                }
            }
            self.groups += 1;
            self.position = Some(feed.position());
        }
        Ok(())
    }
}

/// A run up to a power cut, or to its end.
struct Run {
    disk: Disk,
    options: Options,
    /// The state after each batch that was given to the store.
    states: Vec<State>,
    acknowledged: usize,
    replica: Replica,
    events: Vec<String>,
}

/// Writes batches on a disk, whose power fails at an operation.
fn run(seed: u64, cut_at: Option<u64>) -> Run {
    let mut random = fastrand::Rng::with_seed(seed);
    let options = options(&mut random);
    let disk = Disk::new(seed ^ cut_at.unwrap_or(0) << 32).unwrap();
    let events = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    disk.on_event({
        let events = events.clone();
        move |event| events.lock().unwrap().push(event)
    });
    if let Some(operation) = cut_at {
        disk.cut_at(operation);
    }
    let (mut states, mut acknowledged) = (vec![State::new()], 0);
    let (mut state, mut replica) = (State::new(), Replica::default());
    // The store is closed and opened again in between.
    for _ in 0..2 {
        // The power may have failed while the store was closed.
        if disk.is_down() {
            break;
        }
        let Ok(store) = disk.open(&options) else { break };
        let steps = Steps::of(&store);
        let mut writes: Vec<Write> = Vec::new();
        let first = states.len();
        for _ in 0..24 {
            let batch = batch(&store, &mut state, &mut random);
            writes.push(write(&store, batch, random.bool()));
            states.push(state.clone());
            if random.u8(..3) > 0 {
                steps.write();
            }
            if random.u8(..5) == 0 {
                steps.checkpoint();
            }
            if random.u8(..3) == 0 {
                replica.follow(&store);
            }
            if disk.is_down() {
                break;
            }
        }
        while !disk.is_down() && steps.write() != Written::Nothing {}
        for (number, write) in writes.iter_mut().enumerate() {
            match poll(write) {
                Some(Outcome::Stored) => acknowledged = first + number,
                outcome => assert!(disk.is_down(), "{outcome:?} while the disk works"),
            }
        }
        if random.bool() {
            // As when the process is killed.
            steps.abandon();
        }
    }
    let events = std::mem::take(&mut *events.lock().unwrap());
    Run { disk, options, states, acknowledged, replica, events }
}

/// Opens the store after the power cut, checks it, and works with it.
fn check(run: Run, seed: u64) {
    let Run { disk, options, states, acknowledged, mut replica, events } = run;
    let mut random = fastrand::Rng::with_seed(seed);
    disk.cut_power().unwrap();
    let end = || events.iter().rev().take(30).rev().cloned().collect::<Vec<_>>().join("\n");
    if random.u8(..3) == 0 {
        // The power fails once more, during the recovery.
        disk.cut_at(random.u64(1..12));
        let _ = disk.open(&options.clone().check(true));
        disk.cut_power().unwrap();
    }
    let store = disk.open(&options.clone().check(true));
    let store = store.unwrap_or_else(|error| panic!("{error}\n{}", end()));
    store.verify().unwrap();
    let found = state_of(&store, &store.snapshot().unwrap());
    let held = states.iter().rposition(|state| *state == found);
    let is_prefix = states[acknowledged..].contains(&found);
    assert!(is_prefix, "the state is that after {held:?}, {acknowledged} acknowledged\n{}", end());
    // What the feed has shown is kept, and the rest follows.
    let shown = &replica.state;
    let is_kept = states[..=held.unwrap_or(0)].contains(shown);
    assert!(is_kept, "the feed has shown what is lost\n{}", end());
    assert!(replica.follow(&store));
    assert!(replica.state == found, "the feed shows another state\n{}", end());
    let steps = Steps::of(&store);
    let ticket = write(&store, Batch::new().put(&db(&store), b"later", b"value"), false);
    while steps.write() != Written::Nothing {}
    assert_eq!(poll(ticket), Some(Outcome::Stored));
    disk.cut_power().unwrap();
    let store = disk.open(&options).unwrap();
    assert_eq!(db(&store).get(&store.snapshot().unwrap(), b"later").unwrap(), Some(&b"value"[..]));
}

#[test]
fn a_simulated_power_cut_at_each_operation_leaves_a_prefix_with_all_that_is_acknowledged() {
    let (seeds, stride) = extent();
    let mut cuts = 0;
    for seed in 0..seeds {
        let whole = run(seed, None);
        let operations = whole.disk.operations();
        let again = run(seed, None);
        assert_eq!(whole.events, again.events, "seed {seed} does not repeat");
        let Replica { groups, losses, .. } = whole.replica;
        assert!(groups > 5 && losses < 9, "{groups} groups, {losses} losses");
        check(whole, seed);
        for operation in (1..=operations).step_by(stride) {
            let run = run(seed, Some(operation));
            // The last operations are those of a store that closes.
            assert!(run.disk.is_down() || operation + 60 > operations, "{operation}");
            check(run, seed ^ operation);
            cuts += 1;
        }
    }
    println!("{cuts} power cuts");
    assert!(cuts > 100 * seeds / stride as u64, "{cuts} power cuts");
}

/// Returns the number of seeds, and one more than the number of operations that are left out between two.
fn extent() -> (u64, usize) {
    match number_or("THRONG_STORE_SIM", 0) {
        0 => (1, 5),
        seeds => (seeds, 1),
    }
}

/// Writes batches on a disk with operations that fail, and compares the store after each with what it has
/// acknowledged. Now and then cuts the power, or closes the store. Returns the numbers of writes that were not
/// stored, and whose outcome was unknown.
fn run_with_failures(seed: u64, operation: u64, per_mille: u32) -> [u64; 2] {
    let mut random = fastrand::Rng::with_seed(seed);
    let options = options(&mut random);
    let disk = Disk::new(seed ^ operation << 32).unwrap();
    disk.fail_at(operation);
    let open = || {
        disk.open(&options).or_else(|_| {
            disk.heal();
            disk.open(&options)
        })
    };
    let open = || open().unwrap();
    let (mut store, mut state, mut failures) = (open(), State::new(), [0; 2]);
    let mut replica = Replica::default();
    for _ in 0..24 {
        let steps = Steps::of(&store);
        let mut next = state.clone();
        let batch = batch(&store, &mut next, &mut random);
        let mut write = write(&store, batch, random.bool());
        if disk.operations() >= operation {
            disk.fail_randomly(per_mille);
        }
        let outcome = (0..10).find_map(|_| {
            steps.write();
            poll(&mut write)
        });
        (0..1000).find(|_| store.is_writable() || steps.write() == Written::Closed).unwrap();
        disk.fail_randomly(0);
        let found = state_of(&store, &store.snapshot().unwrap());
        match outcome.unwrap() {
            Outcome::Stored => state = next,
            Outcome::NotStored => failures[0] += 1,
            Outcome::Unknown => {
                failures[1] += 1;
                assert!(found == state || found == next, "it is neither there nor not");
                state.clone_from(&found);
            }
        }
        assert!(found == state, "the store shows another state than it has acknowledged");
        if replica.follow(&store) {
            assert!(replica.state == state, "the feed shows another state than the store");
        }
        if random.u8(..5) == 0 {
            steps.checkpoint();
        }
        match random.u8(..12) {
            0 => {
                disk.cut_power().unwrap();
                store = open();
            }
            1 => {
                if random.bool() {
                    // As when the process is killed.
                    steps.abandon();
                }
                drop(store);
                store = open();
            }
            _ => {}
        }
        assert!(
            state_of(&store, &store.snapshot().unwrap()) == state,
            "an opening changed the state"
        );
    }
    failures
}

#[test]
fn a_simulated_failure_of_each_operation_loses_and_revives_nothing() {
    let (seeds, stride) = extent();
    let mut failures = [0; 2];
    for seed in 0..seeds {
        // Some more than there are in such a run.
        for operation in (1..=200).step_by(stride) {
            // One failure, or many from some operation on.
            for per_mille in [0, 250] {
                let [not_stored, unknown] = run_with_failures(seed, operation, per_mille);
                failures[0] += not_stored;
                failures[1] += unknown;
            }
        }
    }
    println!("{} writes not stored, {} with unknown outcome", failures[0], failures[1]);
    assert!(failures[0] > 0 && failures[1] > 0, "{failures:?}");
}
