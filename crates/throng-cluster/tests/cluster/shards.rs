//! Copies of a shard on three nodes: claims, handovers, failures and crashes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use throng_cluster::{
    Incarnation, MemoryLog, Position, Role, ShardLog, ShardOptions, ShardReplica, Stop, Tail,
};
use throng_store::{Batch, Store, Str, U64, WriteError};
use tokio::time::{sleep, timeout};

use crate::faults::FaultyLog;

const LONG: Duration = Duration::from_secs(60);

fn options() -> ShardOptions {
    ShardOptions {
        store: Store::options().map_bytes(16 << 20).checkpoint_bytes(4 << 10),
        append_within: Duration::from_millis(30),
        poll_every: Duration::from_millis(10),
        retry_after: Duration::from_millis(2),
        ..ShardOptions::default()
    }
}

fn open(log: impl ShardLog, me: u128, directory: &Path) -> ShardReplica {
    ShardReplica::open(Arc::new(log), Incarnation(me), directory, options()).unwrap()
}

fn is_owner(role: &Role) -> bool {
    matches!(role, Role::Owner { .. })
}

async fn becomes(shard: &ShardReplica, is_so: impl FnMut(&Role) -> bool) {
    let mut role = shard.role();
    let became = timeout(LONG, role.wait_for(is_so)).await;
    assert!(became.is_ok(), "after a minute: {:?}", shard.status());
}

/// Waits until a copy shows all that the log has.
async fn catches_up(shard: &ShardReplica, log: &MemoryLog) {
    let end = log.end().await.unwrap();
    let caught_up = timeout(LONG, async {
        let tail =
            |shard: &ShardReplica| shard.store().stamp().map(|stamp| Tail::from_stamp(&stamp.1));
        while shard.status().known < end
            || tail(shard).map(|(_, tail)| tail) != Some(shard.status().tail)
        {
            sleep(Duration::from_millis(1)).await;
        }
    });
    assert!(caught_up.await.is_ok(), "after a minute: {:?}", shard.status());
}

fn put(shard: &ShardReplica, key: &str, value: u64) -> throng_store::Ticket {
    shard.store().write(Batch::new().put(
        &shard.store().default_database::<Str, U64>(),
        key,
        &value,
    ))
}

fn shown(store: &Store) -> BTreeMap<String, u64> {
    let snapshot = store.snapshot().unwrap();
    let db = store.default_database::<Str, U64>();
    db.range(&snapshot, ..)
        .map(|entry| entry.map(|(key, value)| (key.into(), value)).unwrap())
        .collect()
}

#[tokio::test]
async fn an_owner_hands_over_and_the_next_one_has_all() {
    let (log, directory) = (MemoryLog::new(), tempfile::tempdir().unwrap());
    let [one, other] =
        [1, 2].map(|me| open(log.clone(), me, &directory.path().join(me.to_string())));
    one.claim();
    becomes(&one, is_owner).await;
    let tickets: Vec<_> = (0..100).map(|number| put(&one, &number.to_string(), number)).collect();
    for ticket in tickets {
        ticket.await.unwrap();
    }
    assert!(matches!(put(&other, "a", 1).await, Err(WriteError::Standby(_))));
    one.hand_over(Incarnation(2));
    becomes(&one, |role| *role == Role::Standby).await;
    assert!(matches!(put(&one, "a", 1).await, Err(WriteError::Standby(_))));
    other.claim();
    becomes(&other, is_owner).await;
    put(&other, "later", 1).await.unwrap();
    catches_up(&one, &log).await;
    assert_eq!((shown(one.store()).len(), shown(one.store())), (101, shown(other.store())));
    let counters = other.status().counters;
    assert_eq!((counters.refused, counters.lost, counters.unknown), (0, 0, 0));
}

#[tokio::test]
async fn a_shard_that_is_taken_over_leaves_its_former_owner_as_a_standby() {
    let (log, directory) = (MemoryLog::new(), tempfile::tempdir().unwrap());
    let [one, other] =
        [1, 2].map(|me| open(log.clone(), me, &directory.path().join(me.to_string())));
    one.claim();
    becomes(&one, is_owner).await;
    put(&one, "a", 1).await.unwrap();
    other.claim();
    becomes(&other, is_owner).await;
    // The former owner has nothing to append, and learns it all the same.
    becomes(&one, |role| *role == Role::Standby).await;
    put(&other, "b", 2).await.unwrap();
    catches_up(&one, &log).await;
    assert_eq!(shown(one.store()), shown(other.store()));
}

#[tokio::test]
async fn writes_of_an_owner_that_is_cut_off_fail_or_are_unknown_until_it_is_back() {
    let (log, directory) = (MemoryLog::new(), tempfile::tempdir().unwrap());
    let way = FaultyLog::new(&log, 1, 0);
    let one = open(way.clone(), 1, &directory.path().join("one"));
    one.claim();
    becomes(&one, is_owner).await;
    way.cut(true);
    let lost = put(&one, "lost", 1);
    let mut lost = tokio::spawn(lost);
    assert!(timeout(Duration::from_millis(200), &mut lost).await.is_err(), "nobody knows yet");
    assert!(one.status().counters.unknown > 0 && one.status().trouble.is_some());
    way.cut(false);
    // It claims again, whereby the record can never count.
    assert!(matches!(lost.await.unwrap(), Err(WriteError::Failed { .. })));
    put(&one, "kept", 1).await.unwrap();
    assert_eq!(shown(one.store()).into_keys().collect::<Vec<_>>(), ["kept"]);
}

#[tokio::test]
async fn a_copy_whose_records_were_removed_stops_with_the_reason() {
    let (log, directory) = (MemoryLog::new(), tempfile::tempdir().unwrap());
    let one = open(log.clone(), 1, &directory.path().join("one"));
    one.claim();
    becomes(&one, is_owner).await;
    put(&one, "a", 1).await.unwrap();
    log.trim(Position(2)).await.unwrap();
    let late = open(log.clone(), 2, &directory.path().join("late"));
    becomes(&late, |role| *role == Role::Stopped(Stop::Trimmed(Position(2)))).await;
    // A copy of the owner's store goes on where that is.
    one.store().backup(directory.path().join("copy")).unwrap();
    let copy = open(log.clone(), 3, &directory.path().join("copy"));
    put(&one, "b", 2).await.unwrap();
    catches_up(&copy, &log).await;
    assert_eq!(shown(copy.store()), shown(one.store()));
}

#[tokio::test]
async fn a_closed_copy_goes_on_where_it_was() {
    let (log, directory) = (MemoryLog::new(), tempfile::tempdir().unwrap());
    let path = directory.path().join("one");
    let one = open(log.clone(), 1, &path);
    one.claim();
    becomes(&one, is_owner).await;
    put(&one, "a", 1).await.unwrap();
    one.close().await;
    let again = open(log.clone(), 2, &path);
    assert_eq!(again.status().known, Position(2));
    again.claim();
    becomes(&again, is_owner).await;
    put(&again, "b", 2).await.unwrap();
    assert_eq!(shown(again.store()).len(), 2);
    assert_eq!(again.status().tail.epoch, 2);
}

/// A node of the chaos, and the place of its copy.
struct Node {
    way: FaultyLog,
    shard: ShardReplica,
    directory: PathBuf,
    lives: u32,
}

/// Copies a store's files as a crash leaves them: not while a checkpoint writes them.
fn copy_at_rest(from: &Path, to: &Path) {
    let bytes = || fs::read(from.join("data.mdb")).unwrap();
    loop {
        let before = bytes();
        fs::create_dir_all(to.join("log")).unwrap();
        for folder in ["", "log"] {
            for entry in fs::read_dir(from.join(folder)).unwrap().map(Result::unwrap) {
                let is_content = folder == "log" || entry.file_name() == "data.mdb";
                if is_content {
                    fs::copy(entry.path(), to.join(folder).join(entry.file_name())).unwrap();
                }
            }
        }
        if bytes() == before {
            return;
        }
    }
}

/// Outcomes of writes, each of a key of its own that also adds one to a sum.
#[derive(Debug, Default)]
struct Outcomes {
    acknowledged: Vec<String>,
    refused: Vec<String>,
    unknown: usize,
}

/// Three nodes take the shard from each other, write, are cut off and crash. In the end each has what was acknowledged,
/// and nothing that was refused.
async fn chaos(seed: u64) -> Outcomes {
    let mut random = Rng::with_seed(seed);
    let (log, root) = (MemoryLog::new(), tempfile::tempdir_in(memory()).unwrap());
    let faults = *random.choice(&[0, 8, 30, 80]).unwrap();
    let mut nodes: Vec<Node> = (0..3)
        .map(|number| {
            let way = FaultyLog::new(&log, seed * 3 + number, faults);
            let directory = root.path().join(format!("{number}-0"));
            let shard = open(way.clone(), u128::from(number), &directory);
            Node { way, shard, directory, lives: 0 }
        })
        .collect();
    let mut writes = Vec::new();
    for step in 0..random.u32(20..60) {
        let at = random.usize(..3);
        match random.u32(..20) {
            0..3 => nodes[at].shard.claim(),
            3 => nodes[at].shard.hand_over(Incarnation(random.u128(..3))),
            4 => nodes[at].way.cut(random.bool()),
            5 => {
                let node = &mut nodes[at];
                let next = root.path().join(format!("{at}-{}", node.lives + 1));
                copy_at_rest(&node.directory, &next);
                let me = Incarnation(random.u128(3..));
                let shard = open(node.way.clone(), me.0, &next);
                (node.directory, node.lives) = (next, node.lives + 1);
                // The node before goes on for a while, as one does that was stopped and wakes up.
                let before = std::mem::replace(&mut node.shard, shard);
                tokio::spawn(async move {
                    sleep(Duration::from_millis(20)).await;
                    before.close().await;
                });
            }
            6..9 => sleep(Duration::from_millis(random.u64(1..30))).await,
            _ => {
                for number in 0..random.u32(1..30) {
                    let key = format!("{step}-{number}");
                    let believes = |node: &&Node| is_owner(&node.shard.role().borrow());
                    let owner = nodes.iter().find(believes).filter(|_| random.u8(..4) > 0);
                    let node = owner.unwrap_or(&nodes[random.usize(..3)]);
                    let store = node.shard.store().clone();
                    let db = store.default_database::<Str, U64>();
                    let counter = store.default_database::<Str, throng_store::Bytes>();
                    let batch = Batch::new().put_new(&db, &key, &1).add(&counter, "sum", 1);
                    writes.push((key, store.write(batch)));
                }
                sleep(Duration::from_micros(random.u64(..2_000))).await;
            }
        }
    }
    nodes.iter().for_each(|node| node.way.cut(false));
    // All records that are late have come.
    sleep(Duration::from_millis(60)).await;
    let last = &nodes[random.usize(..3)].shard;
    timeout(LONG, async {
        while !is_owner(&last.role().borrow()) || put(last, "last", 1).await.is_err() {
            last.claim();
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap_or_else(|_| panic!("seed {seed}: {:?}", last.status()));
    let mut outcomes = Outcomes::default();
    for (key, ticket) in writes {
        match timeout(LONG, ticket).await.unwrap_or_else(|_| panic!("seed {seed}: {key} hangs")) {
            Ok(()) => outcomes.acknowledged.push(key),
            Err(error) => match error.into_batch() {
                Some(_) => outcomes.refused.push(key),
                None => outcomes.unknown += 1,
            },
        }
    }
    let mut states = Vec::new();
    for node in &nodes {
        let role = node.shard.role().borrow().clone();
        assert!(!matches!(role, Role::Stopped(_)), "seed {seed}: {role:?}");
        catches_up(&node.shard, &log).await;
        states.push(shown(node.shard.store()));
    }
    assert!(states.windows(2).all(|pair| pair[0] == pair[1]), "seed {seed}: nodes differ");
    let state = &states[0];
    let missing: Vec<_> =
        outcomes.acknowledged.iter().filter(|key| !state.contains_key(*key)).collect();
    assert!(missing.is_empty(), "seed {seed}: acknowledged and lost: {missing:?}");
    let wrong: Vec<_> = outcomes.refused.iter().filter(|key| state.contains_key(*key)).collect();
    assert!(wrong.is_empty(), "seed {seed}: refused and there: {wrong:?}");
    let writes = state.len() - 1 - usize::from(state.contains_key("sum"));
    // A counter is little endian, and other numbers are not.
    let sum = state.get("sum").map_or(0, |sum| sum.swap_bytes());
    assert_eq!(sum, writes as u64, "seed {seed}: the sum");
    outcomes
}

/// A directory in memory if there is one.
fn memory() -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    if memory.is_dir() { memory } else { std::env::temp_dir() }
}

#[test]
fn what_is_acknowledged_is_on_all_nodes_whatever_the_log_loses() {
    let seeds = std::env::var("THRONG_SHARD_SEEDS").map_or(12, |seeds| seeds.parse().unwrap());
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build();
    let (mut acknowledged, mut refused, mut unknown) = (0, 0, 0);
    for seed in 0..seeds {
        let outcomes = runtime.as_ref().unwrap().block_on(chaos(seed));
        acknowledged += outcomes.acknowledged.len();
        refused += outcomes.refused.len();
        unknown += outcomes.unknown;
    }
    println!("{acknowledged} acknowledged, {refused} refused, {unknown} unknown");
    assert!(
        acknowledged as u64 > 20 * seeds && refused as u64 > 5 * seeds,
        "{acknowledged}, {refused}"
    );
}
