//! Entities on three nodes over three servers: one server is killed, then one node.

use std::path::Path;
use std::sync::Arc;
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

const SHARDS: u16 = 6;
const ACCOUNTS: usize = 30;

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

    #[message(derive(Serialize, Deserialize))]
    fn balance(&self) -> u64 {
        self.balance
    }
}

/// A node with a runtime of its own, with which all of its tasks end.
struct TestNode {
    me: Incarnation,
    cluster: Cluster,
    _control: Arc<Control>,
    runtime: Runtime,
}

impl TestNode {
    fn start(name: &str, directory: &Path, nats: Options, peers: &MemoryPeers) -> TestNode {
        let runtime = Runtime::builder().workers(1).start().unwrap();
        let peers = peers.clone();
        let member = Member {
            name: name.into(),
            address: format!("{name}:1"),
            zone: String::new(),
            weight: 1,
            levels: (0, 0),
            renewal: 0,
            is_draining: false,
        };
        let mut options = ClusterOptions::new("shop", directory.join(name));
        options.shards = SHARDS;
        options.shard =
            ShardOptions { store: Store::options().map_bytes(16 << 20), ..ShardOptions::default() };
        let rules = Rules {
            shards: SHARDS,
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
            cluster.kind::<Account>(()).accepts::<Deposit>("deposit").accepts::<Balance>("balance");
            cluster.serve();
            (me, cluster, control)
        });
        peers.add(me, cluster.clone());
        TestNode { me, cluster, _control: control, runtime }
    }

    /// Calls until there is an answer.
    fn patiently<T, F>(&self, mut call: impl FnMut() -> F) -> T
    where
        F: Future<Output = Result<T, ClusterError>>,
    {
        self.runtime.block_on(async |_| {
            let since = Instant::now();
            loop {
                match call().await {
                    Ok(reply) => return reply,
                    Err(error) => assert!(since.elapsed() < Duration::from_secs(90), "{error}"),
                }
                sleep(Duration::from_millis(20)).await;
            }
        })
    }

    fn deposit(&self, number: usize, id: &str) -> u64 {
        let account = self.cluster.entity::<Account>(number.to_string());
        // The id makes a call that is repeated take effect once.
        self.patiently(|| account.deposit(1).within(Duration::from_secs(3)).once(id))
    }

    fn balance(&self, number: usize) -> u64 {
        let account = self.cluster.entity::<Account>(number.to_string());
        self.patiently(|| account.balance().within(Duration::from_secs(3)))
    }
}

#[test]
fn entities_survive_the_kill_of_a_server_and_then_of_a_node() {
    let Some(mut servers) = Servers::start(3) else { return };
    let (directory, peers) = (tempfile::tempdir().unwrap(), MemoryPeers::default());
    let start =
        |name: &str| TestNode::start(name, directory.path(), servers.options("throng"), &peers);
    let mut nodes: Vec<TestNode> = ["a", "b", "c"].map(start).into();
    for number in 0..ACCOUNTS {
        assert_eq!(nodes[number % 3].deposit(number, "first"), 1);
    }
    servers.kill(0);
    for number in 0..ACCOUNTS {
        assert_eq!(nodes[(number + 1) % 3].deposit(number, "second"), 2, "account {number}");
    }
    servers.start_again(0);
    let lost = nodes.remove(0);
    peers.remove(lost.me);
    // All of its tasks end at some point, as those of a process that is killed.
    drop(lost);
    let since = Instant::now();
    for number in 0..ACCOUNTS {
        let node = &nodes[number % 2];
        assert_eq!(node.deposit(number, "third"), 3, "account {number}");
        assert_eq!(node.deposit(number, "first"), 1, "the stored reply");
        assert_eq!(node.balance(number), 3);
    }
    println!("served by two nodes after {:?}", since.elapsed());
}
