//! [`LocalCluster`]: a cluster whose nodes are all in this process, to try a program's entities on several nodes.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use throng::RuntimeHandle;
use tokio::sync::watch;

use crate::cluster::{Cluster, ClusterOptions, Membership};
use crate::members::{Entry, Member, Members};
use crate::memory::{MemoryLogs, MemoryPeers};
use crate::placement::place;
use crate::record::Incarnation;

/// Several nodes of a cluster in this process: for tests of a program, and for a first look. Logs are in memory, so all
/// ends with the process.
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use throng::prelude::*;
/// use throng_cluster::LocalCluster;
/// use throng_durable::Durable;
///
/// #[derive(Durable, Default, Serialize, Deserialize)]
/// #[durable(kind = "account")]
/// struct Account { balance: u64 }
///
/// #[process]
/// impl Account {
///     #[message(derive(Serialize, Deserialize))]
///     fn deposit(&mut self, amount: u64) -> u64 {
///         self.balance += amount;
///         self.balance
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// let runtime = Runtime::builder().workers(1).start()?;
/// runtime.block_on(async |handle| {
///     let cluster = LocalCluster::start(3, 8, directory.path(), handle, |node| {
///         node.kind::<Account>(()).accepts::<Deposit>("deposit");
///     })?;
///     // The account lives on one of the nodes, and answers from each.
///     for (number, node) in cluster.nodes().iter().enumerate() {
///         assert_eq!(node.entity::<Account>("ann").deposit(5).await?, 5 * (number as u64 + 1));
///     }
///     cluster.remove(0).await;
///     assert_eq!(cluster.nodes()[1].entity::<Account>("ann").deposit(5).await?, 20);
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct LocalCluster {
    nodes: Vec<Cluster>,
    members: watch::Sender<Arc<Members>>,
    shards: u16,
}

impl LocalCluster {
    /// Starts so many nodes, which share so many shards and keep their copies below a directory. `name_kinds` names the
    /// kinds of entities at each node.
    ///
    /// # Errors
    ///
    /// An error of the directory.
    pub fn start(
        nodes: usize,
        shards: u16,
        directory: &Path,
        runtime: &RuntimeHandle,
        name_kinds: impl Fn(&Cluster),
    ) -> io::Result<LocalCluster> {
        std::fs::create_dir_all(directory)?;
        let members = watch::Sender::default();
        let mut cluster = LocalCluster { nodes: Vec::new(), members, shards };
        let (logs, peers) = (MemoryLogs::default(), MemoryPeers::default());
        for number in 0..nodes {
            let (name, me) = (format!("node-{number}"), Incarnation(number as u128 + 1));
            let member = Member::new(name.clone(), name.clone());
            cluster.read(&Entry::Join(me, member));
            let mut options = ClusterOptions::new("local", directory.join(&name));
            options.shards = shards;
            options.shard.store = options.shard.store.map_bytes(1 << 30);
            let membership = Membership {
                name,
                me,
                members: cluster.members.subscribe(),
                report: Box::new(|_, _| ()),
            };
            let (logs, peers_of_node) = (Arc::new(logs.clone()), Arc::new(peers.clone()));
            let node = Cluster::start(options, membership, runtime, logs, peers_of_node);
            name_kinds(&node);
            node.serve();
            peers.add(me, &node);
            cluster.nodes.push(node);
        }
        cluster.plan();
        Ok(cluster)
    }

    /// Returns the nodes, those that were removed included.
    pub fn nodes(&self) -> &[Cluster] {
        &self.nodes
    }

    /// Has a node hand over its shards to the others and leave.
    ///
    /// # Panics
    ///
    /// Panics if there is no node of that number.
    pub async fn remove(&self, number: usize) {
        let node = &self.nodes[number];
        let me = Incarnation(number as u128 + 1);
        self.read(&Entry::Drain(me, true));
        self.plan();
        node.leave(Duration::ZERO).await;
        self.read(&Entry::Leave(me));
    }

    fn read(&self, entry: &Entry) {
        self.members.send_modify(|members| {
            let mut next = Members::clone(members);
            next.read(&entry.encode());
            *members = Arc::new(next);
        });
    }

    fn plan(&self) {
        let members = self.members.borrow().clone();
        let plan = place(self.shards, 1, &members.candidates());
        self.read(&Entry::Plan(members.plans() + 1, plan));
    }
}
