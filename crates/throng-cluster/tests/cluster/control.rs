//! Memberships on a log in memory, in paused time.

use std::collections::HashSet;
use std::future::pending;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, stream};
use throng_cluster::control::{Clock, Ended, LEASE, Loss, Options, Rules};
use throng_cluster::members::{Entry, Member, Members, Refusal};
use throng_cluster::placement::Shard;
use throng_cluster::{
    AppendError, BoxFuture, BoxStream, Control, Health, JoinError, LogError, MemoryLog, Position,
    ShardLog,
};
use tokio::time::{Instant, sleep};

const SHARDS: u16 = 8;

/// A log that can be cut off, or be changed for another one below its users.
#[derive(Clone)]
struct Switched {
    log: Arc<Mutex<MemoryLog>>,
    is_cut: Arc<AtomicBool>,
}

impl Switched {
    fn new() -> Switched {
        Switched { log: Arc::default(), is_cut: Arc::default() }
    }

    fn log(&self) -> Option<MemoryLog> {
        (!self.is_cut()).then(|| self.log.lock().expect("no test panics with it").clone())
    }

    fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Relaxed)
    }

    fn cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::Relaxed);
    }

    fn replace(&self, log: MemoryLog) {
        *self.log.lock().expect("no test panics with it") = log;
    }
}

impl ShardLog for Switched {
    fn append(
        &self,
        record: Bytes,
        after: Option<Position>,
    ) -> BoxFuture<Result<Position, AppendError>> {
        self.log().map_or_else(|| pending().boxed(), |log| log.append(record, after))
    }

    fn end(&self) -> BoxFuture<Result<Position, LogError>> {
        self.log().map_or_else(|| pending().boxed(), |log| log.end())
    }

    fn read(&self, from: Position) -> BoxStream<Result<(Position, Bytes), LogError>> {
        let cut = || Err(LogError::Unavailable("connection refused".into()));
        let Some(log) = self.log() else { return stream::iter([cut()]).boxed() };
        let this = self.clone();
        log.read(from).map(move |record| if this.is_cut() { cut() } else { record }).boxed()
    }

    fn trim(&self, before: Position) -> BoxFuture<Result<(), LogError>> {
        self.log().map_or_else(|| pending().boxed(), |log| log.trim(before))
    }
}

fn member(name: &str) -> Member {
    Member {
        name: name.into(),
        address: format!("{name}:7001"),
        zone: name.into(),
        weight: 1,
        levels: (0, 1),
        renewal: 0,
        is_draining: false,
    }
}

fn options() -> Options {
    let begin = Instant::now();
    let rules = Rules { shards: SHARDS, ..Rules::default() };
    Options { rules, clock: Clock::new(move || begin.elapsed()), ..Options::default() }
}

async fn join(log: &(impl ShardLog + Clone), name: &str) -> Result<Control, JoinError> {
    Control::join(Arc::new(log.clone()), member(name), options()).await
}

async fn joined(log: &(impl ShardLog + Clone), name: &str) -> Control {
    join(log, name).await.expect("the log is well")
}

/// Waits until the members of a node are as asked for.
async fn until(control: &Control, is_so: impl FnMut(&Arc<Members>) -> bool) -> Arc<Members> {
    control.watch().wait_for(is_so).await.expect("the task goes on").clone()
}

fn owners(members: &Members) -> HashSet<&str> {
    members.plan().values().map(|copies| copies.owner.as_str()).collect()
}

#[tokio::test(start_paused = true)]
async fn nodes_that_start_together_share_the_shards_and_all_see_the_same_plan() {
    let log = MemoryLog::new();
    let mut nodes = Vec::new();
    for name in ["a", "b", "c"] {
        nodes.push(joined(&log, name).await);
    }
    let members = until(&nodes[0], |members| members.plans() == 1).await;
    assert_eq!((members.plan().len(), owners(&members).len()), (usize::from(SHARDS), 3));
    for node in &nodes {
        assert_eq!(until(node, |members| members.plans() == 1).await.plan(), members.plan());
        assert!(node.lease_holds() && node.health() == Health::Well);
    }
}

#[tokio::test(start_paused = true)]
async fn the_shards_of_a_node_that_is_gone_are_owned_by_others_seven_seconds_later() {
    let log = MemoryLog::new();
    let (a, b) = (joined(&log, "a").await, joined(&log, "b").await);
    (0..SHARDS).for_each(|shard| b.report(Shard(shard), Some(Duration::ZERO)));
    until(&b, |members| members.plans() == 1 && owners(members).len() == 2).await;
    let gone_at = Instant::now();
    drop(a);
    until(&b, |members| owners(members) == HashSet::from(["b"])).await;
    let after = gone_at.elapsed();
    assert!(after > LEASE && after < Duration::from_secs(7), "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn a_second_node_of_the_same_name_is_refused_and_the_first_goes_on() {
    let log = MemoryLog::new();
    let first = joined(&log, "a").await;
    let refused = join(&log, "a").await.map(|_| ()).expect_err("the first one lives");
    let (name, node, address) = ("a".into(), first.me(), "a:7001".into());
    assert_eq!(refused, JoinError::Refused(Refusal::Name { name, node, address }));
    sleep(LEASE * 3).await;
    assert!(first.lease_holds());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_killed_joins_again_when_its_lease_is_over_or_at_once_if_its_end_is_known()
{
    let log = MemoryLog::new();
    let killed = joined(&log, "a").await;
    sleep(Duration::from_secs(2)).await;
    let predecessor = killed.me();
    drop(killed);
    let begin = Instant::now();
    let again = joined(&log, "a").await;
    assert!(begin.elapsed() > LEASE && again.me() != predecessor);
    let mut options = options();
    options.rules.predecessor = Some(again.me());
    drop(again);
    let begin = Instant::now();
    let third = Control::join(Arc::new(log.clone()), member("a"), options).await;
    assert!(third.is_ok() && begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_program_that_does_not_understand_the_level_of_the_cluster_is_refused() {
    let log = MemoryLog::new();
    let node = joined(&log, "a").await;
    node.finalize(1).await.expect("all understand it");
    node.finalize(2).await.expect_err("none understands it");
    let old = Member { levels: (0, 0), ..member("b") };
    let refused = Control::join(Arc::new(log.clone()), old, options()).await;
    let refusal = Refusal::Level { level: 1, levels: (0, 0) };
    assert_eq!(refused.map(|_| ()), Err(JoinError::Refused(refusal)));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_drains_has_no_shards_and_one_that_leaves_is_gone_at_once() {
    let log = MemoryLog::new();
    let (a, b) = (joined(&log, "a").await, joined(&log, "b").await);
    for node in [&a, &b] {
        (0..SHARDS).for_each(|shard| node.report(Shard(shard), Some(Duration::ZERO)));
    }
    until(&a, |members| owners(members).len() == 2).await;
    b.drain("a", true).await.expect("the log is well");
    until(&b, |members| owners(members) == HashSet::from(["b"])).await;
    b.drain("x", true).await.expect_err("nobody has the name");
    a.leave().await.expect("the log is well");
    until(&b, |members| members.nodes().len() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_without_its_log_loses_its_lease_says_why_and_goes_on_when_the_log_is_back() {
    let log = Switched::new();
    let node = joined(&log, "a").await;
    sleep(Duration::from_secs(3)).await;
    log.cut(true);
    sleep(Duration::from_secs(3)).await;
    assert!(node.lease_holds());
    sleep(Duration::from_secs(30)).await;
    assert!(!node.lease_holds());
    let Health::Silent { since, reason } = node.health() else { panic!("{:?}", node.health()) };
    assert!(since > Duration::from_secs(31) && !reason.is_empty(), "{since:?}: {reason}");
    log.cut(false);
    sleep(Duration::from_secs(4)).await;
    assert!(node.lease_holds() && node.health() == Health::Well, "{:?}", node.health());
}

#[tokio::test(start_paused = true)]
async fn a_log_that_cannot_be_reached_is_no_cluster_to_join() {
    let log = Switched::new();
    log.cut(true);
    let begin = Instant::now();
    let error = join(&log, "a").await.map(|_| ());
    let reason = "the log cannot be reached: connection refused".to_owned();
    assert_eq!(error, Err(JoinError::Unreachable(reason)));
    assert_eq!(begin.elapsed(), options().join_within);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_others_have_expired_stops_believing_and_its_task_ends() {
    let log = MemoryLog::new();
    let node = joined(&log, "a").await;
    let mut ended = pin!(node.ended());
    assert_eq!(ended.as_mut().now_or_never(), None);
    let renewal =
        until(&node, |members| !members.nodes().is_empty()).await.nodes()[&node.me()].renewal;
    for renewal in renewal..renewal + 3 {
        let expiry = Entry::Expire(node.me(), renewal).encode();
        log.append(expiry, None).await.expect("a log in memory");
    }
    assert_eq!(ended.await, Ended::Expired);
    assert!(!node.lease_holds());
    node.drain("a", true).await.expect_err("it is no member");
    joined(&log, "a").await;
}

#[tokio::test(start_paused = true)]
async fn a_log_that_went_back_or_was_trimmed_is_left() {
    let log = Switched::new();
    let node = joined(&log, "a").await;
    sleep(Duration::from_secs(10)).await;
    log.cut(true);
    sleep(Duration::from_secs(10)).await;
    log.replace(MemoryLog::new());
    log.cut(false);
    let ended = node.ended().await;
    assert!(matches!(ended, Ended::Lost(Loss::WentBack { .. } | Loss::Changed(_))), "{ended:?}");
    assert!(!node.lease_holds());

    let trimmed = MemoryLog::new();
    let node = joined(&trimmed, "a").await;
    sleep(Duration::from_secs(10)).await;
    trimmed.trim(Position(3)).await.expect("a log in memory");
    sleep(Duration::from_secs(10)).await;
    assert!(node.lease_holds());
    let loss = Loss::Trimmed { first: Position(3), needed: Position(1) };
    assert_eq!(join(&trimmed, "b").await.map(|_| ()), Err(JoinError::Lost(loss)));
}

#[tokio::test(start_paused = true)]
async fn a_reading_that_nothing_comes_from_is_begun_again() {
    let log = Switched::new();
    let node = joined(&log, "a").await;
    sleep(Duration::from_secs(3)).await;
    // Readers of the log before wait for ever.
    let before = log.log().expect("it is not cut off");
    let copy = MemoryLog::new();
    let mut entries = before.read(Position(1));
    while let Some(Some(Ok((_, entry)))) = entries.next().now_or_never() {
        copy.append(entry, None).await.expect("a log in memory");
    }
    log.replace(copy);
    sleep(LEASE * 3).await;
    assert!(node.lease_holds() && node.health() == Health::Well, "{:?}", node.health());
}

/// A log that asks, at each leave that it gets, whether some node still believes.
#[derive(Clone, Default)]
struct Asking {
    log: MemoryLog,
    members: Arc<Mutex<Members>>,
    node: Arc<Mutex<Option<Arc<Control>>>>,
    answers: Arc<Mutex<Vec<bool>>>,
}

impl ShardLog for Asking {
    fn append(
        &self,
        record: Bytes,
        after: Option<Position>,
    ) -> BoxFuture<Result<Position, AppendError>> {
        let entry = self.members.lock().expect("no test panics with it").read(&record);
        let node = self.node.lock().expect("no test panics with it");
        if let (Some(Entry::Leave(_)), Some(node)) = (entry, &*node) {
            self.answers.lock().expect("no test panics with it").push(node.lease_holds());
        }
        self.log.append(record, after)
    }

    fn end(&self) -> BoxFuture<Result<Position, LogError>> {
        self.log.end()
    }

    fn read(&self, from: Position) -> BoxStream<Result<(Position, Bytes), LogError>> {
        self.log.read(from)
    }

    fn trim(&self, before: Position) -> BoxFuture<Result<(), LogError>> {
        self.log.trim(before)
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_stops_believing_before_the_log_gets_its_leave() {
    let log = Asking::default();
    let node = Arc::new(joined(&log, "a").await);
    *log.node.lock().expect("no test panics with it") = Some(node.clone());
    sleep(Duration::from_secs(3)).await;
    assert!(node.lease_holds());
    node.leave().await.expect("the log is well");
    assert_eq!(*log.answers.lock().expect("no test panics with it"), [false]);
}

#[tokio::test(start_paused = true)]
async fn shards_move_to_a_node_that_came_a_minute_ago_but_not_while_programs_differ() {
    let log = MemoryLog::new();
    let a = joined(&log, "a").await;
    until(&a, |members| members.plans() == 1).await;
    let newer = Member { levels: (0, 2), ..member("b") };
    let b = Control::join(Arc::new(log.clone()), newer, options()).await.expect("it may join");
    for node in [&a, &b] {
        (0..SHARDS).for_each(|shard| node.report(Shard(shard), Some(Duration::ZERO)));
    }
    sleep(Duration::from_secs(200)).await;
    assert_eq!(owners(&a.watch().borrow()), HashSet::from(["a"]));
    b.leave().await.expect("the log is well");
    let b = joined(&log, "b").await;
    (0..SHARDS).for_each(|shard| b.report(Shard(shard), Some(Duration::ZERO)));
    let begin = Instant::now();
    until(&a, |members| owners(members).len() == 2).await;
    assert!(begin.elapsed() > Duration::from_secs(59), "{:?}", begin.elapsed());
}
