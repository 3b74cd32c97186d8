//! Whole nodes: membership by a control log, entities on shards, and calls over links.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use throng::prelude::*;
use throng_cluster::control::{self, Ended, Health, Rules};
use throng_cluster::link::Options;
use throng_cluster::members::Member;
use throng_cluster::{
    Cluster, ClusterError, ClusterOptions, Join, MemoryLog, MemoryLogs, ShardOptions,
};
use throng_durable::Durable;
use throng_store::Store;
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};

use crate::support::{Ca, load};

const SHARDS: u16 = 8;

#[derive(Durable, Default, Serialize, Deserialize)]
#[durable(kind = "counter")]
struct Counter {
    count: u64,
}

#[process]
impl Counter {
    #[message(derive(Serialize, Deserialize))]
    fn count(&mut self) -> u64 {
        self.count += 1;
        self.count
    }
}

/// Logs of a cluster whose nodes are all in this process, and the authority of its certificates.
struct Net {
    ca: Ca,
    control: MemoryLog,
    logs: MemoryLogs,
    directory: tempfile::TempDir,
}

impl Net {
    async fn join(&self, name: &str, runtime: &RuntimeHandle) -> Cluster {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let member = Member::new(name, listener.local_addr().unwrap().to_string());
        let mut cluster = ClusterOptions::new("shop", self.directory.path().join(name));
        cluster.shards = SHARDS;
        cluster.shard =
            ShardOptions { store: Store::options().map_bytes(16 << 20), ..ShardOptions::default() };
        let rules = Rules {
            gather: Duration::from_secs(2),
            settle: Duration::from_secs(1),
            ..Rules::default()
        };
        let join = Join {
            member,
            cluster,
            control: control::Options { rules, ..control::Options::default() },
            links: Options::default(),
            identity: load(&self.ca, &self.ca.issue("shop"), "shop").unwrap(),
            listener,
            control_log: Arc::new(self.control.clone()),
            logs: Arc::new(self.logs.clone()),
        };
        let joined = Cluster::join(join, runtime, |cluster| {
            cluster.kind::<Counter>(()).accepts::<Count>("count");
        });
        joined.await.unwrap()
    }
}

async fn counts(cluster: &Cluster, key: &str) -> u64 {
    let since = Instant::now();
    loop {
        match cluster.entity::<Counter>(key).count().await {
            Ok(count) => return count,
            Err(ClusterError::Unavailable(reason)) => {
                assert!(since.elapsed() < Duration::from_secs(60), "{reason}");
            }
            Err(error) => panic!("{error}"),
        }
        sleep(Duration::from_millis(20)).await;
    }
}

#[test]
fn nodes_share_the_shards_and_one_that_leaves_hands_over_its_own_without_an_error() {
    let runtime = Runtime::builder().workers(2).start().unwrap();
    runtime.block_on(async |handle| {
        let net = Net {
            ca: Ca::new(),
            control: MemoryLog::new(),
            logs: MemoryLogs::default(),
            directory: tempfile::tempdir().unwrap(),
        };
        let mut nodes = Vec::new();
        for name in ["a", "b", "c"] {
            nodes.push(net.join(name, handle).await);
        }
        let keys: Vec<String> = (0..40).map(|number| number.to_string()).collect();
        for round in 0..3 {
            for (number, key) in keys.iter().enumerate() {
                let count = counts(&nodes[(number + round) % 3], key).await;
                assert_eq!(count, round as u64 + 1, "{key}");
            }
        }
        let owned = |node: &Cluster| node.hosted().iter().filter(|shard| shard.serves).count();
        let owners: Vec<usize> = nodes.iter().map(owned).collect();
        assert_eq!(owners.iter().sum::<usize>(), usize::from(SHARDS), "{owners:?}");
        assert!(owners.iter().all(|shards| *shards <= 4), "{owners:?}");
        assert!(nodes.iter().all(|node| node.lease_holds()));
        let (health, stats) = nodes[0].health().unwrap();
        assert!(health == Health::Well && stats.calls_replied > 0, "{health:?}, {stats:?}");

        // A node leaves while its entities are called by others, which notice nothing.
        let leaving = nodes.remove(0);
        let caller = tokio::spawn({
            let (node, keys) = (nodes[0].clone(), keys.clone());
            async move {
                for round in 4..12 {
                    for key in &keys {
                        let counter = node.entity::<Counter>(key);
                        let count = counter.count().within(Duration::from_secs(20)).await;
                        assert_eq!(count, Ok(round), "{key}");
                    }
                }
            }
        });
        leaving.leave(Duration::from_secs(20)).await;
        assert_eq!(leaving.ended().await, Ended::Left);
        assert!(leaving.hosted().is_empty());
        caller.await.unwrap();
        let since = Instant::now();
        while nodes.iter().map(owned).sum::<usize>() < usize::from(SHARDS) {
            assert!(since.elapsed() < Duration::from_secs(20), "shards are left without an owner");
            sleep(Duration::from_millis(10)).await;
        }
        assert!(!leaving.lease_holds());
    });
}
