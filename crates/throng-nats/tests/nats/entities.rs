//! Entities on three nodes over three servers, which are killed under load.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use throng::prelude::*;
use throng_cluster::control::{self, Rules};
use throng_cluster::members::Member;
use throng_cluster::{
    Cluster, ClusterError, ClusterOptions, Control, Incarnation, Membership, MemoryPeers,
    ShardOptions,
};
use throng_durable::Durable;
use throng_nats::{Nats, NatsLogs, Options};
use throng_store::Store;
use tokio::time::{Instant, sleep};

use crate::servers::Servers;

const ACCOUNTS: usize = 12;

#[derive(Durable, Default, Serialize, Deserialize)]
#[durable(kind = "account")]
struct Account {
    balance: u64,
}

#[process]
impl Account {
    #[message(derive(Serialize, Deserialize))]
    fn deposit(&mut self, amount: u64) -> u64 {
        self.balance += amount;
        self.balance
    }
}

/// A node with a runtime of its own, with which all of its tasks end.
struct TestNode {
    me: Incarnation,
    cluster: Cluster,
    _control: Arc<Control>,
    _runtime: Runtime,
}

impl TestNode {
    fn start(
        (name, shards): (&str, u16),
        directory: &Path,
        nats: Options,
        peers: &MemoryPeers,
    ) -> TestNode {
        let runtime = Runtime::builder().workers(1).start().unwrap();
        let peers = peers.clone();
        let member = Member::new(name, format!("{name}:1"));
        let mut options = ClusterOptions::new("shop", directory.join(name));
        options.shards = shards;
        options.shard =
            ShardOptions { store: Store::options().map_bytes(16 << 20), ..ShardOptions::default() };
        let rules = Rules {
            shards,
            gather: Duration::from_secs(2),
            settle: Duration::from_secs(4),
            ..Rules::default()
        };
        let (me, cluster, control) = runtime.block_on(async |handle| {
            let logs = NatsLogs::new(Nats::connect(nats).await.unwrap(), "shop");
            let log = Arc::new(logs.control().await.unwrap());
            let options_of_control = control::Options {
                rules,
                join_within: Duration::from_secs(90),
                ..control::Options::default()
            };
            let control = Control::join(log, member, options_of_control).await.unwrap();
            let control = Arc::new(control);
            let (me, reported) = (control.me(), control.clone());
            let membership = Membership {
                name: name.into(),
                me,
                members: control.watch(),
                report: Box::new(move |shard, lag| reported.report(shard, lag)),
            };
            let cluster = Cluster::start(
                options,
                membership,
                handle,
                Arc::new(logs),
                Arc::new(peers.clone()),
            );
            cluster.kind::<Account>(()).accepts::<Deposit>("deposit");
            cluster.serve();
            (me, cluster, control)
        });
        peers.add(me, &cluster);
        TestNode { me, cluster, _control: control, _runtime: runtime }
    }
}

/// Nodes that are up, for callers that choose one.
type Up = Arc<Mutex<Vec<Option<Cluster>>>>;

/// Deposits of a caller, each repeated with its id until it is acknowledged, and the longest wait for one.
async fn deposit_until(account: usize, up: Up, is_over: Arc<AtomicBool>) -> (u64, Duration) {
    let (mut deposits, mut longest, mut attempt) = (0, Duration::ZERO, account);
    while !is_over.load(Ordering::Relaxed) {
        let (id, since) = (format!("{account}-{deposits}"), Instant::now());
        let balance = loop {
            attempt += 1;
            let node = up.lock().unwrap()[attempt % 3].clone();
            let Some(node) = node else { continue };
            let account = node.entity::<Account>(account.to_string());
            match account.deposit(1).within(Duration::from_secs(3)).once(id.clone()).await {
                Ok(balance) => break balance,
                Err(error @ (ClusterError::Refused(_) | ClusterError::NotAccepted { .. })) => {
                    panic!("{error}")
                }
                Err(_) => sleep(Duration::from_millis(20)).await,
            }
            assert!(since.elapsed() < Duration::from_secs(120), "{id} has no answer");
        };
        deposits += 1;
        // None is lost, and none takes effect twice.
        assert_eq!(balance, deposits, "account {account}");
        longest = longest.max(since.elapsed());
    }
    (deposits, longest)
}

/// Servers and nodes are killed one after another, and started again, while callers deposit.
#[test]
fn each_acknowledged_call_takes_effect_once_whatever_is_killed() {
    let Some(mut servers) = Servers::start(3) else { return };
    let rounds = std::env::var("THRONG_CLUSTER_ROUNDS").map_or(2, |rounds| rounds.parse().unwrap());
    let (directory, peers) = (tempfile::tempdir().unwrap(), MemoryPeers::default());
    let options = servers.options("throng");
    let start = |name: usize| {
        let (name, options) = (name.to_string(), options.clone());
        TestNode::start((&name, 6), directory.path(), options, &peers)
    };
    let mut nodes: Vec<Option<TestNode>> = (0..3).map(|name| Some(start(name))).collect();
    let clusters = nodes.iter().map(|node| node.as_ref().map(|node| node.cluster.clone()));
    let up: Up = Arc::new(Mutex::new(clusters.collect()));
    let is_over = Arc::new(AtomicBool::new(false));
    let callers = Runtime::builder().workers(1).start().unwrap();
    let tasks: Vec<_> = (0..ACCOUNTS)
        .map(|account| {
            let caller = deposit_until(account, up.clone(), is_over.clone());
            callers.block_on(async |_| tokio::spawn(caller))
        })
        .collect();
    let mut random = fastrand::Rng::with_seed(rounds);
    for round in 0..rounds {
        std::thread::sleep(Duration::from_secs(2));
        let victim = random.usize(..3);
        if round % 2 == 0 {
            servers.kill(victim);
            std::thread::sleep(Duration::from_millis(random.u64(500..6_000)));
            servers.start_again(victim);
            continue;
        }
        let lost = nodes[victim].take().unwrap();
        up.lock().unwrap()[victim] = None;
        peers.remove(lost.me);
        // All of its tasks end at some point, as those of a process that is killed.
        drop(lost);
        std::thread::sleep(Duration::from_millis(random.u64(500..8_000)));
        let again = start(victim);
        up.lock().unwrap()[victim] = Some(again.cluster.clone());
        nodes[victim] = Some(again);
    }
    std::thread::sleep(Duration::from_secs(2));
    is_over.store(true, Ordering::Relaxed);
    let (mut all, mut longest) = (0, Duration::ZERO);
    for task in tasks {
        let (deposits, wait) = callers.block_on(async |_| task.await.unwrap());
        assert!(deposits > rounds, "a caller has had no answers");
        (all, longest) = (all + deposits, longest.max(wait));
    }
    println!("{rounds} rounds: {all} deposits, the longest wait for one {longest:?}");
}

/// Processor time of processes, as the system counts it.
fn processor_time(pids: &[u32]) -> Duration {
    let ticks = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The second field is a name in parentheses.
        let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
        Some(fields[11].parse::<u64>().ok()? + fields[12].parse::<u64>().ok()?)
    };
    Duration::from_millis(pids.iter().filter_map(ticks).sum::<u64>() * 10)
}

/// Turns of many entities share records; their number, which `THRONG_CLUSTER_TURNS` sets, is checked by the states.
#[test]
fn turns_of_many_entities_on_many_shards_are_all_kept() {
    let Some(servers) = Servers::start(3) else { return };
    let turns = std::env::var("THRONG_CLUSTER_TURNS").map_or(3_000, |turns| turns.parse().unwrap());
    let (callers, shards) = ((turns / 10).min(12_800), 64);
    let (directory, peers) = (tempfile::tempdir().unwrap(), MemoryPeers::default());
    let nodes = [0, 1, 2].map(|name| {
        let (name, options) = (name.to_string(), servers.options("throng"));
        TestNode::start((&name, shards), directory.path(), options, &peers)
    });
    let runtime = Runtime::builder().workers(1).start().unwrap();
    let call = async |node: &Cluster, account: u64| {
        let since = Instant::now();
        let account = node.entity::<Account>(account.to_string());
        loop {
            let began = Instant::now();
            match account.deposit(1).within(Duration::from_secs(20)).await {
                Ok(balance) => return (balance, began.elapsed()),
                Err(error) => assert!(since.elapsed() < Duration::from_secs(120), "{error}"),
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    let run = |turns: u64, first: u64| {
        runtime.block_on(async |_| {
            let tasks = (0..callers).map(|account| {
                let node = nodes[account as usize % 3].cluster.clone();
                tokio::spawn(async move {
                    let mut latencies = Vec::new();
                    for turn in 0..turns {
                        let (balance, latency) = call(&node, account).await;
                        assert_eq!(balance, first + turn, "account {account}");
                        latencies.push(latency);
                    }
                    latencies
                })
            });
            let tasks: Vec<_> = tasks.collect();
            let mut latencies = Vec::new();
            for task in tasks {
                latencies.extend(task.await.unwrap());
            }
            latencies
        })
    };
    // All shards have owners then.
    run(1, 1);
    let (own, engine) = ([std::process::id()], servers.pids());
    let before = (Instant::now(), processor_time(&own), processor_time(&engine));
    let each = (turns / callers).max(1);
    let mut latencies = run(each, 2);
    let (wall, all) = (before.0.elapsed(), each * callers);
    let [own, engine] = [processor_time(&own) - before.1, processor_time(&engine) - before.2]
        .map(|time| time.as_secs_f64() * 1e6 / all as f64);
    let copies: Vec<_> = nodes.iter().flat_map(|node| node.cluster.hosted()).collect();
    let records: u64 =
        copies.iter().filter_map(|shard| Some(shard.copy.as_ref()?.counters.appends)).sum();
    latencies.sort_unstable();
    let percentile = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize];
    println!(
        "{all} turns: {:.0}/s, p50 {:?}, p99 {:?}; processor time of a turn: nodes and callers {own:.1} us, \
         servers {engine:.1} us; {:.1} turns a record",
        all as f64 / wall.as_secs_f64(),
        percentile(0.5),
        percentile(0.99),
        (all + callers) as f64 / records as f64,
    );
}
