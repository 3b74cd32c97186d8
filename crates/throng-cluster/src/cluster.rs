//! [`Cluster`]: the same entities on many nodes.
//!
//! ```text
//! entity("ann") ─▶ slot ─▶ shard 17 ─┬─ owned here ──▶ Node over the shard's copy ─▶ shared log
//!                                    └─ elsewhere ───▶ peers ─▶ the owner by the plan
//!
//! members, plan ─▶ Host ─▶ copies of shards: opened, claimed, handed over, closed
//! ```
//!
//! Slots are a hash of a part of the key; each shard has a range of them. A node has copies of the shards that the plan
//! gives it. While it owns one, a [`Node`] of its own runs over the copy: what it has in memory is that of one ownership,
//! and is read anew by the next owner.
//!
//! 1. The plan is a wish. An entity runs where its shard's log says, whatever a node believes of the plan.
//! 2. A shard's node begins after all records of earlier owners are applied, and ends before the shard is handed over.

mod answer;
mod entity;
mod error;
mod host;
mod join;
mod kinds;
mod wire;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::Hasher;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use siphasher::sip::SipHasher13;
use throng::RuntimeHandle;
use throng_durable::{Durable, Node};
use throng_store::Outcomes;
use tokio::sync::{Semaphore, watch};

pub use self::entity::{ClusterCall, ClusterEntity};
pub use self::error::ClusterError;
use self::host::Hosted;
pub use self::join::Join;
use self::join::Joined;
pub use self::kinds::Kind;
use self::kinds::Kinds;
use crate::log::{BoxFuture, LogError, ShardLog};
use crate::members::Members;
use crate::placement::{Copies, NodeName, Shard};
use crate::record::Incarnation;
use crate::shard::{ShardOptions, ShardStatus};

/// Number of slots: the parts into which entities are divided, whatever the number of shards.
pub const SLOTS: u16 = 4096;

/// Messages without a reply that may be on their way at a time.
const SENDS_MAX: usize = 10_000;

/// The logs of a cluster's shards.
pub trait Logs: Send + Sync + 'static {
    /// Returns the log of a shard, which is made if it does not exist.
    fn shard(&self, shard: Shard) -> BoxFuture<Result<Arc<dyn ShardLog>, LogError>>;
}

/// Node that a call goes to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PeerTarget {
    /// Host and port.
    pub address: String,
    /// Start of the node that has to be found there.
    pub node: Incarnation,
}

/// Error of a call to another node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// Nothing has happened.
    #[error("the node was not reached: {0}")]
    Unsent(String),
    /// The request may be carried out.
    #[error("the node has not answered: {0}")]
    Unknown(String),
}

/// The way to other nodes.
pub trait Peers: Send + Sync + 'static {
    /// Has another node [answer](Cluster::answer) a request.
    fn call(
        self: Arc<Self>,
        target: PeerTarget,
        request: Bytes,
        within: Duration,
    ) -> BoxFuture<Result<Bytes, PeerError>>;
}

/// Settings of a node in a cluster.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// Name of the cluster, by which keys are hashed: it must never change.
    pub name: String,
    /// Number of shards, from 1 to 512: it must be the same on all nodes.
    pub shards: u16,
    /// Directory for the copies of shards.
    pub directory: PathBuf,
    /// Settings of each shard's copy.
    pub shard: ShardOptions,
    /// Time for which the entities of a shard may finish what they do before it is handed over.
    pub drain_within: Duration,
}

impl ClusterOptions {
    /// Returns the settings of a node with 64 shards.
    pub fn new(name: impl Into<String>, directory: impl Into<PathBuf>) -> ClusterOptions {
        ClusterOptions {
            name: name.into(),
            shards: 64,
            directory: directory.into(),
            shard: ShardOptions::default(),
            drain_within: Duration::from_secs(30),
        }
    }
}

/// Part of a node in its cluster, on which a [`Cluster`] is built.
pub struct Membership {
    /// Name of the node.
    pub name: NodeName,
    /// This start of the node.
    pub me: Incarnation,
    /// Nodes and plan, as the control log has them.
    pub members: watch::Receiver<Arc<Members>>,
    /// Function that is told how far a copy of a shard is behind: zero if it has all records, `None` if that is not known.
    pub report: Box<dyn Fn(Shard, Option<Duration>) + Send + Sync>,
}

/// The entities of a cluster, from one of its nodes; see the file's head. Cheap to clone.
#[derive(Clone)]
pub struct Cluster(Arc<Inner>);

/// State of a shard on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostedShard {
    /// Number of the shard.
    pub shard: Shard,
    /// Nodes that the plan gives it; `None` if the plan does not have the shard any more.
    pub plan: Option<Copies>,
    /// Whether entities of the shard are called here.
    pub serves: bool,
    /// State of this node's copy; `None` while it is being opened.
    pub copy: Option<ShardStatus>,
    /// Reason for which the copy cannot be opened; `None` if it can.
    pub trouble: Option<String>,
}

struct Inner {
    options: ClusterOptions,
    membership: Membership,
    runtime: RuntimeHandle,
    logs: Arc<dyn Logs>,
    peers: Arc<dyn Peers>,
    kinds: Kinds,
    hosted: Mutex<BTreeMap<Shard, Arc<Hosted>>>,
    /// Nodes of the shards that are owned here, by their numbers.
    terms: RwLock<Vec<Option<Node>>>,
    ends: watch::Sender<bool>,
    /// Outcomes of the stores of all copies that this node has had, by the stores' numbers.
    outcomes: Mutex<HashMap<u64, Outcomes>>,
    /// Permits of messages that are sent without a reply.
    sends: Arc<Semaphore>,
    /// Membership and links, if the node has joined by them.
    joined: OnceLock<Joined>,
}

/// Destination of a call.
enum Route {
    Here(Node),
    There(PeerTarget),
    Nowhere(String),
}

impl Cluster {
    /// Starts to host the shards that the plan gives this node. The entities are processes of the runtime; kinds are to be
    /// [named](Cluster::kind) before shards can be owned, that is, before the node joins.
    ///
    /// # Panics
    ///
    /// Panics if the number of shards is not from 1 to 512.
    pub fn start(
        options: ClusterOptions,
        membership: Membership,
        runtime: &RuntimeHandle,
        logs: Arc<dyn Logs>,
        peers: Arc<dyn Peers>,
    ) -> Cluster {
        assert!((1..=512).contains(&options.shards), "a cluster has 1 to 512 shards");
        let terms = RwLock::new(vec![None; usize::from(options.shards)]);
        let (kinds, hosted, ends) = (Kinds::default(), Mutex::default(), watch::Sender::new(false));
        let runtime = runtime.clone();
        let inner = Inner {
            options,
            membership,
            runtime,
            logs,
            peers,
            kinds,
            hosted,
            terms,
            ends,
            outcomes: Mutex::default(),
            sends: Arc::new(Semaphore::new(SENDS_MAX)),
            joined: OnceLock::new(),
        };
        Cluster(Arc::new(inner))
    }

    /// Begins to host shards, once all kinds are named.
    pub fn serve(&self) {
        self.tokio().spawn(host::run(Arc::downgrade(&self.0)));
    }

    /// Names a kind of entities with its [dependencies](Durable::Deps), which the shards share. Its messages that may come
    /// from other nodes follow by [`accepts`](Kind::accepts).
    ///
    /// # Panics
    ///
    /// Panics if the kind is named already.
    pub fn kind<P: Durable>(&self, deps: P::Deps) -> Kind<'_, P> {
        Kind::register(self, deps)
    }

    /// Returns the entity of kind `P` with this key, wherever it lives. No I/O.
    pub fn entity<P: Durable>(&self, key: impl AsRef<str>) -> ClusterEntity<P> {
        ClusterEntity::new(self.clone(), key.as_ref())
    }

    /// Returns the shard of entities with this [part of their keys](Durable::slot_key).
    pub fn shard_of(&self, slot_key: &str) -> Shard {
        self.0.shard_of(slot_key)
    }

    /// Returns the state of the shards that this node has copies of.
    pub fn hosted(&self) -> Vec<HostedShard> {
        let members = self.0.membership.members.borrow().clone();
        let hosted = self.0.hosted();
        let state = |(shard, hosted): (&Shard, &Arc<Hosted>)| HostedShard {
            shard: *shard,
            plan: members.plan().get(shard).cloned(),
            serves: self.0.term(*shard).is_some(),
            copy: hosted.status(),
            trouble: hosted.trouble(),
        };
        hosted.iter().map(state).collect()
    }

    /// Hands over all shards that this node owns, as far as others can take them, and closes its copies. Ends when all is
    /// on the disk.
    async fn end(&self) {
        self.0.ends.send_replace(true);
        loop {
            let hosted = self.0.hosted().values().next().cloned();
            let Some(hosted) = hosted else { return };
            hosted.ended().await;
            self.0.hosted().retain(|_, other| !Arc::ptr_eq(other, &hosted));
        }
    }

    fn kinds(&self) -> &Kinds {
        &self.0.kinds
    }

    fn tokio(&self) -> &tokio::runtime::Handle {
        self.0.runtime.tokio()
    }

    /// Returns the nodes of all shards that are owned here.
    fn nodes(&self) -> Vec<Node> {
        let terms = self.0.terms.read().unwrap_or_else(PoisonError::into_inner);
        terms.iter().flatten().cloned().collect()
    }

    /// Returns the outcomes of a store that is or was that of a shard of this node, by its number.
    fn outcomes_of(&self, store: u64) -> Option<Outcomes> {
        self.0.outcomes().get(&store).cloned()
    }

    /// Returns a handle that does not keep the cluster.
    pub(crate) fn downgrade(&self) -> WeakCluster {
        WeakCluster(Arc::downgrade(&self.0))
    }

    fn route(&self, shard: Shard) -> Route {
        if let Some(node) = self.0.term(shard) {
            return Route::Here(node);
        }
        let members = self.0.membership.members.borrow();
        let Some(copies) = members.plan().get(&shard) else {
            return Route::Nowhere(format!("no plan has shard {} yet", shard.0));
        };
        if copies.owner == self.0.membership.name {
            return Route::Nowhere(format!("shard {} is not ready on this node", shard.0));
        }
        let owner = members.nodes().iter().find(|(_, member)| member.name == copies.owner);
        match owner {
            Some((node, member)) => {
                Route::There(PeerTarget { address: member.address.clone(), node: *node })
            }
            None => Route::Nowhere(format!("the node {} is not in the cluster", copies.owner)),
        }
    }
}

impl Inner {
    fn shard_of(&self, slot_key: &str) -> Shard {
        shard_of(&self.options.name, self.options.shards, slot_key)
    }

    fn hosted(&self) -> MutexGuard<'_, BTreeMap<Shard, Arc<Hosted>>> {
        self.hosted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn outcomes(&self) -> MutexGuard<'_, HashMap<u64, Outcomes>> {
        self.outcomes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the node of a shard that is owned here.
    fn term(&self, shard: Shard) -> Option<Node> {
        let terms = self.terms.read().unwrap_or_else(PoisonError::into_inner);
        terms.get(usize::from(shard.0)).cloned().flatten()
    }

    /// Sets the node of a shard, and returns the one before.
    fn set_term(&self, shard: Shard, node: Option<Node>) -> Option<Node> {
        let mut terms = self.terms.write().unwrap_or_else(PoisonError::into_inner);
        terms.get_mut(usize::from(shard.0)).and_then(|term| std::mem::replace(term, node))
    }
}

/// Returns the shard of a part of a key, in a cluster of some name and number of shards.
fn shard_of(cluster: &str, shards: u16, slot_key: &str) -> Shard {
    let mut hasher = SipHasher13::new();
    hasher.write(cluster.as_bytes());
    hasher.write_u8(0);
    hasher.write(slot_key.as_bytes());
    let slot = hasher.finish() % u64::from(SLOTS);
    // Neighbouring slots are of the same shard, so that a shard can be split in two.
    Shard((slot * u64::from(shards) / u64::from(SLOTS)) as u16)
}

impl fmt::Debug for Cluster {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Membership { name, me, .. } = &self.0.membership;
        formatter
            .debug_struct("Cluster")
            .field("node", name)
            .field("me", me)
            .finish_non_exhaustive()
    }
}

type WeakInner = Weak<Inner>;

/// A handle that does not keep the cluster.
#[derive(Clone)]
pub(crate) struct WeakCluster(WeakInner);

impl WeakCluster {
    pub(crate) fn upgrade(&self) -> Option<Cluster> {
        self.0.upgrade().map(Cluster)
    }
}

impl fmt::Debug for WeakCluster {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("WeakCluster")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_spread_over_all_shards_and_stay_where_they_are() {
        let mut count = vec![0; 64];
        for key in 0..64_000 {
            count[usize::from(shard_of("shop", 64, &key.to_string()).0)] += 1;
        }
        assert!(count.iter().all(|keys| (800..1_200).contains(keys)), "{count:?}");
        // These are on the disks of users.
        let known = ["ann", "bob", "eve"].map(|key| shard_of("shop", 64, key).0);
        assert_eq!(known, [61, 25, 29]);
        assert_eq!(shard_of("shop", 1, "ann"), Shard(0));
        assert!((0..100).any(|key| {
            shard_of("shop", 64, &key.to_string()) != shard_of("other", 64, &key.to_string())
        }));
    }
}
