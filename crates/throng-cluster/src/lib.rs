//! The rule and the owner's protocol of a replicated log, for durable processes on many machines.
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
//! reading its own records back. Beside the log, nodes ask each other over [links](link).
//!
//! 1. All readers of a log agree on the records that count, and so on the state after each of them.
//! 2. A record that an owner has published counts for every later reader.
//! 3. A record that an owner has given up counts for none.

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
