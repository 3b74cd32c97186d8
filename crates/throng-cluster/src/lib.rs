//! Durable processes on many machines: the same entities, each on the node that owns its shard.
//!
//! ```text
//!  owner of a shard                      engine (an ordered log, kept on three machines)
//!  append record n ────────────────────▶ position p ─────┬──────────────┐
//!  publish ◀── p is the position expected ◀── ack p       │ the same bytes, in the same order
//!                                                         ▼              ▼
//!                                                      standby: Tail   next owner: Tail
//! ```
//!
//! The engine orders bytes, keeps them, and says at which position it has put them. It is not asked who the owner
//! is: [`Tail`] decides by the content of the log which records count, and the owner's [`Replica`] learns it without
//! reading its own records back.
//!
//! 1. All readers of a log agree on the records that count, and so on the state after each of them.
//! 2. A record that an owner has published counts for every later reader.
//! 3. A record that an owner has given up counts for none.
//!
//! # Where to look
//!
//! | Task | Start here |
//! |---|---|
//! | several nodes in one process, for tests | [`LocalCluster`] |
//! | a node of a cluster, calls to entities anywhere | [`Cluster::join`], [`Cluster::entity`] |
//! | messages that other nodes may send | [`Kind::accepts`] |
//! | members, leases and plans on the control log | [`control`], [`members`], [`placement`], [`lease`] |
//! | calls between nodes over mutual TLS | [`link`] |
//! | a copy of a shard without entities | [`ShardReplica`] |
//! | another engine than that of `throng-nats` | [`ShardLog`], [`Logs`] |
//!
//! The page `docs/cluster.md` in the repository teaches the whole.

#![warn(missing_docs)]

mod cluster;
pub mod control;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod guard;
pub mod lease;
pub mod link;
mod local;
mod log;
pub mod members;
mod memory;
pub mod placement;
mod record;
mod replica;
mod shard;
mod tail;

pub use cluster::{
    Cluster, ClusterCall, ClusterEntity, ClusterError, ClusterOptions, HostedShard, Join, Kind,
    Logs, Membership, PeerError, PeerTarget, Peers, SLOTS,
};
pub use control::{Control, Health, JoinError};
pub use local::LocalCluster;
pub use log::{BoxFuture, BoxStream, LogError, ShardLog};
pub use memory::{MemoryLog, MemoryLogs, MemoryPeers};
pub use record::{Chain, HEADER_BYTES, Header, Incarnation, Record, RecordKind};
pub use replica::{AppendError, Effect, Entry, Position, Reason, Replica, Ticket, WINDOW};
pub use shard::{Role, ShardCounters, ShardOptions, ShardReplica, ShardStatus, Stop};
pub use tail::{Noise, Tail, Verdict};
