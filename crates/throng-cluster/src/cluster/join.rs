//! [`Cluster::join`]: a node with all its parts: membership, links, and the shards that the plan gives it.
//!
//! ```text
//! control log ─▶ Control ── members, plan ──▶ Cluster ◀── requests of other nodes ── Links
//!                   ▲────── how far behind ──────┘  └────────── calls to them ─────────▲
//! ```

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use throng::RuntimeHandle;
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};

use super::{Cluster, ClusterOptions, Inner, Logs, Membership, PeerError, PeerTarget, Peers};
use crate::control::{self, Control, Ended, Health, JoinError};
use crate::link::{self, CallError, Deadline, Identity, Links, Peer, Refusal, Service, Target};
use crate::log::{BoxFuture, ShardLog};
use crate::members::Member;
use crate::placement::Shard;

/// Time for which calls in flight may go on when a node has left.
const STOP_WITHIN: Duration = Duration::from_secs(2);
/// Pause between two looks whether a node has handed over its shards.
const LOOK: Duration = Duration::from_millis(50);

/// Parts of a node that joins a cluster.
pub struct Join {
    /// Name, address for other nodes, zone, weight and levels. `renewal` and `is_draining` are disregarded.
    pub member: Member,
    /// Entities and copies of shards.
    pub cluster: ClusterOptions,
    /// Membership. The number of shards in its rules is that of the cluster.
    pub control: control::Options,
    /// Connections.
    pub links: link::Options,
    /// Certificates.
    pub identity: Identity,
    /// Socket at the member's address.
    pub listener: TcpListener,
    /// Log of members and plans.
    pub control_log: Arc<dyn ShardLog>,
    /// Logs of the shards.
    pub logs: Arc<dyn Logs>,
}

/// Membership and links of a node that has joined.
pub(super) struct Joined {
    control: Arc<Control>,
    links: Arc<Links>,
}

impl Cluster {
    /// Joins a cluster, and returns when its log has the node. `name_kinds` [names](Cluster::kind) the kinds of entities
    /// and their messages, before the node has any shard.
    ///
    /// # Errors
    ///
    /// [`JoinError`], sorted by what the operator can do.
    ///
    /// # Panics
    ///
    /// Panics outside of a runtime of tokio, such as that of the [runtime](RuntimeHandle::tokio).
    pub async fn join(
        join: Join,
        runtime: &RuntimeHandle,
        name_kinds: impl FnOnce(&Cluster),
    ) -> Result<Cluster, JoinError> {
        let Join { member, cluster: options, mut control, links, identity, .. } = join;
        control.rules.shards = options.shards;
        let name = member.name.clone();
        let control = Arc::new(Control::join(join.control_log, member, control).await?);
        let answers = Arc::new(Answers(OnceLock::new()));
        let (me, listener) = (control.me(), join.listener);
        let links = Arc::new(Links::start(listener, identity, me, answers.clone(), links));
        let reported = control.clone();
        let report = Box::new(move |shard: Shard, lag| reported.report(shard, lag));
        let membership = Membership { name, me, members: control.watch(), report };
        let cluster = Cluster::start(options, membership, runtime, join.logs, links.clone());
        let _ = answers.0.set(Arc::downgrade(&cluster.0));
        let _ = cluster.0.joined.set(Joined { control: control.clone(), links });
        name_kinds(&cluster);
        cluster.serve();
        let (ends, ended) = (cluster.0.ends.clone(), control.ended());
        cluster.tokio().spawn(async move {
            // A node that is none any more ends its shards, which others take.
            ended.await;
            ends.send_replace(true);
        });
        Ok(cluster)
    }

    /// Whether this node may answer reads from its own state at this moment, because its lease holds.
    pub fn lease_holds(&self) -> bool {
        self.0.joined.get().is_some_and(|joined| joined.control.lease_holds())
    }

    /// Returns whether the control log is heard, and the counters of the links; `None` for a cluster that was only
    /// [started](Cluster::start).
    pub fn health(&self) -> Option<(Health, link::Stats)> {
        let Joined { control, links } = self.0.joined.get()?;
        Some((control.health(), links.stats()))
    }

    /// Waits until the node is no member any more, and returns the reason. A node that was
    /// [expired](Ended::Expired) may join again, once this cluster is [left](Cluster::leave).
    pub async fn ended(&self) -> Ended {
        match self.0.joined.get() {
            Some(joined) => joined.control.ended().await,
            None => Ended::Stopped,
        }
    }

    /// Leaves in order: has the shards moved to other nodes for some time, hands over those that are left, closes the
    /// copies, and ends the membership and the links.
    pub async fn leave(&self, within: Duration) {
        let joined = self.0.joined.get();
        if let Some(Joined { control, .. }) = joined {
            let deadline = Instant::now() + within;
            // Without an answer others find out by the lease.
            let drained = control.drain(&self.0.membership.name, true).await;
            while drained.is_ok()
                && !self.nodes().is_empty()
                && !control.watch().borrow().candidates().is_empty()
                && Instant::now() < deadline
            {
                sleep(LOOK).await;
            }
        }
        self.end().await;
        if let Some(Joined { control, links }) = joined {
            let _ = control.leave().await;
            links.stop(STOP_WITHIN).await;
        }
    }
}

/// Answers of a node to the calls of others.
struct Answers(OnceLock<Weak<Inner>>);

impl Service for Answers {
    fn call(
        &self,
        _: Peer,
        request: Bytes,
        deadline: Deadline,
    ) -> BoxFuture<Result<Bytes, Refusal>> {
        let cluster = self.0.get().and_then(Weak::upgrade).map(Cluster);
        Box::pin(async move {
            let Some(cluster) = cluster else {
                return Err(Refusal("the node has just begun".into()));
            };
            let answered = cluster.answer(request, deadline.remaining()).await;
            answered.map_err(|reason| Refusal(reason.into()))
        })
    }
}

impl Peers for Links {
    fn call(
        self: Arc<Links>,
        target: PeerTarget,
        request: Bytes,
        within: Duration,
    ) -> BoxFuture<Result<Bytes, PeerError>> {
        Box::pin(async move {
            let PeerTarget { address, node } = target;
            let called = Links::call(&self, &Target { address, node }, request, within).await;
            called.map_err(|error| match error {
                CallError::Unknown(reason) => PeerError::Unknown(reason),
                CallError::Refused { reason, .. } => {
                    PeerError::Unsent(String::from_utf8_lossy(&reason).into_owned())
                }
                error => PeerError::Unsent(error.to_string()),
            })
        })
    }
}
